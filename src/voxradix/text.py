"""Text front ends: what a person wrote becomes the text that a voice's tokenizer takes.

`plain` hands the text on as it is. `words` serves a voice with a closed vocabulary: it turns figures into
words, spells words it does not know letter by letter, and puts before each word a mark with its index, by which
the model keeps its place: "48 a" becomes "<w0> forty <w1> eight <w2> a <w3> .".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from voxradix.errors import VoxradixError

ONES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TEENS = [
    *("ten", "eleven", "twelve", "thirteen", "fourteen"),
    *("fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
SYMBOLS = {"+": "plus", "=": "equals", "*": "times", "%": "percent", "&": "and", "#": "number"}
IRREGULAR_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_NUMBER_FIGURES = 4  # without separators, more figures than these are read one by one
_LARGEST_FIGURES = 9  # with separators

_ALIKE = str.maketrans("\u2019\u2212\u00d7", "'-*")  # right quote, minus sign, times sign

_PIECES = re.compile(
    r"""
    (?P<money>\$(?=\d))?
    (?P<minus>(?<![\w.])-(?=\d))?
    (?: (?P<groups>\d+(?:-\d+)+)
      | (?P<commas>\d{1,3}(?:,\d{3})+(?!\d))(?P<decimals>(?:\.\d+)?)
      | (?P<figure>\d+)(?P<points>(?:\.\d+)*)(?P<ordinal>st|nd|rd|th)?(?![a-z])
      | (?P<loose>\d+)
    )
    | (?P<word>[^\W\d_]+(?:'[^\W\d_]+)*)
    | (?P<pause>[,.;:!?()\n\u2013\u2014\u2026])
    | (?P<symbol>[+=*%&\#])
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Spoken:
    """`text` for the tokenizer, and the `unknown` words of the input, which the voice was not trained to say."""

    text: str
    unknown: tuple[str, ...]


class FrontEnd(Protocol):
    """Turns a person's text into what a voice reads."""

    def spoken(self, text: str) -> Spoken:
        """The text to tokenize; VoxradixError (a ValueError) when there is nothing to say."""
        ...


class PlainFrontEnd:
    """Leaves the text as it is."""

    def spoken(self, text: str) -> Spoken:
        """`text` unchanged; VoxradixError when it is blank."""
        if not text.strip():
            raise VoxradixError("there is no text to speak")
        return Spoken(text, ())


class WordsFrontEnd:
    """Reads text in the words of a closed vocabulary. The input can not inject marks or special tokens."""

    def __init__(self, vocabulary: Collection[str], marks: int, max_words: int) -> None:
        """Take the voice's tokens, the number of its marks, and the longest line it can say, in words."""
        self._vocabulary = frozenset(vocabulary)
        self._marks = marks
        self._max_words = max_words

    def spoken(self, text: str) -> Spoken:
        """Marked words; VoxradixError when nothing in `text` can be said or when it is too long."""
        unknown: list[str] = []
        words: list[str] = []
        for word in self._words(text, unknown):
            if word != "," or (words and words[-1] != ","):
                words.append(word)
        if words and words[-1] == ",":
            words.pop()
        if not words:
            raise VoxradixError(f"there is nothing this voice can say in {text!r}")
        if len(words) > self._max_words:
            raise VoxradixError(f"the text is {len(words)} words long; this voice says up to {self._max_words}")
        return Spoken(marked([*words, "."], self._marks), tuple(unknown))

    def _words(self, text: str, unknown: list[str]) -> Iterator[str]:
        """The words and pauses of `text`, in the vocabulary; what is outside it is added to `unknown`."""
        decomposed = unicodedata.normalize("NFKD", text.translate(_ALIKE))
        plain = "".join(c for c in decomposed if not unicodedata.combining(c)).lower()
        for piece in _PIECES.finditer(plain):
            for word in _read(piece):
                if word in self._vocabulary:
                    yield word
                elif piece["symbol"] is None:
                    unknown.append(word)
                    yield from (letter for letter in word if letter in self._vocabulary and letter.isalpha())


def front_end(config: Mapping[str, object], vocabulary: Collection[str]) -> FrontEnd:
    """The front end a voice asks for in its `front_end` settings; VoxradixError when they make no sense."""
    kind = config.get("kind")
    if kind == "plain":
        return PlainFrontEnd()
    if kind != "words":
        raise VoxradixError(f"front_end kind is {kind!r}, expected 'plain' or 'words'")
    marks, max_words = config.get("marks"), config.get("max_words")
    if not isinstance(marks, int) or not isinstance(max_words, int) or not 0 < max_words < marks:
        raise VoxradixError("front_end needs whole numbers 'marks' and 'max_words', with 0 < max_words < marks")
    return WordsFrontEnd(vocabulary, marks, max_words)


def marked(words: Sequence[str], marks: int, first: int = 0) -> str:
    """The words, each after its mark `<wN>`; N counts from `first` and starts over at `marks`."""
    return " ".join(f"<w{(first + i) % marks}> {word}" for i, word in enumerate(words))


def number_words(number: int, joiner: bool = False) -> list[str]:
    """English words for 0 <= `number` <= 999 999 999; `joiner` says "and" before what follows a hundred."""
    if number < 20:
        return [(ONES + TEENS)[number]]
    if number < 100:
        return [TENS[number // 10 - 2], *(number_words(number % 10) if number % 10 else [])]
    unit, name = next(u for u in ((10**6, "million"), (1000, "thousand"), (100, "hundred")) if u[0] <= number)
    rest = number % unit
    words = [*number_words(number // unit, joiner), name]
    if rest:
        words += [*(["and"] if joiner and rest < 100 else []), *number_words(rest, joiner)]
    return words


def digit_words(figures: str) -> list[str]:
    """The words of `figures`, digit by digit."""
    return [ONES[int(figure)] for figure in figures]


def ordinal_words(number: int) -> list[str]:
    """English words for the place `number` in a row: 21 gives twenty first."""
    *start, last = number_words(number)
    regular = last[:-1] + "ieth" if last.endswith("y") else last + "th"
    return [*start, IRREGULAR_ORDINALS.get(last, regular)]


def _read(piece: re.Match[str]) -> list[str]:
    """The words of one piece of text."""
    if piece["word"] is not None:
        return [piece["word"]]
    if piece["pause"] is not None:
        return [","]
    if piece["symbol"] is not None:
        return [SYMBOLS[piece["symbol"]]]
    if piece["groups"] is not None:
        groups = [digit_words(group) for group in piece["groups"].split("-")]
        words = [word for group in groups for word in [*group, ","]][:-1]
    elif piece["ordinal"] is not None and len(piece["figure"]) <= _NUMBER_FIGURES and not piece["points"]:
        words = ordinal_words(int(piece["figure"]))
    else:
        figures = (piece["commas"] or piece["figure"] or piece["loose"]).replace(",", "")
        most = _LARGEST_FIGURES if piece["commas"] else _NUMBER_FIGURES
        is_number = len(figures) <= most and (figures[0] != "0" or figures == "0")
        words = number_words(int(figures)) if is_number else digit_words(figures)
        for part in (piece["decimals"] or piece["points"] or "").split(".")[1:]:
            words += ["point", *digit_words(part)]
    before = ["minus"] if piece["minus"] else []
    return [*before, *words, *(["dollars"] if piece["money"] else [])]
