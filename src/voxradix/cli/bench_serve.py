"""`voxradix bench serve`: a server in a process of its own, and clients that ask it over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import count
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.table import Table

from voxradix.cli.bench import machine, unlike_text
from voxradix.cli.serve import require_server
from voxradix.errors import VoxradixError

_PATIENCE = 300
_WARM_UP = 8
"""Requests before those that count: the common steps are captured by then."""


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server that runs in a process of its own.

    Attributes:
        pid: The process.
        port: Where it listens, on this machine.
    """

    pid: int
    port: int

    def connect(self) -> HTTPConnection:
        """A connection to it."""
        return HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)

    def get(self, path: str) -> Any:
        """The JSON at a path."""
        connection = self.connect()
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


@contextmanager
def server_process(*options: str) -> Iterator[ServerProcess]:
    """A server with some options of `voxradix serve`, until the block ends."""
    command = [sys.executable, "-m", "voxradix", "serve", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise VoxradixError(f"the server did not start: exit code {process.wait()}")
        try:
            yield ServerProcess(process.pid, int(line.rpartition(":")[2]))
        finally:
            process.terminate()
            process.wait()


@dataclass(frozen=True, slots=True)
class Heard:
    """One reply as its client heard it: seconds to the first audio, the audio (16-bit PCM), and the take's id."""

    first: float
    audio: bytes
    take: str


def ask(connection: HTTPConnection, hang_up: bool = False, **fields: object) -> Heard:
    """Ask for speech and listen to its end, or hang up after the first audio. `RuntimeError` for any other reply."""
    started = perf_counter()
    body = json.dumps({"response_format": "pcm", **fields})
    connection.request("POST", "/v1/audio/speech", body, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    if reply.status != 200:
        raise RuntimeError(f"{reply.status}: {reply.read().decode()}")
    audio = bytearray(reply.read1(65536))
    first = perf_counter() - started
    if hang_up:
        connection.close()
    else:
        audio += reply.read()
    return Heard(first, bytes(audio), reply.getheader("X-Voxradix-Take", ""))


def percentile(values: Sequence[float], part: int) -> float:
    """The value that ``part`` per cent of the values do not exceed."""
    return sorted(values)[(len(values) - 1) * part // 100]


@dataclass(frozen=True, slots=True)
class ServeFigures:
    """What a number of clients got: replies and audio a second, and the seconds to the first audio of every reply."""

    clients: int
    requests_per_second: float
    audio_per_second: float
    firsts: list[float]


def bench_serve(clients: list[int], seconds: float, options: Sequence[str]) -> None:
    """Print a table, each number of clients with a server of its own."""
    require_server()
    figures = [measure_serve(number, seconds, options) for number in clients]
    table = Table("clients", "requests", "requests/s", "audio s/s", "first audio p50", "p90", "p99")
    for row in figures:
        table.add_row(
            str(row.clients),
            str(len(row.firsts)),
            f"{row.requests_per_second:.1f}",
            f"{row.audio_per_second:.1f}",
            *(f"{1000 * percentile(row.firsts, part):.0f} ms" for part in (50, 90, 99)),
        )
    console = Console()
    console.print(f"{machine()}; ten digits a request, no prefix shared; {seconds:g} s each; clients here too")
    console.print(table)


def measure_serve(clients: int, seconds: float, options: Sequence[str]) -> ServeFigures:
    """Let some clients ask one after the other, each for ten digits that nobody has asked for, for some seconds."""
    numbers = count()
    with server_process(*options) as server, ThreadPoolExecutor(clients) as pool:
        rate = server.get("/v1/audio/voices")["data"][0]
        for _ in range(_WARM_UP):
            list(pool.map(lambda number: _once(server, number), [next(numbers) for _ in range(clients)]))
        started = perf_counter()

        def listen() -> list[Heard]:
            heard: list[Heard] = []
            connection = server.connect()
            while perf_counter() - started < seconds:
                heard.append(ask(connection, input=unlike_text(next(numbers))))
            connection.close()
            return heard

        heard = [each for future in [pool.submit(listen) for _ in range(clients)] for each in future.result()]
        elapsed = perf_counter() - started
    audio = sum(len(each.audio) for each in heard) / (2 * rate["channels"] * rate["sample_rate"])
    return ServeFigures(clients, len(heard) / elapsed, audio / elapsed, [each.first for each in heard])


def _once(server: ServerProcess, number: int) -> None:
    connection = server.connect()
    ask(connection, input=unlike_text(number))
    connection.close()
