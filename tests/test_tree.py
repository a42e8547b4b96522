"""The radix tree against a brute-force list of prefixes: a hit is equal rows, and nothing is lost."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from voxradix.cache import Chain, Node, RadixTree, SlotPool

Row = int
SIZE = 2
KeyOf = Callable[[Row], int]


def chain(rows: list[Row], key: KeyOf) -> Chain:
    made = Chain(SIZE)
    made.extend(b"".join(row.to_bytes(SIZE, "big") for row in rows), [key(row) for row in rows])
    return made


class Model:
    """A tree beside the plainest thing that could be right: for each cached prefix, the slot of its last row."""

    def __init__(self, key: KeyOf, slots: int = 400) -> None:
        self.key = key
        self.tree = RadixTree(SIZE)
        self.pool = SlotPool(slots)
        self.prefixes: dict[tuple[Row, ...], int] = {}
        self.locks: list[tuple[tuple[Row, ...], Node]] = []

    def longest(self, rows: list[Row]) -> list[int]:
        found = []
        for length in range(1, len(rows) + 1):
            slot = self.prefixes.get(tuple(rows[:length]))
            if slot is None:
                break
            found.append(slot)
        return found

    def match(self, rows: list[Row]) -> None:
        found = self.tree.match(chain(rows, self.key), len(rows))
        assert found.slots.tolist() == self.longest(rows)
        assert self.tree.path(found.node) == found.slots

    def insert(self, rows: list[Row]) -> None:
        if len(rows) > self.pool.free:
            self.evict(len(rows) - self.pool.free)
        if len(rows) > self.pool.free:
            return
        known = self.longest(rows)
        slots = self.pool.take(len(rows))
        done = self.tree.insert(chain(rows, self.key), len(rows), slots)
        assert done.known == len(known)
        self.pool.give(slots[: len(known)])
        for length in range(len(known) + 1, len(rows) + 1):
            self.prefixes[tuple(rows[:length])] = slots[length - 1]

    def lock(self, rows: list[Row]) -> None:
        found = self.tree.match(chain(rows, self.key), len(rows))
        self.tree.lock(found.node)
        self.locks.append((tuple(rows[: len(found.slots)]), found.node))

    def unlock(self) -> None:
        if self.locks:
            self.tree.unlock(self.locks.pop(0)[1])

    def evict(self, rows: int) -> None:
        held = {prefix[:n] for prefix, _ in self.locks for n in range(1, len(prefix) + 1)}
        free = len(self.prefixes) - len(held)
        assert self.tree.evictable_rows == free
        freed = self.tree.evict(rows)
        assert len(freed) == min(rows, free)
        gone = {prefix for prefix, slot in self.prefixes.items() if slot in set(freed)}
        assert len(gone) == len(freed) and not gone & held
        for prefix in gone:
            del self.prefixes[prefix]
        for prefix in self.prefixes:
            assert len(prefix) == 1 or prefix[:-1] in self.prefixes, "a row went before the rows after it"
        self.pool.give(freed)

    def check(self) -> None:
        self.tree.check()
        assert self.pool.free + self.tree.rows == self.pool.size
        assert self.tree.rows == len(self.prefixes)


def identity(row: Row) -> int:
    return row


def seven(row: Row) -> int:
    return 7


def last_bit(row: Row) -> int:
    return row & 1


rows_of = st.lists(st.integers(0, 3), min_size=1, max_size=12)


class TreeMachine(RuleBasedStateMachine):
    chains = Bundle("chains")

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(last_bit, slots=60)

    @rule(target=chains, rows=rows_of)
    def new(self, rows: list[Row]) -> list[Row]:
        return rows

    @rule(target=chains, start=chains, tail=rows_of)
    def longer(self, start: list[Row], tail: list[Row]) -> list[Row]:
        return (start + tail)[:30]

    @rule(rows=chains)
    def insert(self, rows: list[Row]) -> None:
        self.model.insert(rows)

    @rule(rows=chains)
    def match(self, rows: list[Row]) -> None:
        self.model.match(rows)

    @rule(rows=consumes(chains))
    def lock(self, rows: list[Row]) -> None:
        self.model.lock(rows)

    @rule()
    def unlock(self) -> None:
        self.model.unlock()

    @rule(rows=st.integers(1, 20))
    def evict(self, rows: int) -> None:
        self.model.evict(rows)

    @invariant()
    def nothing_is_lost(self) -> None:
        self.model.check()


TestTreeAgainstBruteForce = TreeMachine.TestCase
TestTreeAgainstBruteForce.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("key", [identity, last_bit, seven])
def test_no_false_match_in_random_operations_whatever_the_key(key: KeyOf) -> None:
    """100,000 operations over the three keys; the invariant is checked after each."""
    rng = random.Random(5)
    model = Model(key, slots=120)
    for _ in range(33_334):
        rows = [rng.randrange(3) for _ in range(rng.randrange(1, 14))]
        match rng.randrange(10):
            case 0 | 1 | 2:
                model.insert(rows)
            case 3 | 4 | 5 | 6:
                model.match(rows)
            case 7:
                model.lock(rows) if len(model.locks) < 5 else model.unlock()
            case 8:
                model.unlock()
            case 9:
                model.evict(rng.randrange(1, 6))
        model.check()


@pytest.mark.parametrize("changed", [0, 4, 9])
def test_no_false_match_when_one_row_differs_under_a_key_that_always_clashes(changed: int) -> None:
    model = Model(seven)
    rows = list(range(10))
    model.insert(rows)
    other = [row + 100 if index == changed else row for index, row in enumerate(rows)]
    found = model.tree.match(chain(other, seven), 10)
    assert len(found.slots) == changed
    model.insert(other)
    model.match(rows)
    model.match(other)
    model.check()


def test_the_least_recently_used_leaf_goes_first_its_last_rows_first() -> None:
    model = Model(identity)
    model.insert([1, 2, 3])
    model.insert([1, 4, 5])
    model.match([1, 2, 3])
    model.tree.evict(1)
    assert len(model.tree.match(chain([1, 4, 5], identity), 3).slots) == 2
    assert len(model.tree.match(chain([1, 2, 3], identity), 3).slots) == 3
    model.tree.check()


def test_a_locked_prefix_outlives_any_eviction() -> None:
    model = Model(identity)
    model.insert([1, 2, 3, 4])
    model.lock([1, 2])
    assert len(model.tree.evict(100)) == 2
    assert len(model.tree.match(chain([1, 2, 3], identity), 3).slots) == 2
    model.tree.check()


def test_a_limit_shortens_a_match() -> None:
    model = Model(identity)
    model.insert([1, 2, 3, 4])
    assert len(model.tree.match(chain([1, 2, 3, 4], identity), 3).slots) == 3
    assert model.tree.match(chain([1], identity), 0).slots == array("q")


def test_unlocking_more_often_than_locking_is_an_error() -> None:
    model = Model(identity)
    model.insert([1])
    node = model.tree.match(chain([1], identity), 1).node
    with pytest.raises(RuntimeError, match="more often"):
        model.tree.unlock(node)


def test_a_chain_refuses_rows_without_keys() -> None:
    with pytest.raises(ValueError, match="keys"):
        Chain(SIZE).extend(b"abcd", [1])


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
