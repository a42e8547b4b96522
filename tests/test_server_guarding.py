"""What a caller can do to a server by its bodies, its names and its numbers: little, and told in OpenAI's shape."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import pytest

from tests.serving import HEADERS, TEXT, Running, error_of, running, until
from voxradix.engine import Speaking
from voxradix.server import Settings
from voxradix.server.news import Begun, Mailbox, News
from voxradix.server.takes import KeptTake, TakeShelf
from voxradix.voice import Voice, load_voice


@pytest.fixture(scope="module")
def numbers() -> Voice:
    return load_voice("numbers")


@pytest.fixture(scope="module")
def server(numbers: Voice) -> Iterator[Running]:
    with running(numbers) as server:
        yield server


def post(server: Running, content: bytes, kind: str = "application/json") -> httpx.Response:
    return server.client.post("/v1/audio/speech", content=content, headers={"content-type": kind})


@pytest.mark.parametrize(
    "voice", ["{" + ",".join(f'"{i}":0' for i in range(700_000)) + "}", "[" + ",".join(["[]"] * 700_000) + "]"]
)
def test_a_body_of_many_parts_is_refused_before_it_is_parsed(
    voice: str, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(*_: object, **__: object) -> object:
        raise AssertionError("it is parsed")

    monkeypatch.setattr("voxradix.server.body._once", parse)
    refused = post(server, b'{"input":"one","voice":' + voice.encode() + b"}")
    assert refused.status_code == 400 and "commas and brackets" in error_of(refused)["message"]


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ('{"input":"one","voice":{"a":0,"b":1}}', "voice", "voice is an object; it must be a name or {'id': name}"),
        ('{"input":"one","voice":["numbers"]}', "voice", "voice is a list"),
        ('{"input":["one"]}', "input", "input is a list; it must be one value"),
        ('{"input":"one","seed":{"id":7}}', "seed", "seed is an object; it must be one value"),
        ('{"input":"one","seed":1,"seed":2}', "seed", "seed is given twice"),
    ],
)
def test_nested_and_doubled_values_are_refused_by_name(body: str, param: str, message: str, server: Running) -> None:
    error = error_of(post(server, body.encode()))
    assert error["param"] == param and message in error["message"]


def form(*parts: tuple[str, str], end: bytes = b"--x--\r\n") -> bytes:
    made = b""
    for head, value in parts:
        made += f"--x\r\nContent-Disposition: form-data; {head}\r\n\r\n{value}\r\n".encode("utf-8", "surrogatepass")
    return made + end


@pytest.mark.parametrize(
    ("content", "kind", "status", "message"),
    [
        (form(('name="input"', "one")), "; charset=unicode_escape", 415, "charset must be utf-8"),
        (form(('name="\\ud800"; filename="a"', "x")), "; charset=raw_unicode_escape", 415, "charset must be utf-8"),
        (form(('name="input"', "one"), end=b""), "", 400, "cut off before its last boundary"),
        (form(('name="\u00e4\u20ac"; filename="a"', "x")), "", 400, "is a file; only reference may be one"),
        (form(('name="input"', "one"), ('name="input"', "two")), "", 400, "input is given twice"),
        (
            form(('name="reference"; filename="a"', "x"), ('name="reference"', "data:audio/wav;base64,AAAA")),
            "",
            400,
            "reference is given twice",
        ),
    ],
)
def test_a_form_that_is_not_whole_and_plain_is_refused(
    content: bytes, kind: str, status: int, message: str, server: Running
) -> None:
    refused = post(server, content, f"multipart/form-data; boundary=x{kind}")
    assert refused.status_code == status and message in error_of(refused)["message"]
    param = error_of(refused)["param"]
    assert param is None or param.isascii()


def test_a_take_whose_bookkeeping_fails_ends_alone(numbers: Voice, monkeypatch: pytest.MonkeyPatch) -> None:
    proceed = Speaking.proceed

    def failing(self: Speaking, on_frame: Any = None) -> bool:
        if self._settings.seed == 13:
            raise MemoryError
        return proceed(self, on_frame)

    monkeypatch.setattr(Speaking, "proceed", failing)
    with running(numbers) as server:
        refused = server.speak(input=TEXT, seed=13)
        assert refused.status_code == 500 and error_of(refused)["type"] == "server_error"
        assert server.speak(input=TEXT, seed=12).status_code == 200
        assert server.client.get("/health").json() == {"status": "ok"}
        server.idle()


def unfinished(server: Running, body: bytes = b'{"input":') -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: {host}\r\nContent-Type: {HEADERS['content-type']}\r\n"
    connection.sendall(f"{head}Content-Length: {len(body) + 20}\r\n\r\n".encode() + body)
    return connection


def test_a_body_that_has_not_arrived_when_the_server_stops_is_told_so(numbers: Voice) -> None:
    with running(numbers, settings=Settings(stop_seconds=0.2)) as server:
        with unfinished(server) as connection:
            until(lambda: server.house.uploads._count == 1)
            server.server.should_exit = True
            reply = b"".join(iter(lambda: connection.recv(65536), b""))
        assert reply.startswith(b"HTTP/1.1 503") and b'"code":"stopping"' in reply


def test_a_head_that_does_not_arrive_has_its_time_too(numbers: Voice) -> None:
    with running(numbers, settings=Settings(body_seconds=0.3)) as server:
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        whole = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for before, sent in ((b"", b""), (b"", b"POST /v1/au"), (whole, b"GET /he")):
            with socket.create_connection(address, timeout=10) as connection:
                if before:
                    connection.sendall(before)
                    answer = b""
                    while not answer.endswith(b"}"):
                        answer += connection.recv(4096)
                connection.sendall(sent)
                with suppress(ConnectionResetError):
                    assert connection.recv(4096) == b""
        until(lambda: not server.server.server_state.connections)
        with httpx.Client(base_url=server.url) as client:
            assert all(client.get("/health").status_code == 200 for _ in range(3))


def test_bodies_on_their_way_have_a_limit_too(numbers: Voice) -> None:
    with running(numbers, settings=Settings(uploads=2)) as server:
        held = [unfinished(server) for _ in range(2)]
        until(lambda: server.house.uploads._count == 2)
        refused = server.speak(input="one")
        assert refused.status_code == 429 and refused.headers["retry-after"] == "1"
        for connection in held:
            connection.close()
        until(lambda: not server.house.uploads._count)
        assert server.speak(input="one").status_code == 200


def test_a_server_that_keeps_no_takes_serves_all_the_same(numbers: Voice) -> None:
    with running(numbers, settings=Settings(max_takes=0)) as server:
        made = server.client.post("/v1/audio/speech", json={"input": TEXT, "n": 3, "response_format": "pcm"})
        assert made.status_code == 200 and len(made.json()["data"]) == 3
        assert len(server.house.shelf) == 0
        server.idle()


def test_news_that_cannot_be_delivered_is_one_takes_own(numbers: Voice, monkeypatch: pytest.MonkeyPatch) -> None:
    put = Mailbox.put

    def failing(self: Mailbox, news: Sequence[News]) -> None:
        if any(isinstance(each, Begun) and each.seed == 13 for each in news):
            raise MemoryError
        put(self, news)

    monkeypatch.setattr(Mailbox, "put", failing)
    with running(numbers, settings=Settings(request_seconds=2.0)) as server, ThreadPoolExecutor(2) as pool:
        bad = pool.submit(server.speak, input=TEXT, seed=13)
        good = pool.submit(server.speak, input=TEXT, seed=12)
        assert good.result().status_code == 200
        bad.result()


def test_a_branch_after_the_last_seed_takes_the_first(server: Running) -> None:
    last = server.speak(input=TEXT, seed=2**63 - 1).headers["x-voxradix-take"]
    branch = server.speak(take=last, at_frames=2)
    assert branch.status_code == 200 and branch.headers["x-voxradix-seed"] == str(-(2**63))


def test_a_body_that_comes_slowly_and_steadily_has_more_time(numbers: Voice) -> None:
    with running(numbers, settings=Settings(body_seconds=0.5)) as server:
        text = b'{"input": "one", "said": "' + b"x" * 40_000 + b'"}'
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: {len(text)}\r\n\r\n".encode())
            for start in range(0, len(text), 10_000):
                connection.sendall(text[start : start + 10_000])
                time.sleep(0.25)
            assert connection.recv(64).startswith(b"HTTP/1.1 400")  # for the field, not the time


def test_sums_are_the_callers_own(numbers: Voice) -> None:
    with running(numbers, settings=Settings(keys=("alice", "bob"))) as server:

        def asked(key: str, path: str, **body: object) -> dict[str, Any]:
            headers = {"authorization": f"Bearer {key}"}
            if body:
                server.client.post(path, json=body, headers=headers)
                return {}
            stats: dict[str, Any] = server.client.get(path, headers=headers).json()
            return stats

        before = asked("bob", "/v1/stats")
        for _ in range(2):
            asked("alice", "/v1/audio/speech", input=TEXT)
        after, hers = asked("bob", "/v1/stats"), asked("alice", "/v1/stats")
        names = ("requests", "frames", "prompt_rows", "reused_prompt_rows", "reused_generated_rows", "recomputed_rows")
        assert all(after[name] == before[name] == 0 for name in names)
        assert hers["requests"] == 2 and hers["frames"] > 0 and hers["reused_prompt_rows"] > 0


def test_who_keeps_most_makes_room(numbers: Voice) -> None:
    with running(numbers) as server:
        name = server.speak(input="one").headers["x-voxradix-take"]
        take = server.house.shelf.get(name, "").take
    shelf = TakeShelf(4, 10_000)
    shelf.keep(KeptTake("hers", "alice", take, 0, ()))
    for number in range(6):
        shelf.keep(KeptTake(f"his {number}", "bob", take, 0, ()))
    assert len(shelf) == 4 and shelf.get("hers", "alice").take is take
    assert shelf.get("his 3", "bob").take is take


def test_methods_and_paths_are_told_as_http_tells_them(server: Running) -> None:
    wrong = server.client.put("/v1/stats")
    assert wrong.status_code == 405 and wrong.headers["allow"] == "GET" and error_of(wrong)["code"]
    for path in ("/", "/health"):
        head = server.client.head(path)
        assert head.status_code == 200 and not head.content
    assert server.client.get("/v1/stats/").status_code == 404
    assert server.client.get("/health", headers={"host": "evil.example@localhost"}).status_code == 403


def test_small_answers_leave_at_once(server: Running) -> None:
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(4096)
        transports = [each.transport for each in server.server.server_state.connections]
        flags = [
            transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            for transport in transports
        ]
        assert flags and all(flags)


def test_errors_never_leave_their_shape(server: Running) -> None:
    for body in (b"", b"[]", b'"x"', b"\xff", b"{" * 1000, json.dumps({"input": None}).encode()):
        assert error_of(post(server, body))["type"] == "invalid_request_error"
