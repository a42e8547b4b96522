"""The server's limits: one request's trouble is its own, and what is over leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import torch

from tests.requests import patch_frames
from tests.serving import TEXT, error_of, events, raw_request, running, until
from voxradix import Engine, VoxradixError
from voxradix.cli.serve import require_server
from voxradix.engine import Request, StepReport
from voxradix.engine.decode import NOT_FINITE
from voxradix.engine.loop import StepLoop
from voxradix.engine.runner import Flight, StepOutput
from voxradix.engine.scheduler import Plan
from voxradix.server import Settings, read_key_file, read_keys
from voxradix.server.desk import Desk
from voxradix.server.keys import Keys
from voxradix.server.lead import FIRST_SECONDS, MOST_SECONDS, Lead
from voxradix.voice import Voice, load_voice


@pytest.fixture(scope="module")
def numbers() -> Voice:
    return load_voice("numbers")


@pytest.fixture
def patience(numbers: Voice, monkeypatch: pytest.MonkeyPatch) -> None:
    """No frame ends the audio: requests spend their budgets."""
    patch_frames(numbers, monkeypatch, lambda frames: replace(frames, stop=torch.zeros_like(frames.stop)))


def test_a_client_that_hangs_up_frees_its_rows_within_a_step(numbers: Voice, patience: None) -> None:
    with running(numbers) as server:
        other = server.speak(input="one", seed=1, max_frames=5).content
        connection = raw_request(server, input=TEXT, max_frames=600)
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        until(lambda: server.house.desk.snapshot.running == 1)
        connection.close()
        until(lambda: server.house.desk.snapshot.running == 0)
        now = server.house.desk.snapshot
        assert now.occupancy.held == 0 and now.totals.aborted == 1
        server.idle()
        assert len(server.house.shelf) == 1, "a take that was left is not kept"
        assert server.speak(input="one", seed=1, max_frames=5).content == other


def test_an_abort_gives_the_rows_back_before_the_next_step(numbers: Voice, patience: None) -> None:
    """At the desk itself: between the word that a reader has gone and the rows' return lies no step."""
    with running(numbers) as server:
        aborted: list[int] = []
        steps = 0
        engine = server.engine
        step, abort = engine.step, engine.abort

        def counted() -> object:
            nonlocal steps
            steps += 1
            return step()

        def noted(request: Request) -> None:
            abort(request)
            aborted.append(engine.occupancy().held)

        engine.step, engine.abort = counted, noted  # type: ignore[method-assign, assignment]
        connection = raw_request(server, input=TEXT, max_frames=600)
        connection.recv(15)
        put: list[int] = []
        leave = server.house.desk.leave

        def leaving(mailboxes: object) -> None:
            if mailboxes:
                put.append(steps)
            leave(mailboxes)  # type: ignore[arg-type]

        server.house.desk.leave = leaving  # type: ignore[method-assign]
        connection.close()
        until(lambda: bool(aborted))
        assert aborted == [0] and steps - put[0] <= 1


def test_a_slow_reader_slows_only_itself(numbers: Voice, patience: None) -> None:
    with running(numbers, settings=Settings(queue=0), max_batch=1) as server:
        slow = raw_request(server, input=TEXT, seed=1, max_frames=200)
        until(lambda: server.house.desk.snapshot.totals.requests == 1)
        fast = server.speak(input=TEXT, seed=7, max_frames=10)
        assert fast.status_code == 200, "the place of a take whose audio is made is free, read or not"
        until(lambda: server.house.admission.replies == 1)  # the fast one's has come to its end, the slow one's not
        assert server.house.desk.snapshot.totals.requests == 2
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += slow.recv(65536)
        assert len(data) > 2 * 1920 * 200, "it gets all of its audio"
        slow.close()


def test_a_full_queue_says_when_to_come_back(numbers: Voice, patience: None) -> None:
    with running(numbers, settings=Settings(queue=1), max_batch=1) as server:
        held = [raw_request(server, input=TEXT, max_frames=400) for _ in range(2)]
        until(lambda: server.house.admission.replies == 2)
        refused = server.speak(input="one")
        assert refused.status_code == 429 and 1 <= int(refused.headers["retry-after"]) <= 60
        assert error_of(refused)["code"] == "queue_full"
        too_many = server.speak(input="one", n=3)
        assert too_many.status_code == 400 and error_of(too_many)["param"] == "n"
        for connection in held:
            connection.close()
        server.idle()
        assert server.speak(input="one", max_frames=3).status_code == 200


