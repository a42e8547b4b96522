"""The matrix: cells run on a small voice and held against the reference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from voxradix.engine import Engine, Request, graph
from voxradix.keys import RowHash, pack_rows_unchecked, prompt_keys, row_hash, row_keys
from voxradix.rows import RowLayout
from voxradix.verify.axes import Batch, Cache, Cell, Key, Lookahead, Prefill, Retraction, Step
from voxradix.verify.case import FRAMES, Case, small_voice
from voxradix.verify.observer import Observed, Observer
from voxradix.verify.outcome import Difference, Outcome, Part, first_difference
from voxradix.verify.reference import Reference
from voxradix.verify.strangers import Strangers

CHUNK_ROWS = {Prefill.WHOLE: 4096, Prefill.ONE: 1, Prefill.SEVEN: 7, Prefill.SIXTY_FOUR: 64}
"""Rows prefilled in one step."""

PROMPT_ROWS = {Prefill.WHOLE: 60, Prefill.ONE: 5, Prefill.SEVEN: 12, Prefill.SIXTY_FOUR: 66}
"""Rows of the shortest prompt: more than a chunk; and whole ones end on both sides of a block of 64."""

_LENGTHS = 4
_POOL_ROWS = 4096


class Matrix:
    """Runs cells, one after the other, each in an engine of its own.

    Attributes:
        voice: What speaks in all of them.
    """

    def __init__(self) -> None:
        """Make the voice; nothing is run yet."""
        self.voice = small_voice()
        self._reference = Reference(self.voice)

    def run(self, cell: Cell) -> Outcome:
        """Run one cell; whatever goes wrong in it is its outcome."""
        try:
            with _captured_at_once():
                return self._run(cell)
        except Exception as error:
            return Outcome(cell, error=" ".join(f"{type(error).__name__}: {error}".split()))

    def _run(self, cell: Cell) -> Outcome:
        engine = Engine(
            self.voice,
            pool_rows=_POOL_ROWS,
            chunk_rows=CHUNK_ROWS[cell.prefill],
            cache=cell.cache is not Cache.OFF,
            graphs=cell.step is Step.GRAPH,
            lookahead=cell.lookahead is Lookahead.ON,
            row_hash=raw_hash(cell.key, self.voice.model.layout),
        )
        cases = [
            Case(number, PROMPT_ROWS[cell.prefill] + number % _LENGTHS, cell.way)
            for number in range(cell.batch.requests)
        ]
        self._warm(engine, cell.cache, cases)
        requests = [case.submit(engine) for case in cases]
        observer = Observer(engine, requests)
        strangers = Strangers(engine)
        while not observer.done:
            if cell.batch is Batch.STRANGERS:
                strangers.come_and_go()
            gained = observer.step()
            if cell.retraction is Retraction.EVERY_FRAME:
                for request in gained:
                    engine.retract(request)
        strangers.leave()
        assert engine.occupancy().held == 0, f"rows are held when all have ended: {engine.occupancy()}"
        graphs = engine._loop._runner._graphs
        if cell.step is Step.GRAPH and cell.key is not Key.BLAKE2B:  # a hash on the host cannot be captured
            assert graphs.enabled, "a decode step could not be captured"
        return Outcome(
            cell,
            self._differences(cell.key, cases, [observer.observed(request) for request in requests]),
            reused=sum(request.result().reused_rows for request in requests),
            retractions=sum(request.retractions for request in requests),
            graphs=len(graphs),
        )

    def _warm(self, engine: Engine, cache: Cache, cases: list[Case]) -> None:
        """Let the engine cache what the cell is to find there."""
        earlier: list[Request] = []
        if cache is Cache.TWIN:
            earlier = [case.submit(engine) for case in cases]
        elif cache is Cache.CONTINUATION:
            earlier = [case.submit(engine, self._reference.of(case).rows[: FRAMES - 1]) for case in cases]
        engine.run(earlier)

    def _differences(self, key: Key, cases: list[Case], made: list[Observed]) -> tuple[Difference, ...]:
        """The first difference of each part, the earliest first."""
        found: dict[Part, Difference] = {}
        for number, (case, cell) in enumerate(zip(cases, made, strict=True)):
            alone = self._reference.of(case)
            ids = expected_ids(key, alone.rows, self.voice.model.layout)
            for difference in (
                first_difference(Part.CODES, number, alone.rows, cell.rows),
                first_difference(Part.NEXT_IDS, number, ids[:, None], cell.ids[:, None]),
                first_difference(
                    Part.KV, number, alone.kv[: max(len(cell.kv), case.prompt_rows)], cell.kv, -case.prompt_rows
                ),
            ):
                if difference is not None:
                    found[difference.part] = min(found.get(difference.part, difference), difference, key=_when)
        return tuple(sorted(found.values(), key=_when))


def raw_hash(key: Key, layout: RowLayout) -> RowHash | None:
    """The raw hash of a key; None for the engine's own."""
    hashes: dict[Key, RowHash] = {
        Key.BLAKE2B: prompt_keys,
        Key.PACKED: lambda rows: pack_rows_unchecked(rows, layout).sum(dim=1),
        Key.SEVEN: lambda rows: torch.full_like(rows[:, 0], 7),
    }
    return hashes.get(key)


def expected_ids(key: Key, rows: Tensor, layout: RowLayout) -> Tensor:
    """The ids to be published for rows int64 [N, C]: their keys by the definitions, int64 [N]."""
    return row_keys(rows, layout, row_hash=raw_hash(key, layout) or row_hash)


def _when(difference: Difference) -> tuple[int, int, int]:
    """The order of differences: a frame's codes come before its id, and both before its keys and values."""
    return difference.frame, list(Part).index(difference.part), difference.request


@contextmanager
def _captured_at_once() -> Iterator[None]:
    """Have steps captured the first time their shape comes up: a cell is too short to prove a shape common."""
    patience = dict(graph.PATIENCE)
    graph.PATIENCE.update(dict.fromkeys(patience, 0))
    try:
        yield
    finally:
        graph.PATIENCE.update(patience)
