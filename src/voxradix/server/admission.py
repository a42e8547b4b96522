"""Admission: how many takes may be under way or wait, and how many replies may be read, at once."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from voxradix.server.refusal import Refusal, stopping

_LONGEST_WAIT = 60


class Admission:
    """Counts takes from their admission to their end, and replies to the end of their reading.

    Attributes:
        open: Cleared when the server stops: then nobody is admitted.
        replies: Replies on their way.
    """

    def __init__(self, batch: int, queue: int, readers: int, request_seconds: Callable[[], float]) -> None:
        """Room for ``batch`` takes at work, ``queue`` that wait, and ``readers`` replies."""
        self.open = True
        self.replies = 0
        self._batch = batch
        self._most = batch + queue
        self._readers = readers
        self._takes = 0
        self._request_seconds = request_seconds

    def enter(self, takes: int) -> None:
        """Admit a request of so many takes, none for one that only reads, or raise `Refusal`.

        429 says what is full, 400 that so many never fit, 503 that the server is stopping.
        """
        if not self.open:
            raise stopping()
        if takes > self._most:
            raise Refusal(400, f"n is {takes}; this server has room for {self._most} takes at once", param="n")
        if self._takes + takes > self._most:
            full = f"{self._takes} takes are under way or wait, and there is room for {self._most}"
            raise self._full(full, max(self._takes + takes - self._batch, 1) / self._batch)
        if self.replies >= self._readers:
            raise self._full(f"{self.replies} replies are on their way, and there is room for no more", 1)
        self._takes += takes
        self.replies += 1

    def ended(self, takes: int) -> None:
        """So many takes have ended, or were left."""
        self._takes -= takes

    def left(self) -> None:
        """A reply has come to its end."""
        self.replies -= 1

    def _full(self, what: str, requests: float) -> Refusal:
        """429, with the time that so many requests take as the time to wait."""
        wait = min(max(ceil(self._request_seconds() * requests), 1), _LONGEST_WAIT)
        return Refusal(429, f"{what}; try again later", code="queue_full", retry_after=wait)
