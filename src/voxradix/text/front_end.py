"""What every front end does: text into what a voice reads, alone or after audio that exists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from voxradix.piece import Piece


@dataclass(frozen=True, slots=True)
class Spoken:
    """What a voice reads.

    Attributes:
        text: For the tokenizer: the transcript of ``frames``, then the new text.
        unknown: Words of the new text that the voice was not trained to say.
        frames: The audio to go on from, rows int64 [F, C]; None for speech that begins anew.
    """

    text: str
    unknown: tuple[str, ...] = ()
    frames: Tensor | None = None


class FrontEnd(Protocol):
    """Turns a person's text into what a voice reads."""

    def spoken(self, text: str, behind: Sequence[Piece] = ()) -> Spoken:
        """The text, after the last of the pieces ``behind`` it that the voice's window holds.

        Raises `VoxradixError` when there is nothing to say or too much at once.
        """
        ...

    def split(self, text: str, behind: Sequence[Piece] = ()) -> list[str]:
        """The texts, one or more, as which a text is spoken one after the other after what is ``behind``."""
        ...

    def cut(self, behind: Sequence[Piece], piece: Piece, frames: int) -> Piece:
        """The first ``frames`` (at least one) of a piece that follows ``behind``, with the text they say.

        Raises `VoxradixError` when that cannot be known.
        """
        ...
