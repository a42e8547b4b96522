"""The radix tree over packed rows: which prefixes are cached, in which slots, and who goes first.

Keys nominate, rows decide: a node is found by the key of its first row, and entered only when the packed
row itself is equal. Whatever the keys do, a hit means equal rows.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from voxradix.cache.chain import Chain


class Node:
    """An edge of the tree: a run of rows with their keys and slots, and the nodes that follow it."""

    __slots__ = ("children", "keys", "locks", "parent", "queued", "rows", "slots", "used")

    def __init__(self, parent: Node | None, rows: bytearray, keys: array[int], slots: array[int], used: int) -> None:
        """A node without children or locks, last used at tick ``used``."""
        self.parent = parent
        self.rows = rows
        self.keys = keys
        self.slots = slots
        self.used = used
        self.locks = 0
        self.queued = False
        self.children: dict[int, list[Node]] = {}

    def __len__(self) -> int:
        """The number of rows on the edge."""
        return len(self.slots)


@dataclass(frozen=True, slots=True)
class Match:
    """The longest cached prefix of a chain: the node it ends at, and its slots, one a row."""

    node: Node
    slots: array[int]


@dataclass(frozen=True, slots=True)
class Insertion:
    """What an insertion found: the node the prefix ends at, and how many of its rows were there already."""

    node: Node
    known: int


class RadixTree:
    """Prefixes of rows, shared where they are equal.

    Slots are owned by the tree from the moment they are inserted until `evict` returns them. A locked node
    and its ancestors stay. Time grows with the path, never with the tree; eviction takes O(log n) a leaf.
    """

    def __init__(self, row_bytes: int) -> None:
        """An empty tree over rows of ``row_bytes`` bytes."""
        self.row_bytes = row_bytes
        self.root = Node(None, bytearray(), array("q"), array("q"), 0)
        self.rows = 0
        self.locked_rows = 0
        self._ticks = count(1)
        self._leaves: list[tuple[int, int, Node]] = []
        self._entries = count()

    @property
    def evictable_rows(self) -> int:
        """Rows that eviction could free: those no lock holds."""
        return self.rows - self.locked_rows

    def match(self, chain: Chain, limit: int) -> Match:
        """Find the longest cached prefix of the first ``limit`` rows; it ends at a node, split for it if need be."""
        node, slots, done = self.root, array("q"), 0
        tick = node.used = next(self._ticks)
        while done < limit and (child := self._child(node, chain, done)) is not None:
            shared = self._shared(child, chain, done, limit)
            if shared < len(child):
                child = self._split(child, shared)
            child.used = tick
            slots += child.slots
            node, done = child, done + shared
        return Match(node, slots)

    def insert(self, chain: Chain, length: int, slots: list[int]) -> Insertion:
        """Insert the first ``length`` rows of a chain, whose keys and values lie in ``slots``.

        Rows that are cached already keep the tree's slots, so of ``slots`` the tree takes over only those from
        ``known`` on; the caller still owns the rest.
        """
        found = self.match(chain, length)
        node, known = found.node, len(found.slots)
        if known < length:
            size = self.row_bytes
            tail = Node(
                node,
                chain.rows[known * size : length * size],
                chain.keys[known:length],
                array("q", slots[known:length]),
                node.used,
            )
            node.children.setdefault(tail.keys[0], []).append(tail)
            self.rows += len(tail)
            node = tail
            self._offer(tail)
        return Insertion(node, known)

    def lock(self, node: Node) -> None:
        """Keep a node and its ancestors from eviction until `unlock`."""
        for step in self._path(node):
            if step.locks == 0:
                self.locked_rows += len(step)
            step.locks += 1

    def unlock(self, node: Node) -> None:
        """Take one lock back from a node and its ancestors."""
        for step in self._path(node):
            if step.locks == 0:
                raise RuntimeError("a node was unlocked more often than it was locked")
            step.locks -= 1
            if step.locks == 0:
                self.locked_rows -= len(step)
                self._offer(step)

    def evict(self, rows: int) -> list[int]:
        """Forget up to ``rows`` rows and return their slots: least recently used leaf first, its last rows first."""
        freed: list[int] = []
        while len(freed) < rows and self._leaves:
            tick, _, leaf = heappop(self._leaves)
            leaf.queued = False
            if leaf.children or leaf.locks or leaf.parent is None:
                continue
            if leaf.used == tick:
                freed += self._trim(leaf, rows - len(freed))
            if leaf.parent is not None:
                self._offer(leaf)
        return freed

    def path(self, node: Node) -> array[int]:
        """The slots of the prefix that ends at ``node``, one a row."""
        slots = array("q")
        for step in reversed(list(self._path(node))):
            slots += step.slots
        return slots

    def nodes(self) -> Iterator[Node]:
        """Every node but the root, parents first."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            if node is not self.root:
                yield node
            for bucket in node.children.values():
                stack += bucket

    def check(self) -> None:
        """Raise `AssertionError` where the tree contradicts itself. Visits every row: for tests."""
        seen: set[int] = set()
        rows = locked = 0
        queued = {id(leaf) for _, _, leaf in self._leaves}
        assert len(queued) == len(self._leaves), "a leaf is queued twice"
        for node in self.nodes():
            assert len(node) > 0, "an empty node"
            assert len(node.rows) == len(node) * self.row_bytes == len(node.keys) * self.row_bytes, "uneven node"
            assert node.parent is not None and node in node.parent.children[node.keys[0]], "a lost child"
            assert node.locks <= node.parent.locks or node.parent is self.root, "a lock without its ancestors"
            assert node.used <= node.parent.used, "a child used after its parent"
            assert node.queued == (id(node) in queued), "a wrong queue mark"
            assert node.children or node.locks or node.queued, "an evictable leaf that is not queued"
            firsts = [bytes(child.rows[: self.row_bytes]) for bucket in node.children.values() for child in bucket]
            assert len(firsts) == len(set(firsts)), "two children begin with the same row"
            assert seen.isdisjoint(node.slots), "a slot stands in two places"
            seen.update(node.slots)
            rows += len(node)
            locked += len(node) if node.locks else 0
        assert len(seen) == rows == self.rows, f"{self.rows} rows counted, {rows} found in {len(seen)} slots"
        assert locked == self.locked_rows, f"{self.locked_rows} locked rows counted, {locked} found"

    def _path(self, node: Node) -> Iterator[Node]:
        step: Node | None = node
        while step is not None and step is not self.root:
            yield step
            step = step.parent

    def _child(self, node: Node, chain: Chain, at: int) -> Node | None:
        size = self.row_bytes
        row = chain.rows[at * size : (at + 1) * size]
        for child in node.children.get(chain.keys[at], ()):
            if child.rows.startswith(row):
                return child
        return None

    def _shared(self, node: Node, chain: Chain, at: int, limit: int) -> int:
        """How many leading rows of ``node`` equal the chain's rows from ``at`` on."""
        size = self.row_bytes
        high = min(len(node), limit - at)
        if node.rows[: high * size] == chain.rows[at * size : (at + high) * size]:
            return high
        low = 1  # `_child` saw the first row; the first difference lies in (low, high]
        while high - low > 1:
            middle = (low + high) // 2
            if node.rows[low * size : middle * size] == chain.rows[(at + low) * size : (at + middle) * size]:
                low = middle
            else:
                high = middle
        return low

    def _split(self, node: Node, at: int) -> Node:
        """Cut a node after ``at`` rows and return the new upper part; the lower part keeps its identity."""
        size, parent = self.row_bytes, node.parent
        assert parent is not None
        upper = Node(parent, node.rows[: at * size], node.keys[:at], node.slots[:at], node.used)
        upper.locks = node.locks
        siblings = parent.children[node.keys[0]]
        siblings[siblings.index(node)] = upper
        node.parent, node.rows, node.keys, node.slots = (
            upper,
            node.rows[at * size :],
            node.keys[at:],
            node.slots[at:],
        )
        upper.children[node.keys[0]] = [node]
        return upper

    def _trim(self, leaf: Node, rows: int) -> array[int]:
        """Cut up to ``rows`` rows off the end of a leaf; a leaf cut to nothing leaves the tree."""
        keep = max(len(leaf) - rows, 0)
        cut = leaf.slots[keep:]
        self.rows -= len(cut)
        if keep:
            del leaf.rows[keep * self.row_bytes :], leaf.keys[keep:], leaf.slots[keep:]
            return cut
        parent = leaf.parent
        assert parent is not None
        siblings = parent.children[leaf.keys[0]]
        siblings.remove(leaf)
        if not siblings:
            del parent.children[leaf.keys[0]]
        leaf.parent = None
        self._offer(parent)
        return cut

    def _offer(self, node: Node) -> None:
        """Queue a node for eviction if it may go. An entry whose tick has passed is queued anew when it surfaces."""
        if node is not self.root and not (node.queued or node.locks or node.children):
            node.queued = True
            heappush(self._leaves, (node.used, next(self._entries), node))
