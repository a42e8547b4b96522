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
from voxradix.errors import VoxradixError
from voxradix.keys import RowPacker, ShortHash, fold_keys, prompt_keys, row_hash
from voxradix.keys.publish import publish_rows
from voxradix.rows import MOSS_LOCAL as LAYOUT

_SECONDS = 0.15
"""Time spent on each figure."""

_MOST_ROWS = 1_000_000
_WORDS = [field.word for field in LAYOUT.fields]
_SHIFTS = [field.shift for field in LAYOUT.fields]
_PLACES = torch.tensor([_WORDS, _SHIFTS])


def bench_keys(batches: list[int]) -> None:
    """Print median microseconds a call for each implementation and batch, and the operators each launches."""
    if max(batches) > _MOST_ROWS:
        raise VoxradixError(f"--batches goes up to {max(batches)} rows; at most {_MOST_ROWS} are timed")
    console = Console()
    console.print(f"{machine()}, {torch.get_num_threads()} threads; 13 columns; median microseconds a call")
    times = [{name: _median_microseconds(way) for name, way in _ways(batch).items()} for batch in batches]
    operators = {name: _operators(way) for name, way in _ways(1).items() if "compiled" not in name}
    table = Table("rows at once", *map(str, batches), "operators")
    for name in times[0]:
        table.add_row(name, *(f"{column[name]:.1f}" for column in times), str(operators.get(name, "-")))
    table.add_section()
    for slow in ("Horner", "blake2b"):
        ratios = (column[slow] / column["short form"] for column in times)
        table.add_row(f"{slow} / short form", *(f"{ratio:.1f}" for ratio in ratios), "")
    console.print(table)


def _rows(batch: int) -> Tensor:
    """Rows of random codes, int64 [batch, 13]."""
    codes = torch.randint(0, 1024, (batch, LAYOUT.codebooks), generator=torch.Generator().manual_seed(batch))
    return torch.cat((torch.full((batch, 1), 151656), codes), dim=1)


def _ways(batch: int) -> dict[str, Callable[[], object]]:
    """The hashes of the same rows; the key, folded and with its end; row, key and words by the custom operator."""
    rows, stop = _rows(batch), torch.zeros(batch, dtype=torch.bool)
    codes = rows[:, 1:].contiguous()
    short, pack = ShortHash(LAYOUT), RowPacker(LAYOUT)

    def short_keys() -> Tensor:
        return fold_keys(short(rows), rows[:, 0] == LAYOUT.end_id, LAYOUT.end_key)

    ways: dict[str, Callable[[], object]] = {
        "blake2b": lambda: prompt_keys(rows.cpu()).to(rows.device),
        "Horner": lambda: row_hash(rows),
        "short form": lambda: short(rows),
        "short form, folded": short_keys,
        "packing": lambda: pack(rows),
        "operator": lambda: _publish(stop, codes),
    }
    for name, way in (("Horner", partial(row_hash, rows)), ("operator", partial(_publish, stop, codes))):
        compiled = torch.compile(way, fullgraph=True, dynamic=True)
        with suppress(Exception):  # without a C++ compiler the row is left out
            compiled()
            ways[f"{name}, compiled"] = compiled
    return ways


def _publish(stop: Tensor, codes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    made: tuple[Tensor, Tensor, Tensor] = publish_rows(
        stop, codes, _PLACES, _WORDS, _SHIFTS, 151656, LAYOUT.end_id, 1024, LAYOUT.end_key, LAYOUT.key_space, 0
    )
    return made


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
