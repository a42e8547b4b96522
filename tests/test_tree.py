"""The radix tree against the plainest cache that could be right: a hit is equal rows, and nothing is lost."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from tests.plain_cache import PlainCache, Rows
from voxradix.cache import Chain, Node, RadixTree, SlotPool
from voxradix.cache import tree as cache_tree
from voxradix.cache.chain import shared_rows

SIZE = 2
HERE = b"here"
KeyOf = Callable[[int], int]


def chain(rows: Rows, key: KeyOf, name: bytes = HERE, given: int | None = None) -> Chain:
    """A chain of rows, the first ``given`` of them given and the others generated."""
    first = len(rows) if given is None else min(given, len(rows))
    made = Chain(SIZE, name)
    made.extend(b"".join(row.to_bytes(SIZE, "big") for row in rows[:first]), [key(row) for row in rows[:first]])
    for row in rows[first:]:
        made.append(row.to_bytes(SIZE, "big"), key(row))
    return made


class Pair:
    """A tree and the plain cache beside it, asked the same."""

    def __init__(self, key: KeyOf, slots: int = 400) -> None:
        self.key = key
        self.tree = RadixTree(SIZE)
        self.pool = SlotPool(slots)
        self.plain = PlainCache()
        self.locks: list[tuple[bytes, Rows, Node]] = []

    def match(self, rows: Rows, name: bytes = HERE, limit: int | None = None) -> int:
        limit = len(rows) if limit is None else limit
        found = self.tree.match(chain(rows, self.key, name), limit)
        expected = self.plain.match(name, rows[:limit])
        assert found.slots.tolist() == [row.slot for row in expected]
        assert found.generated == sum(not row.given for row in expected)
        assert self.tree.path(found.node) == found.slots
        return len(found.slots)

    def insert(self, rows: Rows, name: bytes = HERE, given: int | None = None, limit: int | None = None) -> None:
        length = len(rows) if limit is None else limit
        self.evict(length - self.pool.free)
        if length > self.pool.free:
            return
        slots = self.pool.take(length)
        done = self.tree.insert(chain(rows, self.key, name, given), length, slots)
        known = self.plain.insert(name, rows[:length], len(rows) if given is None else given, slots)
        assert done.known == known
        assert self.tree.path(done.node).tolist() == [row.slot for row in self.plain.longest(name, rows[:length])]
        self.pool.give(slots[:known])

    def pin(self, rows: Rows, name: bytes = HERE) -> None:
        assert self.tree.pin(chain(rows, self.key, name), len(rows)) == self.plain.pin(name, rows)

    def unpin(self, rows: Rows, name: bytes = HERE) -> None:
        self.tree.unpin(chain(rows, self.key, name), len(rows))
        self.plain.unpin(name, rows)

    def lock(self, rows: Rows, name: bytes = HERE) -> None:
        found = self.tree.match(chain(rows, self.key, name), len(rows))
        held = rows[: len(self.plain.match(name, rows))]
        self.tree.lock(found.node)
        self.plain.lock(name, held, +1)
        self.locks.append((name, held, found.node))

    def unlock(self, index: int = 0) -> None:
        if self.locks:
            name, held, node = self.locks.pop(index % len(self.locks))
            self.tree.unlock(node)
            self.plain.lock(name, held, -1)

    def evict(self, rows: int) -> None:
        freed = self.tree.evict(rows)
        assert freed == self.plain.evict(rows)
        self.pool.give(freed)

    def slots(self, rows: Rows) -> list[int]:
        return [row.slot for row in self.plain.longest(HERE, rows)]

    def check(self) -> None:
        """Every row of the tree is the plain cache's, in every respect."""
        self.tree.check()
        assert self.pool.free + self.tree.rows == self.pool.size
        assert self.tree.evictable_rows == sum(not row.locks for row in self.plain.rows.values())
        slots = {row.slot: row for row in self.plain.rows.values()}
        assert len(slots) == len(self.plain.rows) == self.tree.rows
        for node in self.tree.nodes():
            for index, slot in enumerate(node.slots):
                row = slots[slot]
                assert node.order == row.order
                assert (node.hit, node.pins, node.locks) == (row.hit, row.pins, row.locks)
                assert (index < node.given) == row.given


def identity(row: int) -> int:
    return row


def seven(row: int) -> int:
    return 7


def last_bit(row: int) -> int:
    return row & 1


KEYS = pytest.mark.parametrize("key", [identity, last_bit, seven])


