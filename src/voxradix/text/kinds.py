"""Which front end a voice asks for."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from voxradix.errors import VoxradixError
from voxradix.text.front_end import FrontEnd
from voxradix.text.plain import PlainFrontEnd
from voxradix.text.words import WordsFrontEnd


def front_end(config: Mapping[str, object], vocabulary: Collection[str]) -> FrontEnd:
    """The front end a voice asks for in its `front_end` settings; VoxradixError when they make no sense."""
    kind = config.get("kind")
    if kind == "plain":
        return PlainFrontEnd()
    if kind != "words":
        raise VoxradixError(f"front_end kind is {kind!r}, expected 'plain' or 'words'")
    marks, max_words, place = config.get("marks"), config.get("max_words"), config.get("place_codebook", 0)
    if not isinstance(marks, int) or not isinstance(max_words, int) or not 1 < max_words < marks:
        raise VoxradixError("front_end needs whole numbers 'marks' and 'max_words', with 1 < max_words < marks")
    if not isinstance(place, int) or place < 0:
        raise VoxradixError(f"front_end place_codebook is {place!r}; it must be the number of a codebook")
    return WordsFrontEnd(vocabulary, marks, max_words, place)
