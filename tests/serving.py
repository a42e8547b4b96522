"""Servers for tests: a real one on a free port, in a thread of its own."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from voxradix import Engine
from voxradix.server import House, Settings, listen
from voxradix.server.run import Server
from voxradix.voice import Voice

TEXT = "four eight one"
BUFFER = 1 << 15
"""Of sockets: small, so that a reader who does not read is noticed."""
HEADERS = {"content-type": "application/json"}


@dataclass
class Running:
    """A server that runs, the engine in it, and a client of it."""

    url: str
    house: House
    server: Server
    client: httpx.Client
    engines: list[Engine] = field(default_factory=list)

    @property
    def engine(self) -> Engine:
        return self.engines[0]

    def speak(self, **values: object) -> httpx.Response:
        return self.client.post("/v1/audio/speech", json={"response_format": "pcm", **values})

    def idle(self) -> None:
        """Wait until nothing is under way any more, then find every row where it belongs."""
        until(lambda: not self.house.admission.replies and not self.house.desk._watches)
        self.checked()

    def checked(self) -> None:
        checks: list[BaseException | None] = []
        done = threading.Event()

        def check() -> None:
            try:
                self.engine.check()
                checks.append(None)
            except BaseException as error:
                checks.append(error)
            done.set()

        self.house.desk._put(check)
        assert done.wait(30)
        if checks[0] is not None:
            raise checks[0]


@contextmanager
def running(voice: Voice, *, settings: Settings | None = None, max_batch: int = 4, **engine: Any) -> Iterator[Running]:
    engines: list[Engine] = []

    def make() -> Engine:
        engines.append(Engine(voice, max_batch=max_batch, **engine))
        return engines[0]

    house = House(make, replace(settings or Settings(), max_batch=max_batch))
    listener = listen("127.0.0.1", 0)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    ready = threading.Event()
    server = Server(house, ready.set)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    assert ready.wait(30)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        with httpx.Client(base_url=url, timeout=60) as client:
            yield Running(url, house, server, client, engines)
    finally:
        server.should_exit = True
        house.cut.set()
        thread.join(30)
        house.close()
        listener.close()
        assert not thread.is_alive()


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for a condition to come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.005)


def events(text: str) -> list[dict[str, Any]]:
    """The events in a stream."""
    blocks = text.split("\n\n")
    assert blocks[-1] == ""
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks[:-1])
    return [json.loads(block.removeprefix("data: ")) for block in blocks[:-1]]


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error in a reply, of OpenAI's shape."""
    body = response.json()
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str) and error["message"] and "\n" not in error["message"]
    return error


def raw_request(running: Running, **values: object) -> socket.socket:
    """A speech request on a socket of its own, of which nothing is read yet."""
    host, port = running.url.removeprefix("http://").split(":")
    body = json.dumps({"response_format": "pcm", **values}).encode()
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    connection.connect((host, int(port)))
    connection.sendall(
        b"POST /v1/audio/speech HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    return connection
