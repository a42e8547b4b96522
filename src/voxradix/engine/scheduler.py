"""The scheduler: who runs in the next step, and in which slots.

A request waits, is prefilled in chunks, runs one frame a step, and finishes. When slots run out, the tree
forgets what nobody uses; then the newest running request is retracted: its rows go into the tree, where they may
be found again, and it waits in the order of its arrival. A request that is prefilled is not retracted before it has
its first frame, so each makes progress between two retractions and all of them end.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from time import perf_counter

from voxradix.cache import Node, RadixTree, SlotPool
from voxradix.engine.request import Finish, Request, State
from voxradix.engine.totals import Totals

HEADROOM = 8
"""Rows that must stay free for each running request when another is admitted, so that it is not retracted at once."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows ``start .. end - 1`` of a request, to be prefilled; the last one known gives the next frame."""

    request: Request
    start: int
    end: int

    @property
    def final(self) -> bool:
        """Whether every known row is written after this chunk."""
        return self.end == self.request.rows


@dataclass(frozen=True, slots=True)
class Plan:
    """One step: chunks to prefill, and requests whose newest row alone is to be written."""

    prefill: list[Chunk]
    decode: list[Request]

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.prefill or self.decode)


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Where every slot of the pool is: free, cached by the tree, or held by an active request alone."""

    free: int
    cached: int
    held: int


class Scheduler:
    """Admits, places, retracts and releases requests over one slot pool and one tree."""

    def __init__(self, *, slots: int, max_batch: int, chunk_rows: int, row_bytes: int, cache: bool) -> None:
        """A scheduler without requests.

        Args:
            slots: Rows the pool holds.
            max_batch: Requests prefilled or running at once.
            chunk_rows: Rows prefilled in one step, all requests together.
            row_bytes: Bytes of a packed row.
            cache: Whether finished and retracted rows are kept for reuse.
        """
        self.pool = SlotPool(slots)
        self.tree = RadixTree(row_bytes)
        self.totals = Totals()
        self.waiting: list[Request] = []
        self.active: list[Request] = []
        self._max_batch = max_batch
        self._chunk_rows = chunk_rows
        self._cache = cache

    def __contains__(self, request: Request) -> bool:
        """Whether a request waits or is active here."""
        return request in self.active or request in self.waiting

    def add(self, request: Request) -> None:
        """Let a new or retracted request wait, in order of arrival."""
        request.state = State.WAITING
        insort(self.waiting, request, key=_arrival)

    def plan(self) -> Plan:
        """Decide the next step and give every row in it a slot."""
        decode = self._place_decodes()
        decode += self._admit()
        return Plan(self._cut_chunks(), decode)

    def plan_ahead(self, plan: Plan) -> Plan | None:
        """The step after ``plan``, before its frames are known: the same requests once more, each with a slot.

        None where that is not known now: while something is prefilled, waits and could be admitted, or there is no
        room without a retraction. A request whose budget ends with ``plan`` is left out. One that ends of itself will
        have run on for one frame; its slots, that one's included, are given back when it is known.
        """
        going = [
            request
            for request in plan.decode
            if request.state is State.RUNNING and len(request.frames) + 1 < request.max_frames
        ]
        prefilling = any(request.state is State.PREFILLING for request in self.active)
        admissible = self.waiting and len(self.active) < self._max_batch
        if not going or prefilling or admissible or not self._make_room(len(going)):
            return None
        for request in going:
            request.slots += self.pool.take(1)
        return Plan([], going)

    def wrote(self, request: Request, rows: int) -> None:
        """Record that the first ``rows`` rows of a request have been written.

        When its prefill is complete, its rows are offered to others at once.
        """
        request.wrote(rows)
        if request.state is State.PREFILLING and rows == request.rows:
            request.state = State.RUNNING
            self._store(request)

    def retract(self, request: Request) -> None:
        """Take an active request's slots back and let it wait; what it has written stays in the tree."""
        self._store(request)
        self._release(request)
        request.retractions += 1
        self.add(request)

    def finish(self, request: Request, finish: Finish, error: str | None = None) -> None:
        """End a request. Only one that ended well leaves its rows in the tree."""
        if request.state is State.WAITING:
            self.waiting.remove(request)
        else:
            if finish in (Finish.AUDIO_END, Finish.LENGTH):
                self._store(request)
            self._release(request)
        request.state = State.FINISHED
        request.finish, request.error, request.finished = finish, error, perf_counter()
        self.totals = self.totals.plus(request.result())

    def leave(self, request: Request) -> None:
        """End a request because its caller does not want it any more."""
        if request.state is not State.FINISHED:
            self.finish(request, Finish.ABORTED)

    def occupancy(self) -> Occupancy:
        """Where the pool's slots are."""
        held = sum(len(request.slots) - request.shared for request in self.active)
        return Occupancy(self.pool.free, self.tree.rows, held)

    def check(self) -> None:
        """Raise `AssertionError` where a slot is lost or owned twice. Visits every row: for tests."""
        self.tree.check()
        now = self.occupancy()
        assert now.free + now.cached + now.held == self.pool.size, f"{now} of {self.pool.size} slots"
        owned = [slot for node in self.tree.nodes() for slot in node.slots]
        for request in self.active:
            assert len(request.slots) in (request.written, request.rows), "slots without written rows"
            if request.node is not None:
                assert request.slots[: request.shared] == list(self.tree.path(request.node)), "shared slots differ"
            owned += request.slots[request.shared :]
        assert len(owned) == len(set(owned)), "a slot has two owners"

    def _place_decodes(self) -> list[Request]:
        """A slot for the newest row of every running request, oldest first; the newest make room."""
        placed: list[Request] = []
        for request in [r for r in self.active if r.state is State.RUNNING]:
            missing = request.rows - len(request.slots)  # 1, or 0 after a step that was interrupted
            while request.state is State.RUNNING and not self._make_room(missing):
                self.retract(next(r for r in reversed(self.active) if r.state is State.RUNNING))
            if request.state is State.RUNNING:
                request.slots += self.pool.take(missing)
                placed.append(request)
        return placed

    def _admit(self) -> list[Request]:
        """Admit waiting requests in order while there is room for all their rows and some frames of everyone.

        Returns those whose last row alone is missing: they decode at once.
        """
        ready: list[Request] = []
        for request in list(self.waiting):
            if len(self.active) == self._max_batch:
                break
            limit = request.rows - 1 if self._cache else 0  # the last row is computed: its hidden state is needed
            match = self.tree.match(request.chain, limit)
            hit = len(match.slots)
            missing = request.rows - hit
            if self._cache and self._prefilled_meanwhile(request) - hit > missing // 2:
                continue
            self._hold(request, match.node, hit)
            if missing + HEADROOM * len(self.active) > self.pool.free + self.tree.evictable_rows:
                self._hold(request, None, 0)
                break
            self._make_room(missing)
            request.slots = [*match.slots, *self.pool.take(missing)]
            request.admitted(hit, match.generated)
            request.state = State.RUNNING if missing == 1 else State.PREFILLING
            self.waiting.remove(request)
            insort(self.active, request, key=_arrival)
            if request.state is State.RUNNING:
                ready.append(request)
        return ready

    def _prefilled_meanwhile(self, request: Request) -> int:
        """The most leading rows of a request that another is about to have written and will share."""
        return max((request.chain.shared(r.chain) for r in self.active if r.state is State.PREFILLING), default=0)

    def _cut_chunks(self) -> list[Chunk]:
        budget = self._chunk_rows
        chunks: list[Chunk] = []
        for request in self.active:
            if request.state is State.PREFILLING and budget:
                end = min(request.rows, request.written + budget)
                chunks.append(Chunk(request, request.written, end))
                budget -= end - request.written
        return chunks

    def _make_room(self, rows: int) -> bool:
        """Have ``rows`` slots free, evicting as needed; False when the tree cannot give enough."""
        self.pool.give(self.tree.evict(rows - self.pool.free))
        return self.pool.free >= rows

    def _hold(self, request: Request, node: Node | None, shared: int) -> None:
        """Lock the tree's node a request stands on, and unlock the one before."""
        if node is not None:
            self.tree.lock(node)
        if request.node is not None:
            self.tree.unlock(request.node)
        request.node, request.shared = node, shared

    def _store(self, request: Request) -> None:
        """Hand a request's written rows to the tree; where it has them already, the request takes over its slots."""
        if not self._cache:
            return
        found = self.tree.insert(request.chain, request.written, request.slots)
        self.pool.give(request.slots[request.shared : found.known])
        request.slots[: request.written] = self.tree.path(found.node)
        self._hold(request, found.node, request.written)

    def _release(self, request: Request) -> None:
        request.computed = max(request.computed, request.written)
        self.pool.give(request.slots[request.shared :])
        self._hold(request, None, 0)
        request.slots, request.written = [], 0
        self.active.remove(request)


def _arrival(request: Request) -> int:
    return request.order
