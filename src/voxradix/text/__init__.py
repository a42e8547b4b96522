"""Text front ends: what a person wrote becomes the text that a voice's tokenizer takes."""

from voxradix.text.front_end import FrontEnd, Spoken
from voxradix.text.kinds import front_end
from voxradix.text.plain import PlainFrontEnd
from voxradix.text.reading import ONES, TEENS, TENS, digit_words, number_words, ordinal_words
from voxradix.text.sentences import split_text
from voxradix.text.words import Reach, WordsFrontEnd, marked

__all__ = [
    "ONES",
    "TEENS",
    "TENS",
    "FrontEnd",
    "PlainFrontEnd",
    "Reach",
    "Spoken",
    "WordsFrontEnd",
    "digit_words",
    "front_end",
    "marked",
    "number_words",
    "ordinal_words",
    "split_text",
]
