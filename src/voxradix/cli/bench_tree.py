"""What the radix tree costs: operations a second at several sizes, beside another engine's, and bytes a row."""

from __future__ import annotations

import gc
import random
import tracemalloc
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from importlib import import_module
from itertools import islice
from statistics import median
from time import perf_counter
from typing import Any, Protocol

import torch
from rich.console import Console
from rich.table import Table

from voxradix.cache import Chain, RadixTree, SlotPool

KV_BYTES = 36 * 2 * 8 * 128 * 2
"""Bytes of a row's keys and values in the released model: layers, both, heads, width, bfloat16."""

_ROW_BYTES = 16
_KEYS = 151_643
_FAMILIES, _SHARED, _PROMPT, _LENGTH = 8, 60, 100, 150
"""Families of prompts; rows that a family shares, that a prompt has, and that prompt and generated tail have."""

_ROUNDS = 60
_MATCHES = 50
_MEASURED_ROWS = 20_000
"""The most rows whose bytes are counted: a row costs the same in any tree."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """Operations a second, from the median of interleaved rounds.

    Attributes:
        match: The slots of the longest cached prefix; of a whole chain, a prompt, or a prompt not seen before.
        insert: A prompt of a known family, then its generated tail.
        lock: A lock and its unlock.
        evict: Making room for the prompts and tails inserted since, up to 1000 rows at a time.
    """

    match: float
    insert: float
    lock: float
    evict: float


@dataclass(frozen=True, slots=True)
class TreeFigures:
    """What a tree of one size gave.

    Attributes:
        rows: Rows in the tree.
        speeds: This tree's.
        sglang: Those of SGLang's Python tree over the same chains; None where it cannot be imported.
        plain_bytes: Bytes a cached row takes beside its keys and values, tree and pool together.
        split_bytes: The same where every row is a node of its own.
    """

    rows: int
    speeds: Speeds
    sglang: Speeds | None
    plain_bytes: float
    split_bytes: float


def tree_figures(sizes: list[int]) -> list[TreeFigures]:
    """Measure trees of so many rows, SGLang's beside ours where it can be imported."""
    theirs = _sglang()
    return [_figures(rows, theirs) for rows in sizes]


def tree_table(figures: list[TreeFigures], console: Console) -> None:
    """Print the figures, operations a second first."""
    table = Table("rows", "operation", "voxradix /s", "SGLang /s", "times as fast")
    for row in figures:
        for field in fields(Speeds):
            ours = getattr(row.speeds, field.name)
            theirs = getattr(row.sglang, field.name) if row.sglang else None
            beside = (f"{theirs:,.0f}", f"{ours / theirs:.1f}") if theirs else ("-", "-")
            table.add_row(f"{row.rows:,}", field.name, f"{ours:,.0f}", *beside)
        table.add_section()
    console.print(table)
    if any(row.sglang is None for row in figures):
        console.print("SGLang cannot be imported here, so its tree is left out.")
    table = Table("rows", "bytes a row", "of its KV", "bytes a row, all split", "of its KV")
    for row in figures:
        shares = ((f"{size:.0f}", f"{size / KV_BYTES:.3%}") for size in (row.plain_bytes, row.split_bytes))
        table.add_row(f"{row.rows:,}", *(cell for share in shares for cell in share))
    console.print(table)


class _Tree(Protocol):
    """What is timed. ``prepare`` is not: it makes what the operations are asked with."""

    @property
    def rows(self) -> int: ...
    def prepare(self, chain: Chain, length: int) -> Any: ...
    def insert(self, asked: Any) -> object: ...
    def match(self, asked: Any) -> Any: ...
    def lock(self, node: Any) -> object: ...
    def evict(self, rows: int) -> object: ...


class _Ours:
    def __init__(self) -> None:
        self._tree = RadixTree(_ROW_BYTES)
        self._slots = list(range(_LENGTH))

    @property
    def rows(self) -> int:
        return self._tree.rows

    def prepare(self, chain: Chain, length: int) -> tuple[Chain, int]:
        return chain, length

    def insert(self, asked: tuple[Chain, int]) -> object:
        return self._tree.insert(*asked, self._slots)

    def match(self, asked: tuple[Chain, int]) -> Any:
        return self._tree.match(*asked).node

    def lock(self, node: Any) -> None:
        self._tree.lock(node)
        self._tree.unlock(node)

    def evict(self, rows: int) -> object:
        return self._tree.evict(rows)


