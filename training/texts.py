"""What the voice learns to say: its vocabulary, how each word sounds, and random lines of text."""

from __future__ import annotations

import random
from pathlib import Path

from voxradix.text import ONES, TEENS, TENS, number_words

JOINTS = ["hundred", "thousand", "million", "and", "oh", "point", "minus"]
LETTERS = list("abcdefghijklmnopqrstuvwxyz")
ORDINALS = [
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"),
    *("eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth"),
    *("eighteenth", "nineteenth", "twentieth", "thirtieth"),
]
MONTHS = [
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
]
DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
EXTRAS = [
    *("hello", "number", "code", "plus", "times", "equals", "percent", "dollars", "is", "your", "the", "of"),
]
PAUSE = ","
END = "."

WORDS = [*ONES, *TEENS, *TENS, *JOINTS, *LETTERS, *ORDINALS, *MONTHS, *DAYS, *EXTRAS]
VOCABULARY = [END, PAUSE, *WORDS]

# Words whose sound in a line differs from what the teacher's lexicon gives for the bare word.
SOUNDS = {
    "a": "\u02c8A",
    "i": "\u02c8I",
    "and": "ænd",
    "the": "ðə",
    "of": "\u028cv",
    "is": "\u026az",
    "may": "m\u02c8A",
    "z": "z\u02c8i",
}

HELD_OUT = Path(__file__).with_name("held_out.txt")


def held_out() -> list[str]:
    """The 50 test lines, as words: 25 digit strings, then 25 numbers below ten thousand."""
    return HELD_OUT.read_text().splitlines()


def _digits(rng: random.Random, low: int, high: int) -> list[str]:
    zero = rng.choice(["zero", "zero", "oh"])
    words = rng.choices(ONES, k=rng.randint(low, high))
    return [zero if w == "zero" else w for w in words]


def _number(rng: random.Random) -> list[str]:
    return number_words(rng.randrange(10 ** rng.choice([1, 2, 3, 3, 4, 4, 4])), rng.random() < 0.2)


def _grouped(rng: random.Random) -> list[str]:
    words: list[str] = []
    for _ in range(rng.randint(2, 4)):
        words += [*(_digits(rng, 1, 4) if rng.random() < 0.6 else _number(rng)), PAUSE]
    return words[:-1]


def _mixed(rng: random.Random) -> list[str]:
    pool = rng.choice([LETTERS, LETTERS + ONES, ONES + TEENS + TENS + JOINTS, WORDS, WORDS])
    return rng.choices(pool, k=rng.randint(1, 7))


def _phrase(rng: random.Random) -> list[str]:
    day, month = rng.choice(DAYS), rng.choice(MONTHS)
    place = [rng.choice(ORDINALS)]
    ordinal = rng.choice([place, [rng.choice(["twenty", "thirty"]), rng.choice(ORDINALS[:9])]])
    return rng.choice(
        [
            [day, PAUSE, "the", *ordinal, "of", month],
            [month, *ordinal],
            ["the", *ordinal],
            [*_number(rng), "point", *_digits(rng, 1, 3)],
            ["minus", *_number(rng)],
            [*_number(rng), rng.choice(["plus", "minus", "times"]), *_number(rng), "equals", *_number(rng)],
            ["hello", PAUSE, "your", "code", "is", *_digits(rng, 3, 6)],
            ["your", "number", "is", *_number(rng)],
            [*_number(rng), rng.choice(["percent", "dollars"])],
            [*_number(rng), "million", *_number(rng), "thousand", *_number(rng)],
            ["number", *_number(rng), PAUSE, *rng.choices(LETTERS, k=rng.randint(1, 4))],
        ]
    )


def lines(count: int, seed: int) -> list[list[str]]:
    """`count` different random lines, each a list of vocabulary words without the end mark; none is held out."""
    rng = random.Random(seed)
    kinds = [lambda r: _digits(r, 1, 12), _number, _grouped, _mixed, _phrase]
    seen = set(held_out())
    found: list[list[str]] = []
    while len(found) < count:
        words = rng.choices(kinds, weights=[30, 28, 15, 13, 14])[0](rng)
        line = " ".join(words)
        if line not in seen and len(words) <= 30:
            seen.add(line)
            found.append(words)
    return found
