"""The limits of a server."""

from __future__ import annotations

from dataclasses import dataclass

MOST_TAKES = 8
"""Takes that one request may ask for (`n`)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a server allows.

    Attributes:
        max_batch: Takes that the engine computes at once.
        queue: Takes that may wait beside those the engine runs; with more, requests are refused.
        uploads: Requests whose body is on its way at once.
        readers: Replies that may be on their way at once, those included whose audio is made and not yet read.
        max_takes: Finished takes that are kept; the least recently used one goes first.
        max_take_frames: Frames of all kept takes together.
        max_input_chars: Characters of one text.
        max_body_bytes: Bytes of one request.
        max_reference_bytes: Bytes of a reference recording.
        body_seconds: Time for the head of a request to arrive, and for its body.
        request_seconds: Time for a request to be spoken, its wait included; and for a reader to take some audio.
        stop_seconds: Time that requests have to end in when the server stops.
        keys: The API keys; without one, everybody is served.
        loopback: Whether the server listens on this machine alone.
    """

    max_batch: int = 16
    queue: int = 64
    uploads: int = 64
    readers: int = 1024
    max_takes: int = 256
    max_take_frames: int = 200_000
    max_input_chars: int = 4096
    max_body_bytes: int = 8 << 20
    max_reference_bytes: int = 5 << 20
    body_seconds: float = 30.0
    request_seconds: float = 300.0
    stop_seconds: float = 30.0
    keys: tuple[str, ...] = ()
    loopback: bool = True
