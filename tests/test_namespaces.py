"""Namespaces: different lists of parts never share rows."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from voxradix.cache import namespace

parts_of = st.lists(st.binary(max_size=12), max_size=6)


@given(parts_of, parts_of)
def test_no_two_different_lists_of_parts_concatenate_alike(one: list[bytes], other: list[bytes]) -> None:
    assert (namespace(*one) == namespace(*other)) == (one == other)


@given(st.binary(max_size=40), st.lists(st.integers(0, 40), max_size=4), st.lists(st.integers(0, 40), max_size=4))
def test_no_two_cuts_of_the_same_bytes_concatenate_alike(whole: bytes, here: list[int], there: list[int]) -> None:
    one, other = cut(whole, here), cut(whole, there)
    assert (namespace(*one) == namespace(*other)) == (one == other)


@given(parts_of, st.integers(0, 6))
def test_a_part_that_looks_like_several_is_one(parts: list[bytes], at: int) -> None:
    nested = [*parts[:at], namespace(*parts[at:])]
    assert (namespace(*nested) == namespace(*parts)) == (nested == parts)


def cut(whole: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(place, len(whole)) for place in places), len(whole)]
    return [whole[start:end] for start, end in pairwise(edges)]
