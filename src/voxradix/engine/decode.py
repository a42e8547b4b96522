"""The decode step: one frame for every seat of a batch, on the device from its first operator to its last."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from voxradix.engine.shape import StepShape
from voxradix.engine.state import StatePool
from voxradix.keys import RowPublisher
from voxradix.models.moss_local import Frames, KVStore, MossLocal

NOT_FINITE = -1
"""The id published for a row whose hidden state or logits were not finite: outside every vocabulary."""


@dataclass(frozen=True, slots=True)
class Made:
    """The frames of a batch: rows int64 [B, C], packed rows int64 [B, words], ids int64 [B] (see `StepOutput`)."""

    rows: Tensor
    packed: Tensor
    ids: Tensor

    @classmethod
    def of(cls, frames: Frames, publish: RowPublisher) -> Made:
        """What is published of decoded frames."""
        made = publish(frames.stop, frames.codes)
        return cls(made.rows, made.packed, torch.where(frames.finite, made.keys, NOT_FINITE))

    def first(self, count: int) -> Made:
        """The first ``count`` rows, on their way to the host: there once the device has come so far."""
        return Made(*(part[:count].to("cpu", non_blocking=True) for part in (self.rows, self.packed, self.ids)))

    @classmethod
    def joined(cls, batches: list[Made]) -> Made:
        """The rows of one or more batches, one after the other, in memory that no later step overwrites."""
        return cls(
            torch.cat([made.rows for made in batches]),
            torch.cat([made.packed for made in batches]),
            torch.cat([made.ids for made in batches]),
        )


class DecodeStep:
    """Writes the newest row of every seat of a batch, decodes the next, and leaves the seats one row further.

    It reads nothing on the host, and what it does is set by its shape alone: it can be captured.
    """

    def __init__(self, model: MossLocal, kv: KVStore, state: StatePool, publish: RowPublisher) -> None:
        """A step of a model over a KV store and a state pool; ``publish`` writes and keys the rows."""
        self._model = model
        self._kv = kv
        self._state = state
        self._publish = publish

    def __call__(self, shape: StepShape, seats: Tensor, slots: Tensor) -> Made:
        """Run one step for seats int64 [shape.batch] whose newest rows go to slots int64 [shape.batch]."""
        state = self._state
        place = state.place(seats, slots, shape.context)
        hidden = self._model.hidden(state.rows.index_select(0, seats), place, self._kv)
        frames = self._model.frames(hidden, state.chooser(seats, shape))
        made = Made.of(frames, self._publish)
        state.advance(seats, made.rows, frames.codes, shape)
        return made
