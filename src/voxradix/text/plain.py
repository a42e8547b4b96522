"""The front end of a voice that reads text as it is written."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import torch

from voxradix.errors import VoxradixError
from voxradix.piece import End, Piece
from voxradix.text.front_end import Spoken
from voxradix.text.sentences import split_text

WINDOW = 1200
"""Characters a voice is given at once: about 80 s of English, a fifth of the released model's 4096 frames."""

_WORD_END = re.compile(r"\s|$")
_LONGEST_WORD = 20


class PlainFrontEnd:
    """Leaves the text as it is."""

    def spoken(self, text: str, behind: Sequence[Piece] = ()) -> Spoken:
        """`text` unchanged, after the transcript of the last pieces; VoxradixError when it is blank."""
        if not text.strip():
            raise VoxradixError("there is no text to speak")
        window: list[Piece] = []
        for piece in reversed(behind):
            if window and sum(len(p.text) for p in window) + len(piece.text) + len(text) > WINDOW:
                break
            window.insert(0, piece)
        transcript = ""
        for part in [*(piece.text for piece in window), text]:
            transcript += _gap(transcript) + part
        return Spoken(transcript, frames=torch.cat([piece.rows for piece in window]) if window else None)

    def split(self, text: str, behind: Sequence[Piece] = ()) -> list[str]:
        """The text whole while the window holds it alone; else sentences, as many together as half a window holds."""
        if len(text) <= (WINDOW // 2 if behind else WINDOW):
            return [text]
        return split_text(text, lambda part: len(part.strip()), WINDOW // 2)

    def cut(self, behind: Sequence[Piece], piece: Piece, frames: int) -> Piece:
        """The frames, with the share of the text they are of the whole, to the end of a word."""
        if piece.end is End.OPEN:
            raise VoxradixError(
                "the take stops before its text does, so what it says until there cannot be known; name it: "
                f"take.at(frames={frames}, said=…), or --said on the command line"
            )
        if frames == len(piece.rows):
            return piece
        at = -(-len(piece.text) * frames // len(piece.rows))
        word_end = _WORD_END.search(piece.text, at)
        if word_end is not None and word_end.start() - at <= _LONGEST_WORD:
            at = word_end.start()
        return Piece(piece.text[:at], piece.rows[:frames], End.CUT)


def _gap(text: str) -> str:
    """What stands between a text and the next: a space, but nothing where there is one or a script has none."""
    if not text or text[-1].isspace() or unicodedata.east_asian_width(text[-1]) in "WF":
        return ""
    return " "