def operate(pair: Pair, rng: random.Random, operations: int, check_every: int) -> None:
    """Random operations over few rows, so that chains share, split, clash and come back."""
    for operation in range(operations):
        rows = tuple(rng.choices((0, 1, 2), k=rng.randrange(1, 14)))
        name = rng.choice((HERE, HERE, b"there"))
        limit = rng.randrange(len(rows) + 1)
        match rng.randrange(20):
            case 0 | 1 | 2 | 3 | 4 | 5:
                pair.insert(rows, name, given=rng.randrange(len(rows) + 1))
            case 6:
                pair.insert(rows, name, given=rng.randrange(len(rows) + 1), limit=limit)
            case 7 | 8 | 9 | 10:
                pair.match(rows, name)
            case 11:
                pair.match(rows, name, limit)
            case 12 | 13 if len(pair.locks) < 6:
                pair.lock(rows, name)
            case 12 | 13 | 14 | 15:
                pair.unlock(rng.randrange(6))
            case 16:
                pair.pin(rows, name)
            case 17 | 18:
                pair.unpin(rows, name)
            case _:
                pair.evict(rng.randrange(1, 9))
        if operation % check_every == 0:
            pair.check()
    pair.check()


rows_of = st.lists(st.integers(0, 3), min_size=1, max_size=12).map(tuple)
names = st.sampled_from((HERE, b"there"))


class TreeMachine(RuleBasedStateMachine):
    chains = Bundle("chains")

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(last_bit, slots=60)

    @rule(target=chains, rows=rows_of)
    def new(self, rows: Rows) -> Rows:
        return rows

    @rule(target=chains, start=chains, tail=rows_of)
    def longer(self, start: Rows, tail: Rows) -> Rows:
        return (start + tail)[:30]

    @rule(rows=chains, name=names, given=st.integers(0, 30))
    def insert(self, rows: Rows, name: bytes, given: int) -> None:
        self.pair.insert(rows, name, given)

    @rule(rows=chains, name=names, limit=st.integers(0, 30))
    def match(self, rows: Rows, name: bytes, limit: int) -> None:
        self.pair.match(rows, name, min(limit, len(rows)))

    @rule(rows=chains, name=names)
    def lock(self, rows: Rows, name: bytes) -> None:
        self.pair.lock(rows, name)

    @rule(index=st.integers(0, 5))
    def unlock(self, index: int) -> None:
        self.pair.unlock(index)

    @rule(rows=chains, name=names)
    def pin(self, rows: Rows, name: bytes) -> None:
        self.pair.pin(rows, name)

    @rule(rows=chains, name=names)
    def unpin(self, rows: Rows, name: bytes) -> None:
        self.pair.unpin(rows, name)

    @rule(rows=st.integers(1, 20))
    def evict(self, rows: int) -> None:
        self.pair.evict(rows)

    @invariant()
    def nothing_is_lost(self) -> None:
        self.pair.check()


TestTreeAgainstPlainCache = TreeMachine.TestCase
TestTreeAgainstPlainCache.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@KEYS
def test_tree_and_plain_cache_agree_in_random_operations_whatever_the_key(key: KeyOf) -> None:
    """50,000 operations over the three keys."""
    operate(Pair(key, slots=90), random.Random(5), 16_667, check_every=50)


@pytest.mark.slow
@KEYS
def test_tree_and_plain_cache_agree_in_a_million_random_operations(key: KeyOf) -> None:
    operate(Pair(key, slots=90), random.Random(7), 333_334, check_every=500)


@pytest.mark.parametrize("changed", [0, 4, 9])
def test_no_false_match_when_one_row_differs_under_a_key_that_always_clashes(changed: int) -> None:
    pair = Pair(seven)
    rows = tuple(range(10))
    pair.insert(rows)
    other = tuple(row + 100 if index == changed else row for index, row in enumerate(rows))
    assert pair.match(other) == changed
    pair.insert(other)
    assert pair.match(rows) == pair.match(other) == 10
    pair.check()


def test_the_least_recently_used_leaf_goes_first_its_last_rows_first() -> None:
    pair = Pair(identity)
    pair.insert((1, 2, 3))
    pair.insert((1, 4, 5))
    pair.insert((1, 2, 3))
    one, two, three = pair.slots((1, 2, 3))
    _, four, five = pair.slots((1, 4, 5))
    assert pair.tree.evict(5) == [five, four, three, two, one]


def test_a_new_chain_is_newer_than_what_was_used_before_it() -> None:
    pair = Pair(identity)
    pair.insert((1,))
    pair.insert((1,))
    pair.insert((2,))
    assert pair.tree.evict(1) == pair.slots((1,))


def test_what_nobody_hit_goes_before_what_was_hit_and_pinned_rows_go_last() -> None:
    pair = Pair(identity)
    for rows in ((1,), (2,), (3,)):
        pair.insert(rows)
    pair.pin((1,))
    pair.match((2,))
    pair.insert((3,))
    assert pair.tree.evict(3) == pair.slots((3,)) + pair.slots((2,)) + pair.slots((1,))


