"""The lead: how far the audio that has left is ahead of its listener, and how much to send next."""

from __future__ import annotations

FIRST_SECONDS = 0.16
"""Audio in the first pieces: two frames at 12.5 a second."""

MOST_SECONDS = 1.0
"""Audio in the largest piece."""


class Lead:
    """Sizes the pieces of one reply: small ones while the listener waits, larger ones as the lead grows.

    Few large pieces cost less than many small ones; but a piece that is waited for must not outlast the lead.
    """

    def __init__(self) -> None:
        """Nothing has left yet."""
        self._sent = 0.0
        self._began: float | None = None

    @property
    def begun(self) -> bool:
        """Whether a piece has left."""
        return self._began is not None

    def seconds(self, now: float) -> float:
        """How long a listener who began with the first piece can go on with what has left."""
        return 0.0 if self._began is None else max(self._sent - (now - self._began), 0.0)

    def piece(self, now: float) -> float:
        """The seconds of audio to gather for the next piece."""
        return min(max(self.seconds(now) / 2, FIRST_SECONDS), MOST_SECONDS)

    def sent(self, seconds: float, now: float) -> None:
        """A piece of audio has left."""
        if self._began is None:
            self._began = now
        self._sent += seconds
