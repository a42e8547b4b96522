"""The outcome of a cell: equal to the reference, or where it first differs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from voxradix.verify.axes import Cell


class Part(StrEnum):
    """What is compared."""

    CODES = "codes"
    NEXT_IDS = "next ids"
    KV = "keys and values"


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where one part of one request differs.

    Attributes:
        part: What differs.
        request: The number of the request.
        frame: The number of the frame; the prompt's rows are those below 0, its last one -1.
        channel: The column of the row; for an id 0; else the place among the row's keys, then values.
        expected: The reference's value, None beyond its end.
        made: The cell's.
    """

    part: Part
    request: int
    frame: int
    channel: int
    expected: float | None
    made: float | None

    def __str__(self) -> str:
        """The place and both values."""
        place = f"(request {self.request}, frame {self.frame}, channel {self.channel})"
        return f"{self.part} differ at {place}: {_shown(self.made)}, expected {_shown(self.expected)}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a cell came to.

    Attributes:
        cell: The cell.
        differences: The first difference of each part that differs, the earliest first.
        error: What went wrong, when the cell could not be run to its end.
        reused: Prompt rows found in the cache, all requests together.
        retractions: How often requests lost their slots.
        graphs: Decode steps that were captured.
    """

    cell: Cell
    differences: tuple[Difference, ...] = ()
    error: str | None = None
    reused: int = 0
    retractions: int = 0
    graphs: int = 0

    @property
    def equal(self) -> bool:
        """Whether the cell ran to its end and everything is equal to the reference, bit for bit."""
        return not self.differences and self.error is None

    def __str__(self) -> str:
        """The cell and its result in one line."""
        if self.equal:
            return f"{self.cell}  equal; reused {self.reused}, retracted {self.retractions}, captured {self.graphs}"
        if self.error is not None:
            return f"{self.cell}  FAIL: {self.error}"
        also = "".join(f"; {other.part} differ too" for other in self.differences[1:])
        return f"{self.cell}  FAIL: {self.differences[0]}{also}"


def first_difference(part: Part, request: int, expected: Tensor, made: Tensor, first: int = 0) -> Difference | None:
    """The first place where two tensors [N, W] differ in a bit or end; their row 0 is frame ``first``."""
    common = min(expected.shape[0], made.shape[0])
    differing = _bits(expected[:common]) != _bits(made[:common])
    if differing.any():
        row, channel = differing.nonzero()[0].tolist()
    elif expected.shape[0] != made.shape[0]:
        row, channel = common, 0
    else:
        return None
    values = (values[row, channel].item() if row < values.shape[0] else None for values in (expected, made))
    return Difference(part, request, row + first, channel, *values)


def _bits(values: Tensor) -> Tensor:
    return values.view(torch.int32) if values.is_floating_point() else values


def _shown(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.9g}" if isinstance(value, float) else str(value)
