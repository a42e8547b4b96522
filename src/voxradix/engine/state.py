"""The state pool: what a decode step needs to know of each request, on the device, one seat each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from voxradix.engine.chooser import BatchChooser, Penalties
from voxradix.engine.request import Request, State
from voxradix.engine.shape import StepShape
from voxradix.models.moss_local import BLOCK, MossLocal, Placement
from voxradix.sampling import GREEDY, DrawTable, uniforms


class StatePool:
    """Seats for the requests that decode, and one more, ``padding``, for rows of a batch that are nobody's.

    A seat is written once, when its request begins to decode; from then on the step itself advances it, on the
    device. It belongs to one admission of a request, so a retraction ends it.

    Attributes:
        rows: int64 [seats + 1, C], each request's newest row, which the next step writes.
        positions: int64 [seats + 1], that row's index in its sequence.
        context: int64 [seats + 1, L], the slots of the rows before it, then the null slot.
        longest: L, a multiple of `BLOCK`.
        padding: The seat of padding rows; it stays at position 0.
    """

    def __init__(self, model: MossLocal, seats: int, longest: int, null: int) -> None:
        """A pool of ``seats`` empty seats for sequences of up to ``longest`` rows, padded with the slot ``null``."""
        device, layout, size = model.device, model.layout, model.config.codebook_size
        every = seats + 1

        def column(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(every, *shape, dtype=dtype, device=device)

        self.rows = column(layout.columns)
        self.positions = column()
        self.context = column(-(-longest // BLOCK) * BLOCK).fill_(null)
        self.longest = self.context.shape[1]
        self.padding = seats
        self._first_draws = column()  # of a sequence whose every row were a frame: a draw is this plus the position
        self._seeds = column()
        self._stops = DrawTable.of([GREEDY.stop] * every, 2, device)
        self._codes = DrawTable.of([GREEDY.codes] * every, size, device)
        self._seen = column(layout.codebooks, size, dtype=torch.bool)
        self._strength = column(1, dtype=torch.float32).fill_(1.0)
        self._channels = torch.arange(layout.codebooks, device=device)
        self._true = torch.ones((), dtype=torch.bool, device=device)
        self._size = size
        self._null = null
        self._seats: dict[tuple[Request, int], int] = {}

    def seat(self, requests: Sequence[Request]) -> list[int]:
        """The seats of the requests that decode now. Those who are new take one; all others lose theirs."""
        stays = [(request, request.admissions) for request in requests]
        self._seats = {stay: self._seats[stay] for stay in stays if stay in self._seats}
        free = iter(sorted(set(range(self.padding)).difference(self._seats.values())))
        for stay in stays:
            if stay not in self._seats:
                seat = next(free)
                self._write(seat, stay[0])
                self._seats[stay] = seat
        return [self._seats[stay] for stay in stays]

    def _write(self, seat: int, request: Request) -> None:
        newest = request.rows - 1
        self.rows[seat] = request.rows_between(newest, request.rows)[0]
        self.positions[seat] = newest
        self.context[seat] = self._null
        self.context[seat, :newest] = torch.tensor(request.slots[:newest], dtype=torch.int64)
        self._first_draws[seat] = request.next_draw - newest
        self._seeds[seat] = request.seed
        self._stops.put(seat, request.sampling.stop, 2)
        self._codes.put(seat, request.sampling.codes, self._size)
        self._strength[seat] = request.sampling.repetition_penalty
        if request.seen is not None:
            self._seen[seat] = request.seen

    def place(self, seats: Tensor, slots: Tensor, context: int) -> Placement:
        """Give the newest rows of int64 [B] seats their slots, int64 [B]; where they stand, ``context`` slots wide."""
        positions = self.positions.index_select(0, seats)
        self.context.index_put_((seats, positions), slots)
        return Placement(positions[:, None], slots, self.context[:, :context].index_select(0, seats))

    def chooser(self, seats: Tensor, shape: StepShape) -> BatchChooser:
        """What draws the next frames of int64 [B] seats; before `advance`."""
        draws = self.positions.index_select(0, seats) + self._first_draws.index_select(0, seats)
        penalties = None
        if shape.penalised:
            penalties = Penalties(self._seen.index_select(0, seats), self._strength.index_select(0, seats))
        return BatchChooser(
            stops=self._stops.at(seats, shape.stop_width),
            codes=self._codes.at(seats, shape.code_width),
            uniforms=uniforms(self._seeds.index_select(0, seats), draws, self.rows.shape[1]),
            penalties=penalties,
        )

    def advance(self, seats: Tensor, rows: Tensor, codes: Tensor, shape: StepShape) -> None:
        """Take the frames made for int64 [B] seats: their rows int64 [B, C] and codes int64 [B, codebooks]."""
        self.rows.index_copy_(0, seats, rows)
        self.positions.index_copy_(0, seats, self.positions.index_select(0, seats) + 1)
        self.positions[self.padding].zero_()
        if shape.penalised:
            self._seen.index_put_((seats[:, None], self._channels, codes), self._true)

    def check(self) -> None:
        """Raise `AssertionError` where a seat has two owners or has lost step with its request. For tests."""
        taken = list(self._seats.values())
        assert len(taken) == len(set(taken)) <= self.padding, f"seats {taken} of {self.padding}"
        assert self.padding not in taken and self.positions[self.padding] == 0, "the padding seat is nobody's"
        for (request, admission), seat in self._seats.items():
            if request.state is State.RUNNING and request.admissions == admission:
                newest = request.rows - 1
                assert self.positions[seat] == newest, f"seat {seat} stands at another row than its request"
                assert torch.equal(self.rows[seat], request.rows_between(newest, request.rows)[0]), "another row"
                assert self.context[seat, : request.written].tolist() == request.slots[: request.written], "other slots"
                assert self._first_draws[seat] + newest == request.next_draw, "another draw"
                assert request.seen is None or torch.equal(self._seen[seat], request.seen), "other codes seen"
