"""The front end of a voice with a closed vocabulary.

It turns figures into words, spells words it does not know letter by letter, and puts before each word a mark with
its index, by which the model keeps its place: "48 a" becomes "<w0> forty <w1> eight <w2> a <w3> .". The model names
the word it is saying, by its index modulo the marks, in one of its codebooks; so what a frame says is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from voxradix.errors import VoxradixError
from voxradix.piece import End, Piece
from voxradix.text.front_end import Spoken
from voxradix.text.reading import read
from voxradix.text.sentences import split_text

_PAUSE = ","
_STOP = "."
_KNOWN = 4096
"""Pieces whose words are remembered: a long take is read again for each of its parts."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a voice reads.

    Attributes:
        marks: How many marks there are.
        line: The longest line it can say, in words.
        window: The longest line with what was said before it.
        part: The longest part of a text that is spoken in parts.
        place_codebook: The codebook in which the model names the word it is saying.
    """

    marks: int
    line: int
    window: int
    part: int
    place_codebook: int


class WordsFrontEnd:
    """Reads text in the words of a closed vocabulary. The input can not inject marks or special tokens."""

    def __init__(self, vocabulary: Collection[str], reach: Reach) -> None:
        """A front end over a voice's tokens."""
        self._vocabulary = frozenset(vocabulary)
        self._reach = reach
        self._known_line = lru_cache(_KNOWN)(lambda text: tuple(self._line(text, [])))

    def spoken(self, text: str, behind: Sequence[Piece] = ()) -> Spoken:
        """Marked words; VoxradixError when nothing in `text` can be said or when it is too long.

        Of what is behind, as many words go before as the window holds, and the frames that say them.
        The mark that ended a piece becomes a pause, and the frame that said it is left out: after it the model would
        stop.
        """
        unknown: list[str] = []
        new = self._line(text, unknown)
        if not new:
            raise VoxradixError(f"there is nothing this voice can say in {text!r}")
        if len(new) > self._reach.line:
            raise VoxradixError(f"the text is {len(new)} words long; this voice says up to {self._reach.line}")
        before = [word for piece in behind for word in self._piece(piece)]
        first = min(max(len(before) + len(new) - self._reach.window, 0), len(before))
        while first < len(before) and before[first] == _PAUSE:
            first += 1
        return Spoken(
            marked([*before[first:], *new, _STOP], self._reach.marks, first),
            tuple(unknown),
            self._frames(behind, first) if first < len(before) else None,
        )

    def split(self, text: str, behind: Sequence[Piece] = ()) -> list[str]:
        """The text whole while it makes one line; else sentences, as many together as a part holds."""

        def length(part: str) -> int:
            return len(self._line(part, []))

        if length(text) <= (self._reach.part if behind else self._reach.line):
            return [text]
        if any(length(word) > self._reach.part for word in text.split()):
            # a long figure, cut, would be read as other figures: its words are split instead
            text = " ".join(self._line(text, [])).replace(f" {_PAUSE}", _PAUSE)
        return split_text(text, length, self._reach.part)

    def cut(self, behind: Sequence[Piece], piece: Piece, frames: int) -> Piece:
        """The frames, with the words until the one that the last of them says."""
        words = self._said(piece)
        first = sum(len(self._piece(p)) for p in behind)
        word = int(self._index(piece, first)[frames - 1]) - first
        if word >= len(words):
            return Piece(piece.text, piece.rows[:frames], piece.end if piece.end is End.CUT else End.ENDED)
        return Piece(" ".join(words[: word + 1]), piece.rows[:frames], End.CUT)

    def _frames(self, behind: Sequence[Piece], first: int) -> Tensor:
        """The frames behind from the first that says word ``first`` on, without those that say the end of a piece."""
        kept: list[Tensor] = []
        start = 0
        for piece in behind:
            begin, start = start, start + len(self._piece(piece))
            if start <= first:
                continue
            words = len(self._said(piece))
            index = self._index(piece, begin)
            if piece.end is not End.CUT:
                index = index[: int((index < begin + words).sum())]
            skip = int((index < first).sum())
            kept.append(piece.rows[skip : len(index)])
        return torch.cat(kept)

    def _index(self, piece: Piece, first: int) -> Tensor:
        """The index of the word each frame says, int64 [F], for a piece whose first word has index ``first``.

        It never goes back: a model that names an earlier word, or one far ahead, is taken not to have moved.
        """
        words = len(self._said(piece))
        steps = (piece.codes[:, self._reach.place_codebook] - first) % self._reach.marks
        return first + torch.where(steps <= words, steps, 0).cummax(0).values

    def _piece(self, piece: Piece) -> list[str]:
        """The words of a piece, with the pause that stands for its end."""
        words = self._said(piece)
        return words if piece.end is End.CUT else [*words, _PAUSE]

    def _said(self, piece: Piece) -> list[str]:
        words = list(self._known_line(piece.text))
        if piece.end is End.CUT and piece.text.endswith(_PAUSE):
            words.append(_PAUSE)
        return words

    def _line(self, text: str, unknown: list[str]) -> list[str]:
        """The words of `text`, with single pauses between them."""
        words: list[str] = []
        for word in self._words(text, unknown):
            if word != _PAUSE or (words and words[-1] != _PAUSE):
                words.append(word)
        if words and words[-1] == _PAUSE:
            words.pop()
        return words

    def _words(self, text: str, unknown: list[str]) -> Iterator[str]:
        """The words and pauses of `text`, in the vocabulary; what is outside it is added to `unknown`."""
        for words, symbol in read(text):
            for word in words:
                if word in self._vocabulary:
                    yield word
                elif not symbol:
                    unknown.append(word)
                    yield from (letter for letter in word if letter in self._vocabulary and letter.isalpha())


def marked(words: Sequence[str], marks: int, first: int = 0) -> str:
    """The words, each after its mark `<wN>`; N counts from `first` and starts over at `marks`."""
    return " ".join(f"<w{(first + i) % marks}> {word}" for i, word in enumerate(words))
