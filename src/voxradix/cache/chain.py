"""A chain: the packed rows of one sequence with their keys, in the form the tree is asked with."""

from __future__ import annotations

from array import array
from collections.abc import Iterable


class Chain:
    """A growing sequence of rows: ``row_bytes`` bytes of packed row and one integer key for each.

    The key only nominates: two rows are the same when their bytes are.
    """

    __slots__ = ("keys", "row_bytes", "rows")

    def __init__(self, row_bytes: int) -> None:
        """An empty chain of rows of ``row_bytes`` bytes."""
        self.row_bytes = row_bytes
        self.rows = bytearray()
        self.keys = array("q")

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.keys)

    def extend(self, rows: bytes, keys: Iterable[int]) -> None:
        """Append whole rows and their keys, one key (int64) a row."""
        added = array("q", keys)
        if len(rows) != len(added) * self.row_bytes:
            raise ValueError(f"{len(rows)} bytes of rows for {len(added)} keys of {self.row_bytes} bytes each")
        self.rows += rows
        self.keys += added
