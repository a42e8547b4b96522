"""A connection: uvicorn's, which ends even when its peer takes nothing more."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

_KEY = "connection"


class Connection(H11Protocol):
    """A connection that is reset when its peer or its request takes too long.

    Bytes that wait for the peer must all be taken within ``patience`` seconds, the head of a request must arrive within
    ``head_seconds``.

    Closing alone would not do: a transport closes when its peer has taken all that was written.
    """

    patience: float
    head_seconds: float

    def __init__(self, *arguments: Any, **values: Any) -> None:
        """A connection that requests find in their state."""
        super().__init__(*arguments, **values)
        self.app_state = {**self.app_state, _KEY: self}
        self._stalled: asyncio.TimerHandle | None = None
        self._heading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; the transport pauses its writers whenever it holds a byte back."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Take what has come of a request."""
        super().data_received(data)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._taken()
        self._headed()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The peer takes less than there is."""
        super().pause_writing()
        self._taken()
        self._stalled = self.loop.call_later(self.patience, self.reset)

    def resume_writing(self) -> None:
        """The peer has taken all."""
        self._taken()
        super().resume_writing()

    def break_off(self) -> None:
        """End with a body that is not complete, in such a way that its reader cannot take it for complete."""
        self.cycle.disconnected = True
        if self.scope["http_version"] == "1.0":  # the end of the connection would be the end of the body
            self.reset()
        else:
            self.transport.abort()

    def reset(self) -> None:
        """End at once: what the peer has not taken is lost, and it is told so."""
        own = self.transport.get_extra_info("socket")
        if not self.transport.is_closing() or self.transport.get_write_buffer_size():
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _await_head(self) -> None:
        """Give a head that has begun, or the first one, its time; between requests uvicorn's own time holds."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._headed()
        elif self._heading is None:
            self._heading = self.loop.call_later(self.head_seconds, self.reset)

    def _headed(self) -> None:
        if self._heading is not None:
            self._heading.cancel()
            self._heading = None

    def _taken(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


def patient(seconds: float, head_seconds: float) -> type[Connection]:
    """The connections whose peers must take something within ``seconds``, and send a head within ``head_seconds``."""
    return type("PatientConnection", (Connection,), {"patience": seconds, "head_seconds": head_seconds})


def break_off(scope: Scope) -> None:
    """Break off the connection that a request has come by; without one of ours, its server closes it."""
    connection = scope.get("state", {}).get(_KEY)
    if connection is not None:
        connection.break_off()
