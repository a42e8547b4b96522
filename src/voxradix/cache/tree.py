"""The radix tree over packed rows: which prefixes are cached, in which slots, and who goes first.

Keys nominate, rows decide: a node is found by the key of its first row, and entered only when the packed
row itself is equal. Whatever the keys do, a hit means equal rows, of one namespace.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count

from voxradix.cache.chain import Chain, shared_rows
from voxradix.cache.node import Node, Root
from voxradix.cache.run import Run


@dataclass(frozen=True, slots=True)
class Match:
    """The longest cached prefix of a chain.

    Attributes:
        node: The node it ends at.
        slots: Its slots, one a row.
        generated: How many of its rows came into the cache as generated ones.
    """

    node: Node
    slots: array[int]
    generated: int


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
        self.rows = 0
        self.locked_rows = 0
        self._roots: dict[bytes, Root] = {}
        self._ticks = count(1)
        self._queue: list[tuple[int, int, int, Node]] = []
        self._entries = count(1)

    @property
    def evictable_rows(self) -> int:
        """Rows that eviction could free: those no lock holds."""
        return self.rows - self.locked_rows

    def match(self, chain: Chain, limit: int) -> Match:
        """Find the longest cached prefix of the first ``limit`` rows; it ends at a node, split for it if need be.

        What it passes counts as hit from now on.
        """
        path, _ = self._walk(chain, limit)
        slots, generated = array("q"), 0
        for node in path:
            node.hit = True
            slots += node.slots
            generated += len(node.slots) - node.given
        return Match(path[-1], slots, generated)

    def insert(self, chain: Chain, length: int, slots: list[int]) -> Insertion:
        """Insert the first ``length`` rows of a chain, whose keys and values lie in ``slots``.

        Rows that are cached already keep the tree's slots, so of ``slots`` the tree takes over only those from
        ``known`` on; the caller still owns the rest.
        """
        path, known = self._walk(chain, length)
        node = path[-1]
        if known < length:
            size = self.row_bytes
            given = min(max(len(chain) - chain.generated - known, 0), length - known)
            tail = Node(
                node,
                chain.rows[known * size : length * size],
                chain.keys[known:length],
                array("q", slots[known:length]),
                given,
                node.used,
            )
            if isinstance(node, Root):
                self._roots[node.namespace] = node
            node.children.setdefault(tail.keys[0], []).append(tail)
            self.rows += length - known
            self._offer(tail)
            node = tail
        return Insertion(node, known)

    def pin(self, chain: Chain, length: int) -> int:
        """Let the cached part of the first ``length`` rows go last, until `unpin`; the number of rows pinned.

        A pin is no lock: when nothing else is left, pinned rows go too, and the pin with them.
        """
        path, known = self._walk(chain, length)
        for node in path[1:]:
            node.pins += 1
        return known

    def unpin(self, chain: Chain, length: int) -> None:
        """Take one pin back from what is cached of the first ``length`` rows."""
        for node in self._walk(chain, length)[0]:
            if node.pins:
                node.pins -= 1
                node.entry = 0  # its entry stands too far back in the queue
                self._offer(node)
        if len(self._queue) > 2 * self.rows:
            self._queue = [item for item in self._queue if item[2] == item[3].entry]
            heapify(self._queue)

    def lock(self, node: Node) -> None:
        """Keep a node and its ancestors from eviction until `unlock`."""
        step = node
        while step.parent is not None:
            if not step.locks:
                self.locked_rows += len(step.slots)
            step.locks += 1
            step = step.parent

    def unlock(self, node: Node) -> None:
        """Take one lock back from a node and its ancestors."""
        step = node
        while step.parent is not None:
            if not step.locks:
                raise RuntimeError("a node was unlocked more often than it was locked")
            step.locks -= 1
            if not step.locks:
                self.locked_rows -= len(step.slots)
                self._offer(step)
            step = step.parent

    def evict(self, rows: int) -> list[int]:
        """Forget up to ``rows`` rows and return their slots.

        What nobody has hit goes first, pinned rows last; among equals the least recently used leaf, its last rows
        first.
        """
        freed: list[int] = []
        queue = self._queue
        while len(freed) < rows and queue:
            rank, used, entry, leaf = queue[0]
            alive = leaf.entry == entry
            if alive and leaf.evictable and leaf.order != (rank, used):
                heapreplace(queue, (*leaf.order, entry, leaf))
                continue
            heappop(queue)
            if alive:
                leaf.entry = 0
                if leaf.evictable:
                    freed += self._trim(leaf, rows - len(freed))
                    self._offer(leaf)
        return freed

    def path(self, node: Node) -> array[int]:
        """The slots of the prefix that ends at ``node``, one a row."""
        steps = [node]
        while steps[-1].parent is not None:
            steps.append(steps[-1].parent)
        slots = array("q")
        for step in reversed(steps):
            slots += step.slots
        return slots

    def nodes(self) -> Iterator[Node]:
        """Every node but the roots, parents first."""
        stack: list[Node] = list(self._roots.values())
        while stack:
            node = stack.pop()
            if not isinstance(node, Root):
                yield node
            for bucket in node.children.values():
                stack += bucket

    def runs(self, namespace: bytes, limit: int) -> list[Run]:
        """What is cached of one namespace, parents first, ``limit`` nodes at most; nothing is marked as used by it."""
        root = self._roots.get(namespace)
        runs: list[Run] = []
        waiting: deque[tuple[Node, int | None, int]] = deque()

        def follow(node: Node, name: int | None, depth: int) -> None:
            waiting.extend((child, name, depth) for bucket in node.children.values() for child in bucket)

        if root is not None:
            follow(root, None, 0)
        while waiting and len(runs) < limit:
            node, parent, depth = waiting.popleft()
            name = node.slots[0]
            runs.append(Run(name, parent, depth, len(node), node.given, node.locks > 0, node.pins > 0, node.hit))
            follow(node, name, depth + len(node))
        return runs

    def check(self) -> None:
        """Raise `AssertionError` where the tree contradicts itself. Visits every row: for tests."""
        seen: set[int] = set()
        rows = locked = 0
        entries = {entry: node for _, _, entry, node in self._queue}
        assert all(root.children for root in self._roots.values()), "an empty root"
        for node in self.nodes():
            parent = node.parent
            assert len(node) > 0, "an empty node"
            assert len(node.rows) == len(node) * self.row_bytes == len(node.keys) * self.row_bytes, "uneven node"
            assert parent is not None and node in parent.children[node.keys[0]], "a lost child"
            assert 0 <= node.given <= len(node), "more rows given than there are"
            if not isinstance(parent, Root):
                assert node.locks <= parent.locks, "a lock without its ancestors"
                assert node.hit <= parent.hit and node.used <= parent.used, "a child used or hit without its parent"
            assert node.entry == 0 or entries[node.entry] is node, "a wrong queue mark"
            assert node.entry or not node.evictable, "an evictable leaf that is not queued"
            firsts = [bytes(child.rows[: self.row_bytes]) for bucket in node.children.values() for child in bucket]
            assert len(firsts) == len(set(firsts)), "two children begin with the same row"
            assert seen.isdisjoint(node.slots), "a slot stands in two places"
            seen.update(node.slots)
            rows += len(node)
            locked += len(node) if node.locks else 0
        assert len(seen) == rows == self.rows, f"{self.rows} rows counted, {rows} found in {len(seen)} slots"
        assert locked == self.locked_rows, f"{self.locked_rows} locked rows counted, {locked} found"

    def _walk(self, chain: Chain, limit: int) -> tuple[list[Node], int]:
        """The nodes of the longest cached prefix of the first ``limit`` rows, the root first, and its length.

        They are marked as used; no node is longer than the prefix.
        """
        node = self._roots.get(chain.namespace)
        if node is None:
            node = Root(chain.namespace)
        tick = node.used = next(self._ticks)
        path: list[Node] = [node]
        rows, keys, size, done = chain.rows, chain.keys, self.row_bytes, 0
        while done < limit:
            for child in path[-1].children.get(keys[done], ()):
                length = len(child.slots)
                shared = shared_rows(child.rows, rows, done, min(length, limit - done), size)
                if shared:
                    break
            else:
                break
            if shared < length:
                child = child.cut(shared, size)
            child.used = tick
            path.append(child)
            done += shared
        return path, done

    def _trim(self, leaf: Node, rows: int) -> array[int]:
        """Cut up to ``rows`` rows off the end of a leaf and return their slots, the last first."""
        keep = len(leaf.slots) - rows
        if keep > 0:
            cut = leaf.trim(keep, self.row_bytes)
        else:
            cut, parent = leaf.slots, leaf.parent
            assert parent is not None
            leaf.leave()
            self._offer(parent)
            if isinstance(parent, Root) and not parent.children:
                del self._roots[parent.namespace]
        self.rows -= len(cut)
        cut.reverse()
        return cut

    def _offer(self, node: Node) -> None:
        """Queue a node for eviction if it may go. Its place is put right when its turn comes."""
        if node.evictable and not node.entry:
            node.entry = next(self._entries)
            heappush(self._queue, (*node.order, node.entry, node))
