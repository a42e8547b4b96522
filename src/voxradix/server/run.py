"""Running: the sockets, the signals, and the orderly stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from voxradix.errors import VoxradixError
from voxradix.server.app import application
from voxradix.server.connection import patient
from voxradix.server.house import House

_BACKLOG = 256
_IDLE_SECONDS = 15
_GRACE_SECONDS = 5
"""For replies to send the error that ends them, when the time to end well is over."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises `VoxradixError` when the address cannot be had."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        # asyncio sends small writes at once (TCP_NODELAY) on sockets that say they are TCP's
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except (OSError, UnicodeError, OverflowError) as error:
        raise VoxradixError(f"cannot listen on {host}:{port}: {error}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else error
        raise VoxradixError(f"cannot listen on {host}:{port}: {reason}") from None
    return listener


def serve(
    house: House,
    listener: socket.socket,
    on_ready: Callable[[], None] = lambda: None,
    on_stop: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT; then let requests end, and close the house.

    ``on_ready`` is called when connections are taken, ``on_stop`` when the server is told to stop.
    """
    try:
        Server(house, on_ready, on_stop).run(sockets=[listener])
    finally:
        house.close()


class Server(uvicorn.Server):
    """A uvicorn server that lets its house empty before it closes its connections."""

    def __init__(
        self, house: House, on_ready: Callable[[], None] = lambda: None, on_stop: Callable[[], None] = lambda: None
    ) -> None:
        """A server of a house's application."""
        super().__init__(
            uvicorn.Config(
                application(house),
                http=patient(house.settings.request_seconds, house.settings.body_seconds),
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_keep_alive=_IDLE_SECONDS,
                timeout_graceful_shutdown=_GRACE_SECONDS,
                lifespan="off",
            )
        )
        self._house = house
        self._on_ready = on_ready
        self._on_stop = on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Take connections."""
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let requests end, refusing new ones; then close."""
        emptying = asyncio.create_task(self._house.empty())
        while not emptying.done() and not self.force_exit:
            await asyncio.wait([emptying], timeout=0.1)
        self._house.cut.set()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop in order; at once when asked a second time. An orderly stop is no failure: the process exits with 0."""
        self.force_exit = self.should_exit
        self.should_exit = True
        if not self.force_exit:
            self._on_stop()
