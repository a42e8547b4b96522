"""The text front ends: what is read, what is spelled, and what can not be smuggled in."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxradix.text import ONES, TEENS, TENS, digit_words, front_end, marked, number_words, ordinal_words

VOCABULARY = [
    *(".", ",", *ONES, *TEENS, *TENS, *"abcdefghijklmnopqrstuvwxyz"),
    *("hundred", "thousand", "million", "and", "point", "minus", "plus", "equals", "times", "percent"),
    *("dollars", "number", "first", "second", "third", "fifth", "may", "the", "of"),
]
WORDS = front_end({"kind": "words", "marks": 64, "max_words": 40}, VOCABULARY)


def read(text: str) -> str:
    """What WORDS makes of `text`, without the marks and the end."""
    spoken = re.sub(r"<w\d+> ", "", WORDS.spoken(text).text)
    assert spoken.endswith(" .")
    return spoken[:-2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("4815", "four thousand eight hundred fifteen"),
        ("0421", "zero four two one"),
        ("99999", "nine nine nine nine nine"),
        ("3.5", "three point five"),
        ("1.2.3", "one point two point three"),
        ("-7", "minus seven"),
        ("(\u22127.25)", "minus seven point two five"),
        ("1,234", "one thousand two hundred thirty four"),
        ("12,345,678", "twelve million three hundred forty five thousand six hundred seventy eight"),
        ("1,23", "one , twenty three"),
        ("555-0142", "five five five , zero one four two"),
        ("twenty-one", "twenty one"),
        ("$20 + 3% = #1", "twenty dollars plus three percent equals number one"),
        ("the 21st of May, 2002", "the twenty first of may , two thousand two"),
        ("One... two!\n\nThree?", "one , two , three"),
        ("?! five", "five"),
        ("4x4", "four x four"),
        ("10a 1234b", "ten a one thousand two hundred thirty four b"),
        ("\uff15", "five"),
    ],
)
def test_reads(text: str, words: str) -> None:
    assert read(text) == words
    assert WORDS.spoken(text).unknown == ()


@pytest.mark.parametrize(
    ("text", "words", "unknown"),
    [
        ("Call 5", "c a l l five", ("call",)),
        ("naïve", "n a i v e", ("naive",)),
        ("it\u2019s", "i t s", ("it's",)),
        ("日本 4", "four", ("日本",)),
    ],
)
def test_spells_what_it_does_not_know(text: str, words: str, unknown: tuple[str, ...]) -> None:
    assert read(text) == words
    assert WORDS.spoken(text).unknown == unknown


def test_every_word_carries_its_index() -> None:
    assert WORDS.spoken("4 8").text == "<w0> four <w1> eight <w2> ."
    assert marked(["a", "b", "c"], marks=4, first=2) == "<w2> a <w3> b <w0> c"


@pytest.mark.parametrize("text", ["", "  ", "!?", "日本", "<>|"])
def test_nothing_to_say(text: str) -> None:
    with pytest.raises(ValueError, match="nothing this voice can say"):
        WORDS.spoken(text)


def test_too_long() -> None:
    assert WORDS.spoken("1 " * 40)
    with pytest.raises(ValueError, match="41 words long; this voice says up to 40"):
        WORDS.spoken("1 " * 41)
    with pytest.raises(ValueError, match="9999 words long"):
        WORDS.spoken("1" * 9999)


@given(st.text() | st.from_regex(r"(<w\d+>|<\|im_end\|>|[0-9., -]|\w)+"))
def test_only_vocabulary_and_own_marks_come_out(text: str) -> None:
    try:
        tokens = WORDS.spoken(text).text.split(" ")
    except ValueError:
        return
    assert tokens[::2] == [f"<w{i}>" for i in range(len(tokens) // 2)]
    assert set(tokens[1::2]) <= set(VOCABULARY)
    assert tokens[-1] == "." and tokens[1] not in ",." and tokens.count(".") == 1


def test_plain_leaves_text_alone() -> None:
    plain = front_end({"kind": "plain"}, [])
    assert plain.spoken(" Hi,  5! ").text == " Hi,  5! "
    with pytest.raises(ValueError, match="no text"):
        plain.spoken(" \n")


@pytest.mark.parametrize(
    "config",
    [{}, {"kind": "song"}, {"kind": "words"}, {"kind": "words", "marks": 8, "max_words": 8}],
)
def test_bad_settings(config: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="front_end"):
        front_end(config, VOCABULARY)


def test_number_words() -> None:
    assert number_words(0) == ["zero"]
    assert " ".join(number_words(9999)) == "nine thousand nine hundred ninety nine"
    assert " ".join(number_words(1005, joiner=True)) == "one thousand and five"
    assert " ".join(number_words(1_000_010)) == "one million ten"
    assert digit_words("007") == ["zero", "zero", "seven"]


@pytest.mark.parametrize(
    ("number", "words"),
    [(1, "first"), (12, "twelfth"), (20, "twentieth"), (23, "twenty third"), (100, "one hundredth")],
)
def test_ordinal_words(number: int, words: str) -> None:
    assert " ".join(ordinal_words(number)) == words
