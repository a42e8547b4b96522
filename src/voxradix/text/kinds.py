"""Which front end a voice asks for."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from voxradix.errors import VoxradixError
from voxradix.text.front_end import FrontEnd
from voxradix.text.plain import PlainFrontEnd
from voxradix.text.words import Reach, WordsFrontEnd


def front_end(config: Mapping[str, object], vocabulary: Collection[str]) -> FrontEnd:
    """The front end a voice asks for in its `front_end` settings; VoxradixError when they make no sense."""
    kind = config.get("kind")
    if kind == "plain":
        return PlainFrontEnd()
    if kind != "words":
        raise VoxradixError(f"front_end kind is {kind!r}, expected 'plain' or 'words'")
    marks, line = config.get("marks"), config.get("max_words")
    if not isinstance(marks, int) or not isinstance(line, int) or not 1 < line < marks:
        raise VoxradixError("front_end needs whole numbers 'marks' and 'max_words', with 1 < max_words < marks")
    window, part = config.get("window_words", line), config.get("part_words", line // 2)
    if not isinstance(window, int) or not isinstance(part, int) or not 0 < part <= window <= line:
        raise VoxradixError("front_end needs whole numbers with 0 < part_words <= window_words <= max_words")
    place = config.get("place_codebook", 0)
    if not isinstance(place, int) or place < 0:
        raise VoxradixError(f"front_end place_codebook is {place!r}; it must be the number of a codebook")
    return WordsFrontEnd(vocabulary, Reach(marks, line, window, part, place))
