"""The `bench keys` command: what each implementation of the row keys costs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from voxradix.cli.bench import machine
from voxradix.keys import RowPacker, ShortHash, fold_keys, prompt_keys, row_hash
from voxradix.keys.publish import publish_rows
from voxradix.rows import MOSS_LOCAL as LAYOUT
from voxradix.rows import SPACE

_SECONDS = 0.15
"""Time spent on each figure."""


def bench_keys(batches: list[int]) -> None:
    """Print median microseconds a call for each implementation and batch, and the operators each launches."""
    console = Console()
    console.print(f"{machine()}, {torch.get_num_threads()} threads; 13 columns; median microseconds a call")
    compiled = _compiled()
    table = Table("batch", *_ways(1), "Horner, compiled", "Horner / short", "blake2b / short")
    for batch in batches:
        times = {name: _median_microseconds(way) for name, way in _ways(batch).items()}
        fused = "-" if compiled is None else f"{_median_microseconds(partial(compiled, _rows(batch))):.1f}"
        ratios = (times["Horner"] / times["short"], times["blake2b"] / times["short"])
        table.add_row(
            str(batch), *(f"{time:.1f}" for time in times.values()), fused, *(f"{ratio:.1f}" for ratio in ratios)
        )
    table.add_section()
    table.add_row("operators", *(str(_operators(way)) for way in _ways(1).values()), "", "", "")
    console.print(table)


def _rows(batch: int) -> Tensor:
    """Rows of random codes, int64 [batch, 13]."""
    codes = torch.randint(0, 1024, (batch, LAYOUT.codebooks), generator=torch.Generator().manual_seed(batch))
    return torch.cat((torch.full((batch, 1), 151656), codes), dim=1)


def _compiled() -> Callable[[Tensor], Tensor] | None:
    """Horner's rule through torch.compile; None without the C++ compiler that takes."""
    compiled = torch.compile(row_hash, fullgraph=True, dynamic=True)
    with suppress(Exception):
        compiled(_rows(4))
        return compiled
    return None


def _ways(batch: int) -> dict[str, Callable[[], object]]:
    """The hashes of the same rows; the key, folded and with its end; the operator that writes row, key and words."""
    rows, stop = _rows(batch), torch.zeros(batch, dtype=torch.bool)
    codes = rows[:, 1:].contiguous()
    short, pack = ShortHash(LAYOUT), RowPacker(LAYOUT)
    words, shifts = [field.word for field in LAYOUT.fields], [field.shift for field in LAYOUT.fields]

    def short_keys() -> Tensor:
        return fold_keys(short(rows), rows[:, 0] == LAYOUT.end_id, end_key=LAYOUT.end_key, space=SPACE)

    def publish(stop: Tensor, codes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        made: tuple[Tensor, Tensor, Tensor] = publish_rows(
            stop, codes, words, shifts, 151656, LAYOUT.end_id, 1024, SPACE, 0
        )
        return made

    return {
        "blake2b": lambda: prompt_keys(rows.cpu()).to(rows.device),
        "Horner": lambda: row_hash(rows),
        "short": lambda: short(rows),
        "short, folded": short_keys,
        "operator": lambda: publish(stop, codes),
        "packing": lambda: pack(rows),
    }


def _median_microseconds(way: Callable[[], object]) -> float:
    for _ in range(10):
        way()
    times: list[float] = []
    end = perf_counter() + _SECONDS
    while perf_counter() < end:
        start = perf_counter()
        way()
        times.append(perf_counter() - start)
    return 1e6 * median(times)


class _Counter(TorchDispatchMode):
    """Counts the operators that run, views left out."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not bool(func.is_view)
        return func(*args, **(kwargs or {}))


def _operators(way: Callable[[], object]) -> int:
    counter = _Counter()
    with counter:
        way()
    return counter.count
