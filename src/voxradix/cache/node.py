"""A node of the radix tree: a run of rows and what is known about them."""

from __future__ import annotations

from array import array


class Node:
    """An edge of the tree: a run of rows with their keys and slots, and the nodes that follow it.

    Attributes:
        parent: The node before; None for a root and for a node that has left the tree.
        rows: The packed rows.
        keys: Their keys.
        slots: The slots their keys and values lie in.
        given: How many of the rows, the first ones, came into the cache as rows of a prompt.
        used: The tick of the last match or insertion that passed here.
        hit: Whether a match has passed here.
        locks: How many requests keep the node from eviction.
        pins: How many pins hold it back till last.
        entry: The number of its live entry in the eviction queue; 0 without one.
        children: The nodes that follow, by the key of their first row.
    """

    __slots__ = ("children", "entry", "given", "hit", "keys", "locks", "parent", "pins", "rows", "slots", "used")

    def __init__(
        self,
        parent: Node | None,
        rows: bytearray,
        keys: array[int],
        slots: array[int],
        given: int,
        used: int,
    ) -> None:
        """A node without children, locks or hits."""
        self.parent = parent
        self.rows = rows
        self.keys = keys
        self.slots = slots
        self.given = given
        self.used = used
        self.hit = False
        self.locks = 0
        self.pins = 0
        self.entry = 0
        self.children: dict[int, list[Node]] = {}

    def __len__(self) -> int:
        """The number of rows on the edge."""
        return len(self.slots)

    @property
    def order(self) -> tuple[int, int]:
        """Who goes first: what nobody has hit (0), what was hit (1), what is pinned (2); then the longest unused."""
        return 2 if self.pins else int(self.hit), self.used

    @property
    def evictable(self) -> bool:
        """Whether its last rows may go now."""
        return not (self.children or self.locks or self.parent is None)

    def cut(self, at: int, row_bytes: int) -> Node:
        """Move the first ``at`` rows to a new node between this one and its parent, and return that node."""
        upper = Node(
            self.parent,
            self.rows[: at * row_bytes],
            self.keys[:at],
            self.slots[:at],
            min(self.given, at),
            self.used,
        )
        upper.hit, upper.locks, upper.pins = self.hit, self.locks, self.pins
        self.replace_in_parent(upper)
        del self.rows[: at * row_bytes], self.keys[:at], self.slots[:at]
        self.given = max(self.given - at, 0)
        self.parent = upper
        upper.children[self.keys[0]] = [self]
        return upper

    def trim(self, keep: int, row_bytes: int) -> array[int]:
        """Forget all rows but the first ``keep``, of which there are some, and return their slots."""
        cut = self.slots[keep:]
        del self.rows[keep * row_bytes :], self.keys[keep:], self.slots[keep:]
        self.given = min(self.given, keep)
        return cut

    def replace_in_parent(self, other: Node) -> None:
        """Put another node, that begins with the same row, in this one's place."""
        assert self.parent is not None
        siblings = self.parent.children[self.keys[0]]
        siblings[siblings.index(self)] = other

    def leave(self) -> None:
        """Leave the tree."""
        assert self.parent is not None
        siblings = self.parent.children[self.keys[0]]
        siblings.remove(self)
        if not siblings:
            del self.parent.children[self.keys[0]]
        self.parent = None


class Root(Node):
    """The node above all rows of a namespace; it has none itself."""

    __slots__ = ("namespace",)

    def __init__(self, namespace: bytes) -> None:
        """A root without children."""
        super().__init__(None, bytearray(), array("q"), array("q"), 0, 0)
        self.namespace = namespace
