"""Plots of the `collisions` command, through matplotlib (the extra ``lab``)."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from voxradix.errors import VoxradixError
from voxradix.keys.collisions import Count, Difference

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_counts(counts: list[Count], path: Path) -> None:
    """Clashing pairs against rows, measured as points and expected as lines."""
    figure = _figure(width=9.0)
    sources = list(dict.fromkeys(count.source for count in counts))
    spaces = list(dict.fromkeys(count.space for count in counts))
    panels = figure.subplots(1, len(sources), sharey=True, squeeze=False)[0]
    for panel, source in zip(panels, sources, strict=True):
        for index, space in enumerate(spaces):
            chosen = [count for count in counts if (count.source, count.space) == (source, space)]
            rows = [count.rows for count in chosen]
            colour = f"C{index}"
            panel.plot(rows, [count.expected for count in chosen], color=colour, linewidth=1)
            panel.plot(rows, [count.measured for count in chosen], "o", color=colour, label=space)
        panel.set_xscale("log")
        panel.set_yscale("symlog", linthresh=1)
        panel.set_ylim(bottom=-0.2)
        panel.set_title(source)
        panel.set_xlabel("different rows under one prefix")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("pairs that share a key (lines: expected)")
    panels[0].legend(loc="upper left")
    _save(figure, path)


def plot_differences(differences: list[Difference], path: Path) -> None:
    """How many rows clash under each difference in two codebooks, the likeliest first."""
    figure = _figure(width=6.0)
    panel = figure.subplots()
    panel.plot([difference.probability for difference in differences], ".")
    panel.set_xlabel("difference in two codebooks, by rank")
    panel.set_ylabel("share of rows that clash under fold 151643")
    panel.grid(alpha=0.3)
    _save(figure, path)


def require_matplotlib() -> None:
    """Raise `VoxradixError` where matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise VoxradixError("plots need matplotlib; install the extra voxradix[lab]")


def _save(figure: Figure, path: Path) -> None:
    try:
        figure.savefig(path, dpi=130)
    except OSError as error:
        raise VoxradixError(f"{path} cannot be written: {error.strerror}") from None


def _figure(width: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, 4.2), layout="constrained")
