"""A piece: a stretch of speech with the text it says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from torch import Tensor


class End(StrEnum):
    """How a piece ends.

    ENDED: the model ended it; all of its text is said. CUT: it was cut off here, and its text is what is said until
    here. OPEN: it stops before its text does.
    """

    ENDED = "ended"
    CUT = "cut"
    OPEN = "open"


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Frames spoken one after the other.

    Attributes:
        text: What they say, as it was written.
        rows: The frames, int64 [F, C].
        end: How they end.
    """

    text: str
    rows: Tensor
    end: End

    @property
    def codes(self) -> Tensor:
        """The codes, int64 [F, C - 1]."""
        return self.rows[:, 1:]