def test_a_request_that_takes_too_long_ends_and_says_so(numbers: Voice, patience: None) -> None:
    with running(numbers, settings=Settings(request_seconds=0.7), max_batch=1) as server:
        reply = server.speak(input=TEXT, stream_format="sse", max_frames=600)
        assert reply.status_code == 200 and events(reply.text)[-1]["error"]["code"] == "timeout"
        with pytest.raises(httpx.RemoteProtocolError):
            server.speak(input=TEXT, max_frames=600)
        first = raw_request(server, input=TEXT, max_frames=600)
        until(lambda: server.house.admission.replies == 1)
        waiting = server.speak(input=TEXT, max_frames=600)
        assert waiting.status_code in (200, 504)
        first.close()
        server.idle()


def test_a_failing_step_fails_its_requests_and_no_other(
    numbers: Voice, monkeypatch: pytest.MonkeyPatch, patience: None
) -> None:
    with running(numbers) as server:
        want = server.speak(input=TEXT, seed=7, max_frames=12).content
        launch = server.engine._loop._runner.launch
        fail = threading.Event()

        def broken(plan: Plan) -> Flight:
            if fail.is_set():
                fail.clear()
                raise RuntimeError("a kernel has failed")
            return launch(plan)

        monkeypatch.setattr(server.engine._loop._runner, "launch", broken)
        fail.set()
        reply = server.speak(input=TEXT, seed=7, max_frames=12)
        assert reply.status_code == 500 and error_of(reply)["type"] == "server_error"
        assert "RuntimeError" in error_of(reply)["message"]
        streaming = raw_request(server, input=TEXT, max_frames=600)
        streaming.recv(15)
        fail.set()
        while streaming.recv(65536):
            pass  # the connection is broken off, not left hanging
        assert server.speak(input=TEXT, seed=7, max_frames=12).content == want
        assert server.client.get("/health").json() == {"status": "ok"}
        server.idle()


