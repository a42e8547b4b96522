"""Uploads: how many bodies may be on their way at once, as each takes memory before it is admitted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from voxradix.server.refusal import Refusal


class Uploads:
    """Counts the bodies that are being read."""

    def __init__(self, most: int) -> None:
        """Room for so many."""
        self._most = most
        self._count = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Hold a place while a body is read; `Refusal` (429) when there is none."""
        if self._count >= self._most:
            raise Refusal(
                429,
                f"{self._count} requests are being received, and there is room for no more; try again later",
                code="queue_full",
                retry_after=1,
            )
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
