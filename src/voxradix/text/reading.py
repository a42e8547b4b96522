"""Reading: the words of figures, signs and words, as English says them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

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
      | (?P<figure>\d++)(?P<points>(?:\.\d++)*+)(?P<ordinal>st|nd|rd|th)?(?![a-z])
      | (?P<loose>\d+)
    )
    | (?P<word>[^\W\d_]+(?:'[^\W\d_]+)*)
    | (?P<pause>[,.;:!?()\n\u2013\u2014\u2026])
    | (?P<symbol>[+=*%&\#])
    """,
    re.VERBOSE,
)


def read(text: str) -> Iterator[tuple[list[str], bool]]:
    """The words of each piece of a text, lower case and without accents, and whether the piece is a mere symbol.

    A pause is the word ",". What is neither word, figure, pause nor known symbol is left out.
    """
    decomposed = unicodedata.normalize("NFKD", text.translate(_ALIKE))
    plain = "".join(c for c in decomposed if not unicodedata.combining(c)).lower()
    for piece in _PIECES.finditer(plain):
        yield _read(piece), piece["symbol"] is not None


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
