"""Long texts: split where a speaker pauses, nothing lost; and what a plain reader does with audio behind it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from voxradix import VoxradixError
from voxradix.piece import End, Piece
from voxradix.text import PlainFrontEnd, Reach, WordsFrontEnd, split_text
from voxradix.text.plain import WINDOW

PLAIN = PlainFrontEnd()


def piece(text: str, frames: int, end: End = End.ENDED) -> Piece:
    return Piece(text, torch.arange(frames * 3).reshape(frames, 3), end)


@given(st.text(alphabet="ab1 .,!?;:\n\u3002\u201d", max_size=200), st.integers(1, 20))
def test_no_part_is_too_long_and_nothing_but_blanks_is_lost(text: str, most: int) -> None:
    parts = split_text(text, len, most)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(len(part) <= most for part in parts)


@given(st.text(alphabet="ab .,!?\n", max_size=200))
def test_parts_that_measure_nothing_stay_with_their_neighbour(text: str) -> None:
    def letters(part: str) -> int:
        return sum(c.isalpha() for c in part)

    parts = split_text(text, letters, 10)
    assert all(letters(part) for part in parts) or len(parts) == 1


@pytest.mark.parametrize(
    ("text", "most", "parts"),
    [
        ("One two. Three four! Five?", 10, ["One two.", "Three", "four!", "Five?"]),
        ("One two. Three four! Five?", 12, ["One two.", "Three four!", "Five?"]),
        ("One two. Three four! Five?", 22, ["One two. Three four!", "Five?"]),
        ("It is 3.5, she said.", 12, ["It is 3.5,", "she said."]),
        ('He said "No." Then he left.', 14, ['He said "No."', "Then he left."]),
        ("\u4f60\u597d\u3002\u518d\u89c1\u3002", 3, ["\u4f60\u597d\u3002", "\u518d\u89c1\u3002"]),
        ("one\n\ntwo", 5, ["one", "two"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("", 3, [""]),
    ],
)
def test_sentences_then_clauses_then_words_then_characters(text: str, most: int, parts: list[str]) -> None:
    assert split_text(text, len, most) == parts


def test_a_plain_text_goes_after_the_transcripts_that_the_window_holds() -> None:
    behind = [piece("One.", 3), piece("Two.", 4)]
    spoken = PLAIN.spoken("Three.", behind)
    assert spoken.text == "One. Two. Three." and spoken.frames is not None
    assert torch.equal(spoken.frames, torch.cat([p.rows for p in behind]))
    long = piece("x" * (WINDOW - 5), 5)
    spoken = PLAIN.spoken("Three.", [*behind, long])
    assert spoken.text == long.text + " Three." and spoken.frames is not None and len(spoken.frames) == 5
    assert PLAIN.spoken("Three.").frames is None
    assert PLAIN.spoken("b", [piece("\u597d\u3002", 1)]).text == "\u597d\u3002b"
    with pytest.raises(VoxradixError, match="no text"):
        PLAIN.spoken(" \n", behind)


def test_a_plain_text_is_split_when_it_is_longer_than_the_window() -> None:
    text = "A sentence of some length. " * 60
    parts = PLAIN.split(text)
    assert len(parts) == 3 and all(len(part) <= WINDOW // 2 for part in parts)
    assert " ".join(parts) == text.strip()
    assert PLAIN.split("x" * WINDOW) == ["x" * WINDOW]
    assert len(PLAIN.split("x " * (WINDOW // 2), [piece("One.", 3)])) == 2


def test_a_plain_piece_is_cut_at_its_share_of_the_text_to_the_end_of_a_word() -> None:
    whole = piece("four eight one five", 20)
    assert [PLAIN.cut([], whole, n).text for n in (1, 4, 5, 10, 19)] == [
        "four",
        "four",
        "four eight",
        "four eight",
        "four eight one five",
    ]
    cut = PLAIN.cut([], whole, 10)
    assert cut.end is End.CUT and torch.equal(cut.rows, whole.rows[:10])
    assert PLAIN.cut([], whole, 20) is whole
    assert PLAIN.cut([], piece("\u4f60" * 100, 10), 1).text == "\u4f60" * 10
    with pytest.raises(VoxradixError, match=r"cannot be known; name it: take\.at\(frames=3, said="):
        PLAIN.cut([], piece("four eight", 5, End.OPEN), 3)


WORDS = WordsFrontEnd(
    ["one", "two", "three", "four", ",", "."], Reach(marks=8, line=6, window=6, part=3, place_codebook=1)
)


def reading(text: str, places: list[int], end: End = End.ENDED) -> Piece:
    """A piece whose frames name these places in their second codebook."""
    rows = torch.zeros(len(places), 4, dtype=torch.int64)
    rows[:, 0] = torch.arange(len(places))
    rows[:, 2] = torch.tensor(places, dtype=torch.int64)
    return Piece(text, rows, end)


def test_words_keep_their_marks_over_pieces_and_the_frame_that_ends_one_is_left_out() -> None:
    behind = [reading("one two", [0, 0, 1, 1, 2])]
    spoken = WORDS.spoken("three", behind)
    assert spoken.text == "<w0> one <w1> two <w2> , <w3> three <w4> ."
    assert spoken.frames is not None and spoken.frames[:, 0].tolist() == [0, 1, 2, 3]


def test_words_and_frames_outside_the_window_go_together() -> None:
    behind = [reading("one two", [0, 0, 1, 2]), reading("three four", [3, 4, 4, 5])]
    spoken = WORDS.spoken("one two", behind)  # six words: one , two | three four , one two
    assert spoken.text == "<w3> three <w4> four <w5> , <w6> one <w7> two <w0> ."
    assert spoken.frames is not None and spoken.frames[:, 0].tolist() == [0, 1, 2]
    spoken = WORDS.spoken("one two three four one", behind)
    assert spoken.text.startswith("<w6> one") and spoken.frames is None, "a pause alone is no context"


def test_a_cut_piece_says_the_words_until_the_one_its_last_frame_names() -> None:
    whole = reading("one, two", [0, 1, 1, 2, 3])
    assert [WORDS.cut([], whole, n).text for n in range(1, 6)] == ["one", "one ,", "one ,", "one , two", "one, two"]
    assert [WORDS.cut([], whole, n).end for n in range(1, 6)] == [End.CUT] * 4 + [End.ENDED]
    cut = WORDS.cut([], whole, 3)
    assert WORDS.spoken("three", [cut]).text == "<w0> one <w1> , <w2> three <w3> .", "no second pause"
    later = reading("one two", [6, 6, 7, 0])
    behind = [reading("one two three four one", [0])]
    assert [WORDS.cut(behind, later, n).text for n in (1, 2, 3, 4)] == ["one", "one", "one two", "one two"]


def test_a_place_that_jumps_does_not_move_the_reader() -> None:
    assert WORDS.cut([], reading("one two three", [0, 7, 1, 0, 1]), 5).text == "one two"


def test_lines_are_halved_when_something_is_behind() -> None:
    assert WORDS.split("one two. three four.") == ["one two. three four."]
    assert WORDS.split("one two. three four. one") == ["one two.", "three four.", "one"]
    assert WORDS.split("one two. three", behind=[reading("one", [0])]) == ["one two.", "three"]
    assert WORDS.split("one two three four one two three") == ["one two three", "four one two", "three"]
