"""The `collisions` command: what the seed key is worth, in numbers and plots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from voxradix.cli.bench import machine
from voxradix.cli.plots import plot_counts, plot_differences, require_matplotlib
from voxradix.engine import Engine
from voxradix.errors import VoxradixError
from voxradix.keys import MOD, pack_rows, row_hash
from voxradix.keys.collisions import (
    LATTICE_STEP,
    Count,
    Difference,
    clashing_differences,
    clashing_pairs,
    expected_pairs,
    forge_folded,
    forge_raw,
)
from voxradix.rows import MOSS_LOCAL, RowLayout
from voxradix.text import number_words
from voxradix.voice import Voice, load_voice

_COUNTS = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
_MOSTLY = 0.9


@dataclass(frozen=True, slots=True)
class Space:
    """A way to key rows: a name, how many values it has (None: as many as there are rows), and the values of rows."""

    name: str
    size: int | None
    keys: Callable[[Tensor], Tensor]


def _spaces(layout: RowLayout) -> list[Space]:
    """The keys under study, for rows of a layout."""
    return [
        Space("fold 151643", 151643, lambda rows: row_hash(rows).remainder(151643)),
        Space("fold [10, 16384)", 16374, lambda rows: row_hash(rows).remainder(16374)),
        Space("raw M31", MOD, row_hash),
        Space("packed row", None, lambda rows: pack_rows(rows, layout)),
    ]


def run_collisions(plots: Path | None, frames: int, seed: int) -> None:
    """Measure everything, print it, and draw the plots into a directory if one is given."""
    if plots is not None:
        try:
            plots.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise VoxradixError(f"{plots} cannot be made a directory: {error.strerror}") from None
        require_matplotlib()
    if not 0 <= seed < 2**63:
        raise VoxradixError(f"--seed is {seed}; it must lie in 0 .. 2**63 - 1")
    console = Console()
    console.print(machine())
    counts = _counts("random rows", _random_rows(max(_COUNTS), seed), _spaces(MOSS_LOCAL))
    voice = load_voice("numbers")
    spoken = _spoken_frames(voice, frames)
    counts += _counts("spoken frames", spoken, _spaces(voice.model.layout))
    table = Table("rows of one prefix", "key", "n", "clashing pairs", "expected", title="Clashes")
    for count in counts:
        table.add_row(count.source, count.space, str(count.rows), str(count.measured), f"{count.expected:.3g}")
    console.print(table)
    differences = clashing_differences(MOSS_LOCAL, at_least=_MOSTLY)
    _print_differences(console, differences)
    _print_forgeries(console)
    if plots is not None:
        plot_counts(counts, plots / "clashes.png")
        plot_differences(differences, plots / "differences.png")
        console.print(f"plots: {plots / 'clashes.png'}, {plots / 'differences.png'}")


def _counts(source: str, rows: Tensor, spaces: list[Space]) -> list[Count]:
    """Clashes among the first n rows for growing n; the rows are all different."""
    sizes = [n for n in _COUNTS if n < len(rows)] + [len(rows)]
    return [
        Count(
            source,
            space.name,
            n,
            measured=clashing_pairs(space.keys(rows[:n])),
            expected=0.0 if space.size is None else expected_pairs(n, space.size),
        )
        for space in spaces
        for n in sizes
    ]


def _random_rows(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.full((count, MOSS_LOCAL.columns), 151656)
    rows[:, 1:] = torch.randint(0, 1024, (count, MOSS_LOCAL.codebooks), generator=generator)
    different: Tensor = rows.unique(dim=0)
    return different[torch.randperm(len(different), generator=generator)]


def _spoken_frames(voice: Voice, wanted: int) -> Tensor:
    """Different frames of numbers the bundled voice speaks, int64 [n, C], in the order they were made."""
    engine = Engine(voice)
    made: list[Tensor] = []
    seen: set[tuple[int, ...]] = set()
    number = 0
    while len(made) < wanted:
        if number >= 10_000:
            raise VoxradixError(f"--frames is {wanted}; all numbers to 9999 give {len(made)} different frames")
        texts = [" ".join(number_words((number + i) * 7919 % 10_000)) for i in range(16)]
        number += len(texts)
        for result in engine.generate_batch(texts):
            for row in result.rows:
                key = tuple(row.tolist())
                if key not in seen:
                    seen.add(key)
                    made.append(row)
    return torch.stack(made[:wanted])


def _print_differences(console: Console, differences: list[Difference]) -> None:
    row = torch.tensor([151656] + [500] * 12)
    other = row + torch.tensor(LATTICE_STEP)
    console.print(
        f"{len(differences)} differences in two codebooks clash under fold 151643 for {_MOSTLY:.0%} of all rows or more"
    )
    table = Table("codebooks", "difference", "share of rows that clash", title="The likeliest")
    for difference in differences[:8]:
        a, b = difference.columns
        table.add_row(
            f"{a - 1} and {b - 1}",
            f"{difference.steps[0]:+d} and {difference.steps[1]:+d}",
            f"{difference.probability:.4f}",
        )
    console.print(table)
    same = int(row_hash(row[None])[0]) == int(row_hash(other[None])[0])
    console.print(
        f"raw hashes of {row.tolist()} and of it plus {list(LATTICE_STEP)}: {'equal' if same else 'different'}"
    )


def _print_forgeries(console: Console) -> None:
    row = _random_rows(1, seed=5)[0]
    start = perf_counter()
    _, tried = forge_folded(row, MOSS_LOCAL)
    folded = perf_counter() - start
    start = perf_counter()
    forge_raw(row, MOSS_LOCAL)
    console.print(
        f"a second row for a given folded key: {folded:.3f} s ({tried} tried); "
        f"for a given raw hash: {perf_counter() - start:.2f} s"
    )
