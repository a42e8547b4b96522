"""A chain: the packed rows of one sequence with their keys, in the form the tree is asked with."""

from __future__ import annotations

from array import array
from collections.abc import Iterable


class Chain:
    """A growing sequence of rows: ``row_bytes`` bytes of packed row and one integer key for each.

    The key only nominates: two rows are the same when their bytes are. Rows are shared within a namespace alone.

    Attributes:
        generated: How many rows, the last ones, were generated and not given.
    """

    __slots__ = ("generated", "keys", "namespace", "row_bytes", "rows")

    def __init__(self, row_bytes: int, namespace: bytes = b"") -> None:
        """An empty chain of rows of ``row_bytes`` bytes."""
        self.row_bytes = row_bytes
        self.namespace = namespace
        self.rows = bytearray()
        self.keys = array("q")
        self.generated = 0

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.keys)

    def extend(self, rows: bytes, keys: Iterable[int]) -> None:
        """Append given rows and their keys, one key (int64) a row."""
        added = array("q", keys)
        if len(rows) != len(added) * self.row_bytes:
            raise ValueError(f"{len(rows)} bytes of rows for {len(added)} keys of {self.row_bytes} bytes each")
        if self.generated:
            raise ValueError("rows cannot be given after a generated one")
        self.rows += rows
        self.keys += added

    def append(self, row: bytes, key: int) -> None:
        """Append a generated row."""
        if len(row) != self.row_bytes:
            raise ValueError(f"a row of {len(row)} bytes in a chain of {self.row_bytes} bytes each")
        self.rows += row
        self.keys.append(key)
        self.generated += 1

    def shared(self, other: Chain) -> int:
        """How many leading rows two chains may share."""
        if self.namespace != other.namespace:
            return 0
        return shared_rows(self.rows, other.rows, 0, min(len(self), len(other)), self.row_bytes)


def shared_rows(edge: bytearray, rows: bytearray, at: int, limit: int, row_bytes: int) -> int:
    """How many leading rows of ``edge``, up to ``limit``, equal ``rows`` from row ``at`` on.

    All are compared at once, then by halving: finding a difference costs O(log limit) comparisons of memory.
    """
    if limit * row_bytes == len(edge) and rows.startswith(edge, at * row_bytes):
        return limit
    view = memoryview(edge)
    low, high, middle = 0, limit + 1, limit  # the first ``low`` rows are equal; ``high`` are not, or too many
    while low < middle:
        if rows.startswith(view[low * row_bytes : middle * row_bytes], (at + low) * row_bytes):
            low = middle
        else:
            high = middle
        middle = (low + high) // 2
    return low
