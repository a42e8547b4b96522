"""The plainest cache that could be right: a dictionary of prefixes, each with what is known of its last row."""

from __future__ import annotations

from dataclasses import dataclass

Rows = tuple[int, ...]
Prefix = tuple[bytes, Rows]


@dataclass
class CachedRow:
    slot: int
    given: bool
    used: int
    hit: bool = False
    pins: int = 0
    locks: int = 0
    followers: int = 0

    @property
    def order(self) -> tuple[int, int]:
        return 2 if self.pins else int(self.hit), self.used


class PlainCache:
    """Every operation looks at whole prefixes, and eviction at every row there is."""

    def __init__(self) -> None:
        self.rows: dict[Prefix, CachedRow] = {}
        self.ticks = 0

    def longest(self, name: bytes, rows: Rows) -> list[CachedRow]:
        found: list[CachedRow] = []
        while len(found) < len(rows) and (row := self.rows.get((name, rows[: len(found) + 1]))):
            found.append(row)
        return found

    def use(self, name: bytes, rows: Rows) -> list[CachedRow]:
        self.ticks += 1
        found = self.longest(name, rows)
        for row in found:
            row.used = self.ticks
        return found

    def match(self, name: bytes, rows: Rows) -> list[CachedRow]:
        found = self.use(name, rows)
        for row in found:
            row.hit = True
        return found

    def insert(self, name: bytes, rows: Rows, given: int, slots: list[int]) -> int:
        known = self.use(name, rows)
        before = known[-1] if known else None
        for index in range(len(known), len(rows)):
            if before is not None:
                before.followers += 1
            before = CachedRow(slots[index], index < given, self.ticks)
            self.rows[name, rows[: index + 1]] = before
        return len(known)

    def pin(self, name: bytes, rows: Rows) -> int:
        found = self.use(name, rows)
        for row in found:
            row.pins += 1
        return len(found)

    def unpin(self, name: bytes, rows: Rows) -> None:
        for row in self.use(name, rows):
            row.pins = max(row.pins - 1, 0)

    def lock(self, name: bytes, rows: Rows, change: int) -> None:
        for row in self.longest(name, rows):
            row.locks += change

    def evict(self, count: int) -> list[int]:
        """Row by row: of all rows that nothing follows and no lock holds, the first in order."""
        freed: list[int] = []
        while len(freed) < count:
            leaves = [(row.order, prefix) for prefix, row in self.rows.items() if not (row.followers or row.locks)]
            if not leaves:
                break
            name, rows = min(leaves)[1]
            freed.append(self.rows.pop((name, rows)).slot)
            if before := self.rows.get((name, rows[:-1])):
                before.followers -= 1
        return freed