def _sglang() -> Callable[[], _Tree] | None:
    """SGLang's Python radix cache in the same clothes; None when it cannot be imported, for whatever reason."""
    try:
        params = import_module("sglang.srt.mem_cache.base_prefix_cache")
        cache = import_module("sglang.srt.mem_cache.radix_cache")
    except Exception:
        return None

    class Allocator:
        device = "cpu"

        def free_segment(self, value: object, start_pos: int) -> None: ...

    class Theirs:
        def __init__(self) -> None:
            self._cache: Any = cache.RadixCache.create_simulated(mock_allocator=Allocator())
            self._slots = torch.arange(_LENGTH)

        @property
        def rows(self) -> int:
            return int(self._cache.evictable_size())

        def prepare(self, chain: Chain, length: int) -> Any:
            return cache.RadixKey(chain.keys[:length]), self._slots[:length]

        def insert(self, asked: Any) -> object:
            return self._cache.insert(params.InsertParams(key=asked[0], value=asked[1]))

        def match(self, asked: Any) -> Any:
            node = self._cache.match_prefix(params.MatchPrefixParams(key=asked[0])).last_device_node
            self._cache.path_device_indices(node)
            return node

        def lock(self, node: Any) -> None:
            self._cache.inc_lock_ref(node)
            self._cache.dec_lock_ref(node)

        def evict(self, rows: int) -> object:
            return self._cache.evict(params.EvictParams(num_tokens=rows))

    return Theirs


def _figures(rows: int, theirs: Callable[[], _Tree] | None) -> TreeFigures:
    speeds = _speeds([_Ours(), theirs()] if theirs else [_Ours()], rows)
    measured = min(rows, _MEASURED_ROWS)
    return TreeFigures(
        rows=rows,
        speeds=speeds[0],
        sglang=speeds[1] if theirs else None,
        plain_bytes=_bytes_a_row(measured, [_PROMPT, _LENGTH]),
        split_bytes=_bytes_a_row(measured, list(range(1, _LENGTH + 1))),
    )


def _chains() -> Iterator[Chain]:
    """Endlessly many chains: a prompt of one of the families, and a generated tail."""
    rng = random.Random(0)

    def some(count: int) -> tuple[bytes, array[int]]:
        return rng.randbytes(count * _ROW_BYTES), array("q", rng.choices(range(_KEYS), k=count))

    families = [some(_SHARED) for _ in range(_FAMILIES)]
    while True:
        chain = Chain(_ROW_BYTES)
        chain.extend(*rng.choice(families))
        chain.extend(*some(_PROMPT - _SHARED))
        rows, keys = some(_LENGTH - _PROMPT)
        for index, key in enumerate(keys):
            chain.append(rows[index * _ROW_BYTES : (index + 1) * _ROW_BYTES], key)
        yield chain


def _speeds(trees: list[_Tree], rows: int) -> list[Speeds]:
    """Fill all trees alike and time each operation on one after the other, round by round."""
    rng, chains, cached = random.Random(1), _chains(), list[Chain]()
    times: list[dict[str, list[float]]] = [{field.name: [] for field in fields(Speeds)} for _ in trees]
    while trees[0].rows < rows:
        cached.append(next(chains))
        for tree in trees:
            _insert(tree, cached[-1])
    size = trees[0].rows
    new = max(1, min(1000, rows // 5) // (_LENGTH - _SHARED))
    gc.collect()
    for _ in range(_ROUNDS):
        unknown = list(islice(chains, _MATCHES // 5))
        picks = [(chain, rng.choice((_PROMPT, _LENGTH))) for chain in rng.choices(cached, k=_MATCHES - len(unknown))]
        picks += [(chain, _PROMPT) for chain in unknown]
        for tree, spent in zip(trees, times, strict=True):
            nodes = _time(tree.match, [tree.prepare(*pick) for pick in picks], spent["match"])
            _time(tree.lock, nodes, spent["lock"])
    for _ in range(_ROUNDS):
        added = list(islice(chains, new))
        for tree, spent in zip(trees, times, strict=True):
            asked = [tree.prepare(chain, length) for chain in added for length in (_PROMPT, _LENGTH)]
            _time(tree.insert, asked, spent["insert"])
            _time(tree.evict, [tree.rows - size], spent["evict"])
    return [Speeds(**{name: 1 / median(seconds) for name, seconds in spent.items()}) for spent in times]


def _insert(tree: _Tree, chain: Chain) -> None:
    for length in (_PROMPT, _LENGTH):
        tree.insert(tree.prepare(chain, length))


def _time(operation: Callable[[Any], Any], asked: list[Any], seconds: list[float]) -> list[Any]:
    """Ask for each in turn, note the seconds of one, and return what came back."""
    start = perf_counter()
    made = [operation(one) for one in asked]
    seconds.append((perf_counter() - start) / len(asked))
    return made


def _bytes_a_row(rows: int, lengths: list[int]) -> float:
    """Bytes of a full tree and its pool, divided by its rows, when chains are inserted at each of these lengths."""
    chains = list(islice(_chains(), rows // (_LENGTH - _SHARED) + 1))
    tracemalloc.start()
    try:
        tree, pool = RadixTree(_ROW_BYTES), SlotPool(rows + _LENGTH)
        for chain in chains:
            for length in lengths:
                if tree.rows < rows:
                    slots = pool.take(length)
                    pool.give(slots[: tree.insert(chain, length, slots).known])
        del slots
        return tracemalloc.get_traced_memory()[0] / tree.rows
    finally:
        tracemalloc.stop()
