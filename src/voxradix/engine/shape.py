"""The shape of a decode step: all that the host decides about it beforehand."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from voxradix.engine.request import Request
from voxradix.models.moss_local import BLOCK, padded

BATCHES = (4, 8, 12, 16, 24, 32, 48, 64)
"""The batches that steps are captured for; a smaller one is padded, a larger one is never captured."""

_NARROWEST = 32
"""Draws are at least this wide, unless nothing is drawn, or there are fewer values."""


@dataclass(frozen=True, slots=True)
class StepShape:
    """What sets the operators of a step and the sizes of their tensors. Steps of one shape differ in values alone.

    Attributes:
        batch: Rows, padding included.
        context: Slots a row may look at, a multiple of `BLOCK`.
        stop_width: `DrawTable.widest` of the stop decisions.
        code_width: `DrawTable.widest` of the codes.
        penalised: Whether a request has a repetition penalty.
    """

    batch: int
    context: int
    stop_width: int
    code_width: int
    penalised: bool

    @classmethod
    def of(cls, requests: Sequence[Request], codes: int, longest: int) -> StepShape:
        """The shape that some requests' newest rows fit in.

        ``codes`` are the values of a code; ``longest``, a multiple of `BLOCK`, is where every context ends.
        """
        count = len(requests)
        return cls(
            batch=BATCHES[bisect_left(BATCHES, count)] if count <= BATCHES[-1] else padded(count),
            context=min(_power_of_two(max(BLOCK, *(len(request.slots) for request in requests))), longest),
            stop_width=_wide(max(request.sampling.stop.width(2) for request in requests), 2),
            code_width=_wide(max(request.sampling.codes.width(codes) for request in requests), codes),
            penalised=any(request.seen is not None for request in requests),
        )

    @property
    def captured(self) -> bool:
        """Whether steps of this shape are captured at all."""
        return self.batch <= BATCHES[-1]


def _wide(width: int, size: int) -> int:
    return min(_power_of_two(max(width, _NARROWEST)), size) if width else 0


def _power_of_two(least: int) -> int:
    """The lowest power of two not below a positive number."""
    return 1 << (least - 1).bit_length()