def test_one_request_whose_frame_is_not_finite_fails_alone(numbers: Voice, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(numbers) as server:
        want = server.speak(input=TEXT, seed=7).content
        resolve = StepLoop._resolve

        def poisoned(self: StepLoop, output: StepOutput) -> StepReport:
            ill = torch.tensor([request.seed == 13 for request in output.requests], dtype=torch.bool)
            return resolve(self, replace(output, next_ids=output.next_ids.masked_fill(ill, NOT_FINITE)))

        monkeypatch.setattr(StepLoop, "_resolve", poisoned)
        with ThreadPoolExecutor(2) as pool:
            bad = pool.submit(server.speak, input=TEXT, seed=13)
            good = pool.submit(server.speak, input=TEXT, seed=7)
        assert bad.result().status_code == 500 and good.result().content == want


def test_a_dead_engine_is_told_and_nobody_waits_for_it(numbers: Voice, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(numbers) as server:
        monkeypatch.setattr(server.engine, "step", lambda: None)  # it stands still
        assert server.speak(input=TEXT).status_code == 503
        assert server.client.get("/health").json()["status"] == "down"
        for reply in (server.speak(input=TEXT), server.client.get("/v1/tree"), server.client.get("/health")):
            assert reply.status_code == 503
        assert server.client.get("/v1/stats").json()["status"] == "down"


def test_keys_open_the_server_and_keep_callers_apart(numbers: Voice) -> None:
    with running(numbers, settings=Settings(keys=("alice-key", "bob-key"))) as server:
        alice, bob = ({"authorization": f"Bearer {name}-key"} for name in ("alice", "bob"))

        def speak(headers: dict[str, str], **values: object) -> httpx.Response:
            return server.client.post("/v1/audio/speech", json={"response_format": "pcm", **values}, headers=headers)

        for wrong in (
            {},
            {"authorization": "Bearer alice"},
            {"authorization": "Basic alice-key"},
            {"authorization": "Bearer é"},
        ):
            encoded = {name: value.encode("latin-1") for name, value in wrong.items()}
            for path in ("/v1/models", "/v1/stats", "/metrics", "/v1/tree", "/v1/takes/x"):
                reply = server.client.get(path, headers=encoded)  # type: ignore[arg-type]
                assert reply.status_code == 401 and error_of(reply)["code"] == "invalid_api_key"
        assert speak({}, input="one").status_code == 401
        assert server.client.get("/health").status_code == server.client.get("/").status_code == 200

        first = speak(alice, input=TEXT, seed=7)
        hers, his = speak(alice, input=TEXT, seed=7), speak(bob, input=TEXT, seed=7)
        assert first.content == hers.content == his.content
        assert int(hers.headers["x-voxradix-reused-rows"]) > 0
        assert his.headers["x-voxradix-reused-rows"] == "0", "rows are not shared between keys"
        take = first.headers["x-voxradix-take"]
        assert server.client.get(f"/v1/takes/{take}", headers=alice).status_code == 200
        assert server.client.get(f"/v1/takes/{take}", headers=bob).status_code == 404
        assert speak(bob, take=take, at_frames=3).status_code == 404
        assert server.client.delete(f"/v1/takes/{take}", headers=bob).status_code == 404
        assert server.client.get(f"/v1/takes/{take}", headers=alice).status_code == 200
        ids = [
            {node["id"] for node in server.client.get("/v1/tree", headers=who).json()["nodes"]} for who in (alice, bob)
        ]
        assert ids[0] and ids[1] and not ids[0] & ids[1], "each sees rows of its own"


def test_a_salt_does_not_tell_its_key() -> None:
    keys = Keys(["a-secret"])
    salt = keys.salt("Bearer a-secret")
    assert "a-secret" not in salt and len(salt) == 64 and salt != Keys(["another"]).salt("Bearer another")


def test_keys_are_read_one_a_line_or_with_commas(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("one\n two ,three\n\none\n")
    assert read_key_file(file) == ("one", "two", "three") == read_keys("one,two,three", "here")
    for bad in ("", " \n", "with space", "schlüssel"):
        with pytest.raises(ValueError, match="key"):
            read_keys(bad, "here")
    with pytest.raises(ValueError, match="cannot be read"):
        read_key_file(tmp_path / "none")


def test_the_least_recently_used_take_goes(numbers: Voice) -> None:
    with running(numbers, settings=Settings(max_takes=2)) as server:
        names = [server.speak(input="one", seed=seed).headers["x-voxradix-take"] for seed in (1, 2)]
        assert server.client.get(f"/v1/takes/{names[0]}").status_code == 200
        server.speak(input="one", seed=3)
        assert [server.client.get(f"/v1/takes/{name}").status_code for name in names] == [200, 404]
    with running(numbers, settings=Settings(max_take_frames=20)) as server:
        for seed in range(4):
            server.speak(input=TEXT, seed=seed)
            assert server.house.shelf._frames.total() <= 20


def test_a_foreign_page_cannot_use_a_server_without_keys(numbers: Voice) -> None:
    with running(numbers) as server:
        body = {"input": "one", "max_frames": 2}
        own = server.client.post("/v1/audio/speech", json=body, headers={"origin": server.url})
        assert own.status_code == 200
        for origin in ("https://example.com", "null", "http://127.0.0.1:1", "http://[", server.url + ".example.com"):
            reply = server.client.post("/v1/audio/speech", json=body, headers={"origin": origin})
            assert reply.status_code == 403 and error_of(reply)["code"] == "foreign_origin"
        for host in ("example.com", "127.0.0.1.example.com", "", "[::"):
            reply = server.client.get("/v1/stats", headers={"host": host})
            assert reply.status_code in (400, 403)
        assert server.client.get("/health", headers={"host": "localhost:99"}).status_code == 200
        assert "access-control-allow-origin" not in own.headers


def test_pieces_grow_with_the_lead() -> None:
    lead, sizes, now = Lead(), [], 0.0
    for _ in range(12):
        sizes.append(lead.piece(now))
        lead.sent(sizes[-1], now)
        now += sizes[-1] / 4  # four times as fast as it is heard
    assert sizes[0] == FIRST_SECONDS and sizes[-1] == MOST_SECONDS and sizes == sorted(sizes)
    assert lead.piece(now + 1000) == FIRST_SECONDS, "small again when the listener waits"


def test_first_audio_leaves_while_the_rest_is_made(numbers: Voice, patience: None) -> None:
    with (
        running(numbers) as server,
        server.client.stream(
            "POST", "/v1/audio/speech", json={"input": TEXT, "response_format": "pcm", "max_frames": 200}
        ) as reply,
    ):
        first = next(reply.iter_raw())
        assert 0 < len(first) <= 2 * 1920 * 4
        assert server.house.desk.snapshot.totals.requests == 0, "the take is still under way"


def test_what_an_engine_cannot_be_made_of_is_raised_where_it_is_asked_for(numbers: Voice) -> None:
    def make() -> Engine:
        return Engine(numbers, max_batch=0)

    with pytest.raises(ValueError, match="max_batch is 0"):
        Desk(make)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "voxradix", "serve", "--port", "0", "--stop-seconds", "3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
    )
    yield process
    process.kill()
    process.wait()


def test_sigterm_lets_a_request_end_and_the_process_exits_in_order(served: subprocess.Popen[str]) -> None:
    assert served.stdout is not None and served.stderr is not None
    line = served.stdout.readline()
    url = line.split()[-1]
    assert line.startswith("voxradix: listening on http://127.0.0.1:")
    long = {"input": "four eight one five nine two three", "seed": 1, "response_format": "pcm"}
    with httpx.Client(base_url=url, timeout=60) as client:
        want = client.post("/v1/audio/speech", json=long).content
        with client.stream("POST", "/v1/audio/speech", json=long) as reply:
            pieces = reply.iter_raw()
            first = next(pieces)
            served.send_signal(signal.SIGTERM)
            assert first + b"".join(pieces) == want, "what runs is spoken to its end"
    assert served.wait(30) == 0
    told = served.stderr.read()
    assert told.count("\n") == 1 and "stopping: 1 requests are under way" in told and served.stdout.read() == ""


def test_told_to_stop_twice_it_stops_at_once_without_a_sound(served: subprocess.Popen[str]) -> None:
    assert served.stdout is not None and served.stderr is not None
    url = served.stdout.readline().split()[-1]
    text = {"input": "four eight one five nine two three. " * 20, "response_format": "pcm"}
    with httpx.Client(base_url=url, timeout=60) as client, client.stream("POST", "/v1/audio/speech", json=text) as got:
        pieces = got.iter_raw()  # held: httpx hangs up when it goes
        next(pieces)
        for _ in range(2):
            served.send_signal(signal.SIGINT)
            time.sleep(0.3)
        assert served.wait(10) == 0
    assert "Traceback" not in served.stderr.read()


def test_a_server_that_stops_refuses_new_requests_and_cuts_what_does_not_end(numbers: Voice, patience: None) -> None:
    with running(numbers, settings=Settings(stop_seconds=0.5)) as server:
        with ThreadPoolExecutor(1) as pool:
            long = pool.submit(server.speak, input=TEXT, max_frames=600, stream_format="sse")
            until(lambda: server.house.desk.snapshot.running == 1)
            server.server.should_exit = True
            until(lambda: not server.house.admission.open)
            refused = server.client.post("/v1/audio/speech", json={"input": "one"})
            assert refused.status_code == 503 and error_of(refused)["code"] == "stopping"
            assert int(refused.headers["retry-after"]) > 0
            assert server.client.get("/health").json()["status"] == "stopping"
        assert events(long.result().text)[-1]["error"]["code"] == "stopping"


def test_audio_that_is_made_and_not_read_when_the_server_stops_is_told_to_be_cut(
    numbers: Voice, patience: None
) -> None:
    with running(numbers) as server:
        slow = raw_request(server, input=TEXT, max_frames=200, stream_format="sse")
        until(lambda: server.house.desk.snapshot.totals.requests == 1)
        server.house.cut.set()
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += slow.recv(65536)
        slow.close()
        assert b'"code":"stopping"' in data and b"speech.audio.done" not in data


def test_an_address_that_is_taken_is_one_line_and_exit_code_2() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = subprocess.run(
            [sys.executable, "-m", "voxradix", "serve", "--port", str(taken.getsockname()[1])],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.count("\n") == 1 and "cannot listen on 127.0.0.1" in result.stderr


def test_without_its_libraries_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(VoxradixError, match=r'pip install "voxradix\[serve\]"'):
        require_server()
