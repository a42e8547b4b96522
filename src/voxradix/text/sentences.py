"""Splitting a long text where a speaker would pause."""

from __future__ import annotations

import re
from collections.abc import Callable

_BOUNDARIES = (
    re.compile(r"(?<=[.!?\u2026])[\"'\u201d\u2019)\]]*\s+|(?<=[\u3002\uff01\uff1f])|\n+"),  # sentences
    re.compile(r"(?<=[,;:\u2013\u2014])\s+|(?<=[\uff0c\uff1b\uff1a\u3001])"),  # clauses
    re.compile(r"\s+"),  # words
    re.compile(r"(?<=.)", re.DOTALL),  # characters
)
"""Where a text may be split, the best places first; the escapes are the marks of other scripts."""


def split_text(text: str, measure: Callable[[str], int], most: int) -> list[str]:
    """Split a text at the ends of sentences into parts that measure at most ``most``, each as long as can be.

    A sentence that is longer is split at its clauses, a clause between its words, a word between its characters.
    Parts that measure nothing stay with their neighbour. Nothing but blanks between parts is lost.
    """
    parts: list[str] = []
    open_part = ""
    for atom in _atoms(text, measure, most, 0):
        if measure(atom) and measure(open_part) and measure(open_part + atom) > most:
            parts.append(open_part)
            open_part = ""
        open_part += atom
    return [part.strip() for part in [*parts, open_part]]


def _atoms(text: str, measure: Callable[[str], int], most: int, level: int) -> list[str]:
    """The stretches of a text that stay whole, blanks after each included."""
    if measure(text) <= most or level == len(_BOUNDARIES):
        return [text]
    ends = [match.end() for match in _BOUNDARIES[level].finditer(text)]
    pieces = [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]
    return [atom for piece in pieces if piece for atom in _atoms(piece, measure, most, level + 1)]
