"""The slot pool: which of the KV slots are free and which are in use."""

from __future__ import annotations

from array import array
from collections.abc import Iterable


class SlotPool:
    """Slots ``0 .. size - 1``, each free or in use. A slot given back twice is an error, never a corruption."""

    def __init__(self, size: int) -> None:
        """A pool of ``size`` free slots."""
        self.size = size
        self._free = array("q", range(size - 1, -1, -1))
        self._used = bytearray(size)

    @property
    def free(self) -> int:
        """The number of free slots."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """Take ``count`` slots; `RuntimeError` when fewer are free (make room first)."""
        if count > len(self._free):
            raise RuntimeError(f"{count} slots asked of a pool with {len(self._free)} free of {self.size}")
        taken = self._free[len(self._free) - count :].tolist()
        del self._free[len(self._free) - count :]
        for slot in taken:
            self._used[slot] = 1
        return taken

    def give(self, slots: Iterable[int]) -> None:
        """Give slots back; `RuntimeError` for one that is already free."""
        for slot in slots:
            if not self._used[slot]:
                raise RuntimeError(f"slot {slot} was given back twice")
            self._used[slot] = 0
            self._free.append(slot)