def test_a_pin_taken_back_lets_rows_go_in_their_turn() -> None:
    pair = Pair(identity)
    pair.insert((1, 1))
    pair.insert((2, 2))
    pair.pin((1, 1))
    pair.evict(1)
    pair.unpin((1, 1))
    assert pair.match((2, 2)) == 1
    pair.evict(2)
    assert (pair.match((1, 1)), pair.match((2, 2))) == (0, 1)


def test_pins_put_on_and_taken_back_for_ever_do_not_fill_the_queue() -> None:
    pair = Pair(identity)
    pair.insert((1, 2))
    pair.insert((3, 4))
    for _ in range(1000):
        pair.pin((1, 2))
        pair.unpin((1, 2))
    assert len(pair.tree._queue) < 100
    pair.evict(4)
    pair.check()


@pytest.mark.parametrize("chains", [10, 3000])
def test_a_match_compares_as_much_in_a_large_tree_as_in_a_small_one(
    chains: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, calls = RadixTree(SIZE), 0
    for number in range(chains):
        tree.insert(chain((1, 2, number, 3), identity), 4, [0] * 4)

    def counted(*arguments: Any) -> int:
        nonlocal calls
        calls += 1
        return shared_rows(*arguments)

    monkeypatch.setattr(cache_tree, "shared_rows", counted)
    assert len(tree.match(chain((1, 2, 7, 3), identity), 4).slots) == 4
    assert calls == 2, "the rows all share, and the chain's own"


def test_a_locked_prefix_outlives_any_eviction() -> None:
    pair = Pair(identity)
    pair.insert((1, 2, 3, 4))
    pair.lock((1, 2))
    pair.evict(100)
    assert pair.match((1, 2, 3)) == 2
    pair.unlock()
    pair.evict(100)
    assert pair.match((1, 2, 3)) == 0


def test_a_row_keeps_the_origin_it_first_came_with() -> None:
    pair = Pair(identity)
    pair.insert((1, 2, 3, 4), given=2)
    pair.insert((1, 2, 3, 4, 5, 6), given=6)
    asked = chain((1, 2, 3, 4, 5, 6), identity)
    assert pair.tree.match(asked, 6).generated == 2
    assert pair.tree.match(asked, 3).generated == 1
    assert pair.tree.match(asked, 2).generated == 0


def test_rows_of_different_namespaces_never_meet() -> None:
    pair = Pair(identity)
    pair.insert((1, 2, 3))
    assert pair.match((1, 2, 3), b"there") == 0
    pair.insert((1, 2, 3), b"there")
    here, there = (pair.tree.match(chain((1, 2, 3), identity, name), 3).slots for name in (HERE, b"there"))
    assert not set(here) & set(there)


def test_a_namespace_without_rows_leaves_nothing_behind() -> None:
    pair = Pair(identity)
    for number in range(50):
        pair.insert((1, 2), str(number).encode())
        pair.match((1, 2), b"only asked for")
    assert len(pair.tree._roots) == 50
    pair.evict(99)
    assert len(pair.tree._roots) == 1
    pair.evict(1)
    assert not pair.tree._roots and not pair.tree._queue


def test_a_limit_shortens_a_match() -> None:
    pair = Pair(identity)
    pair.insert((1, 2, 3, 4))
    assert pair.match((1, 2, 3, 4), limit=3) == 3
    assert pair.tree.match(chain((1,), identity), 0).slots == array("q")


def test_unlocking_more_often_than_locking_is_an_error() -> None:
    pair = Pair(identity)
    pair.insert((1,))
    node = pair.tree.match(chain((1,), identity), 1).node
    with pytest.raises(RuntimeError, match="more often"):
        pair.tree.unlock(node)


def test_a_chain_refuses_rows_without_keys() -> None:
    with pytest.raises(ValueError, match="keys"):
        Chain(SIZE).extend(b"abcd", [1])


def test_a_chain_refuses_given_rows_after_generated_ones() -> None:
    made = chain((1, 2), identity, given=1)
    with pytest.raises(ValueError, match="after a generated"):
        made.extend(b"ab", [1])


def test_the_pool_gives_no_slot_twice() -> None:
    pool = SlotPool(4)
    taken = pool.take(3)
    assert len(set(taken)) == 3 and pool.free == 1
    with pytest.raises(RuntimeError, match="2 slots asked"):
        pool.take(2)
    pool.give(taken[:1])
    with pytest.raises(RuntimeError, match="given back twice"):
        pool.give(taken[:1])
    assert pool.free == 2
