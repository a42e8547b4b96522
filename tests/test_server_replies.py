"""Replies: nobody's audio waits for a reader who is slow, gone or unlucky, and cut audio never looks whole."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.requests import patch_frames
from tests.serving import BUFFER, TEXT, Running, error_of, events, raw_request, running, until
from voxradix import VoxradixError
from voxradix.audio import CodecStream, containers
from voxradix.audio.spectral import SpectralCodec, SpectralStream
from voxradix.engine import StepReport
from voxradix.engine.decode import NOT_FINITE
from voxradix.engine.loop import StepLoop
from voxradix.engine.runner import StepOutput
from voxradix.server import Settings
from voxradix.server.decoder import Decoder
from voxradix.voice import Voice, load_voice

PCM = containers(24000)["pcm"]
ILL = 5
"""A code at the head of a frame that breaks its pass."""


class Narrow:
    """The spectral codec with room for a few streams, which can be made slow and made to fail."""

    def __init__(self, codec: SpectralCodec, room: int = 1000) -> None:
        self._codec = codec
        self.sample_rate, self.samples_per_frame = codec.sample_rate, codec.samples_per_frame
        self.channels, self.codebooks = codec.channels, codec.codebooks
        self.room = room
        self.open: set[SpectralStream] = set()
        self.passes: list[list[int]] = []
        self.seconds = 0.0
        self.error: Callable[[], BaseException] | None = None

    def decode(self, codes: Tensor) -> Tensor:
        return self._codec.decode(codes)

    def stream(self) -> CodecStream:
        if len(self.open) >= self.room:
            raise VoxradixError("the codec has room for no more streams")
        stream = self._codec.stream()
        finish = stream.finish
        self.open.add(stream)

        def closed() -> None:
            self.open.discard(stream)

        def finished() -> Tensor:
            closed()
            return finish()

        stream.close, stream.finish = closed, finished  # type: ignore[method-assign]
        return stream

    def push(self, parts: Mapping[CodecStream, Tensor]) -> dict[CodecStream, Tensor]:
        self.passes.append([len(codes) for codes in parts.values()])
        time.sleep(self.seconds)
        assert self.open.issuperset(parts)
        ill = [stream for stream, codes in parts.items() if self.error is not None and bool((codes[:, 0] == ILL).any())]
        if ill and self.error is VoxradixError:  # it says that nothing is decoded
            raise self.error()
        made = {}
        for stream, codes in parts.items():
            if self.error is not None and stream in ill:
                raise self.error()
            made[stream] = stream.push(codes)
        return made

    @property
    def frames(self) -> int:
        return sum(sum(each) for each in self.passes)


@pytest.fixture(scope="module")
def numbers() -> Voice:
    return load_voice("numbers")


@pytest.fixture
def patience(numbers: Voice, monkeypatch: pytest.MonkeyPatch) -> None:
    """No frame ends the audio: requests spend their budgets."""
    patch_frames(numbers, monkeypatch, lambda frames: replace(frames, stop=torch.zeros_like(frames.stop)))


@pytest.fixture
def narrow(numbers: Voice) -> Narrow:
    assert isinstance(numbers.codec, SpectralCodec)
    return Narrow(numbers.codec)


@pytest.fixture
def narrowed(numbers: Voice, narrow: Narrow) -> Voice:
    voice = replace(numbers)
    vars(voice)["codec"] = narrow
    return voice


def frames(count: int, seed: int = 0, ill: int | None = None) -> Tensor:
    codes = torch.randint(8, 64, (count, 12), generator=torch.Generator().manual_seed(seed))
    if ill is not None:
        codes[ill, 0] = ILL
    return codes


def pcm(narrow: Narrow, codes: Tensor) -> bytes:
    writer = PCM.writer(24000, 1)
    return writer.write(narrow.decode(codes)) + writer.end()


async def heard(decoder: Decoder, codes: Tensor, size: int = 5) -> bytes:
    """The audio of codes for a reader who asks for a few frames at a time."""
    sounding = decoder.open(PCM.writer(24000, 1))
    try:
        data = b""
        for part in codes.split(size):
            data += await decoder.sound(sounding, part, last=False)
        return data + await decoder.sound(sounding, codes[:0], last=True)
    finally:
        decoder.close(sounding)


def request_audio(server: Running, name: str) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    connection.sendall(f"GET /v1/takes/{name}/audio?response_format=pcm HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    return connection


def body_of(connection: socket.socket) -> bytes:
    with http.client.HTTPResponse(connection) as reply:
        reply.begin()
        return reply.read()


# whole files


def test_whole_files_that_nobody_waits_for_any_longer_are_not_made(
    narrowed: Voice, narrow: Narrow, patience: None
) -> None:
    with running(narrowed) as server:
        name = server.speak(input=TEXT, seed=1, max_frames=150).headers["x-voxradix-take"]
        before = narrow.frames
        for connection in [request_audio(server, name) for _ in range(30)]:
            connection.close()
        whole = server.client.get(f"/v1/takes/{name}/audio", params={"response_format": "pcm"})
        assert len(whole.content) == 150 * 2 * 1920
        until(lambda: server.house.admission.replies == 0)
        assert narrow.frames - before < 4 * 150 and not narrow.open


def test_a_whole_file_is_refused_where_replies_are_full_and_the_refusal_says_what_is(
    numbers: Voice, patience: None
) -> None:
    with running(numbers, settings=Settings(readers=2)) as server:
        name = server.speak(input="one", seed=1, max_frames=3).headers["x-voxradix-take"]
        held = [raw_request(server, input=TEXT, max_frames=200, seed=seed) for seed in range(2)]
        until(lambda: server.house.admission.replies == 2)
        until(lambda: not server.house.desk._watches)
        for reply in (server.client.get(f"/v1/takes/{name}/audio"), server.speak(input="one")):
            error = error_of(reply)
            assert reply.status_code == 429 and int(reply.headers["retry-after"]) >= 1
            assert error["message"].startswith("2 replies are on their way") and error["code"] == "queue_full"
        for connection in held:
            connection.close()


def test_a_whole_file_has_the_time_of_a_request_and_ends_when_the_server_does(
    narrowed: Voice, narrow: Narrow, patience: None
) -> None:
    with running(narrowed, settings=Settings(request_seconds=3)) as server:
        name = server.speak(input=TEXT, seed=1, max_frames=48).headers["x-voxradix-take"]
        narrow.seconds = 1.5
        late = server.client.get(f"/v1/takes/{name}/audio")
        assert late.status_code == 504 and error_of(late)["code"] == "timeout"
        connection = request_audio(server, name)
        until(lambda: server.house.admission.replies == 1)
        server.house.cut.set()
        assert json.loads(body_of(connection))["error"]["code"] == "stopping"
        connection.close()


def test_live_audio_does_not_wait_for_a_whole_file(narrow: Narrow) -> None:
    async def both() -> list[str]:
        decoder, order = Decoder(narrow), []

        async def whole() -> None:
            assert await decoder.whole(PCM, frames(240)) == pcm(narrow, frames(240))
            order.append("whole")

        async def live(seed: int) -> None:
            assert await heard(decoder, frames(40, seed)) == pcm(narrow, frames(40, seed))
            order.append("live")

        first = asyncio.create_task(whole())
        await asyncio.sleep(0.01)
        await asyncio.gather(live(1), live(2))
        await first
        decoder.shut()
        return order

    assert asyncio.run(both()) == ["live", "live", "whole"]
    assert max(sum(each) for each in narrow.passes) <= 12


def test_a_pass_is_bounded_however_many_wait(narrow: Narrow) -> None:
    async def many() -> None:
        decoder = Decoder(narrow)
        await asyncio.gather(*(heard(decoder, frames(24, seed), size=24) for seed in range(40)))
        decoder.shut()

    asyncio.run(many())
    assert max(sum(each) for each in narrow.passes) <= 16 * 12


# streams of the codec


def test_slow_readers_lose_their_streams_to_others_and_none_of_their_audio(
    narrowed: Voice, narrow: Narrow, patience: None
) -> None:
    with running(narrowed) as server:
        want = [server.speak(input=TEXT, seed=seed, max_frames=250).content for seed in range(2)]
        fast = server.speak(input=TEXT, seed=2, max_frames=10).content
        narrow.room = 2
        slow = [raw_request(server, input=TEXT, seed=seed, max_frames=250) for seed in range(2)]
        until(lambda: len(narrow.open) == 2)
        until(lambda: server.house.desk.snapshot.totals.requests == 5)
        assert server.speak(input=TEXT, seed=2, max_frames=10).content == fast
        for connection, whole in zip(slow, want, strict=True):
            assert body_of(connection) == whole
            connection.close()
        server.idle()
        until(lambda: not narrow.open)


def test_a_reader_who_keeps_up_keeps_its_stream(narrow: Narrow) -> None:
    async def full() -> None:
        decoder = Decoder(narrow)
        narrow.room = 1
        first, second = (asyncio.create_task(heard(decoder, frames(30, seed))) for seed in range(2))
        await asyncio.gather(first, second)
        decoder.shut()

    asyncio.run(full())
    assert narrow.frames == 60, "nothing was decoded twice"


def test_who_hangs_up_while_waiting_for_a_stream_keeps_nobody_from_it(narrow: Narrow) -> None:
    async def three() -> bytes:
        decoder = Decoder(narrow)
        narrow.room = 1
        holder = decoder.open(PCM.writer(24000, 1))
        await decoder.sound(holder, frames(1), last=False)
        second, third = (asyncio.create_task(heard(decoder, frames(10))) for _ in range(2))
        await asyncio.sleep(0.05)
        decoder.close(holder)
        await asyncio.sleep(0)
        second.cancel()
        data = await asyncio.wait_for(third, 10)
        with suppress(asyncio.CancelledError):
            await second
        await decoder.run(lambda: None)
        assert not narrow.open
        decoder.shut()
        return data

    assert asyncio.run(three()) == pcm(narrow, frames(10))


@pytest.mark.parametrize("error", [MemoryError, SystemExit, StopIteration, VoxradixError])
def test_a_piece_that_breaks_its_pass_fails_alone(narrow: Narrow, error: Callable[[], BaseException]) -> None:
    async def several() -> list[bytes | BaseException]:
        decoder = Decoder(narrow)
        narrow.error = error
        ill = [None, 23, None]
        replies = [heard(decoder, frames(40, seed, ill[seed])) for seed in range(3)]
        told = await asyncio.wait_for(asyncio.gather(*replies, return_exceptions=True), 30)
        await decoder.run(lambda: None)
        assert not narrow.open
        decoder.shut()
        return told

    first, second, third = asyncio.run(several())
    assert isinstance(second, Exception)
    assert [first, third] == [pcm(narrow, frames(40, seed)) for seed in (0, 2)]


# connections


def test_clients_that_never_read_leave_nothing_behind(numbers: Voice, patience: None) -> None:
    with running(numbers, settings=Settings(request_seconds=1), max_batch=8) as server:
        held = [raw_request(server, input=TEXT, max_frames=300, seed=seed) for seed in range(4)]
        held += [raw_request(server, input=TEXT, max_frames=300, stream_format="sse") for _ in range(4)]
        connections = server.server.server_state.connections
        until(lambda: server.house.admission.replies == 8)
        until(lambda: server.house.admission.replies == 0)
        # one whose answer is whole and taken by its socket may ask again
        until(lambda: not any(each.transport.get_write_buffer_size() for each in list(connections)), 4)
        for connection in held:
            connection.close()


def test_a_whole_file_that_nobody_reads_leaves_no_connection_behind(numbers: Voice, patience: None) -> None:
    with running(numbers) as server:
        name = server.speak(input=TEXT, max_frames=300).headers["x-voxradix-take"]
        object.__setattr__(server.house.settings, "request_seconds", 1.0)
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        host, port = server.url.removeprefix("http://").split(":")
        connection.connect((host, int(port)))
        connection.sendall(
            f"GET /v1/takes/{name}/audio?response_format=pcm HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        )
        connections = server.server.server_state.connections
        until(lambda: len(connections) == 2)
        until(lambda: len(connections) == 1, 5)
        connection.close()


def test_an_older_client_is_reset_when_its_audio_is_cut(numbers: Voice, patience: None) -> None:
    with running(numbers, settings=Settings(request_seconds=2)) as server:
        host, port = server.url.removeprefix("http://").split(":")
        body = json.dumps({"input": TEXT, "response_format": "pcm", "max_frames": 2000}).encode()
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(
                b"POST /v1/audio/speech HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
            )
            assert connection.recv(15) == b"HTTP/1.1 200 OK"
            with pytest.raises(ConnectionResetError):
                while connection.recv(65536):
                    pass


# several takes


@pytest.fixture
def unlucky(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes takes of seed 13 fail after so many frames."""
    resolve = StepLoop._resolve

    def after(count: int) -> None:
        def poisoned(self: StepLoop, output: StepOutput) -> StepReport:
            ill = torch.tensor([each.seed == 13 and len(each.frames) >= count for each in output.requests])
            return resolve(self, replace(output, next_ids=output.next_ids.masked_fill(ill, NOT_FINITE)))

        monkeypatch.setattr(StepLoop, "_resolve", poisoned)

    return after


def audio_of(told: list[dict[str, object]], index: int) -> bytes:
    deltas = [str(e["audio"]) for e in told if e["index"] == index and e["type"] == "speech.audio.delta"]
    return b"".join(map(base64.b64decode, deltas))


def test_each_take_s_events_flow_as_soon_as_it_begins(numbers: Voice, patience: None) -> None:
    with running(numbers, max_batch=1) as server:
        want = [server.speak(input=TEXT, seed=seed, max_frames=30).content for seed in (4, 5)]
        reply = server.speak(input=TEXT, seed=4, n=2, max_frames=30, stream_format="sse", details=True)
        told = events(reply.text)
        kinds = [(event["index"], event["type"]) for event in told]
        assert kinds.index((0, "speech.audio.delta")) < kinds.index((1, "voxradix.begin"))
        assert [audio_of(told, index) for index in range(2)] == want
        assert reply.headers["x-voxradix-seed"] == "4,5"
        assert [event["seed"] for event in told if event["type"] == "voxradix.begin"] == [4, 5]


@pytest.mark.parametrize("frames_before", [0, 4])
def test_a_take_that_fails_is_told_by_its_number_and_the_others_are_whole(
    numbers: Voice, patience: None, unlucky: Callable[[int], None], frames_before: int
) -> None:
    with running(numbers, max_batch=1) as server:
        want = server.speak(input=TEXT, seed=12, max_frames=20).content
        unlucky(frames_before)
        told = events(server.speak(input=TEXT, seed=12, n=2, max_frames=20, stream_format="sse").text)
        assert audio_of(told, 0) == want
        assert [event["index"] for event in told if event["type"] == "speech.audio.done"] == [0]
        (error,) = [event for event in told if event["type"] == "error"]
        assert error["index"] == 1 and error["error"]["message"].startswith("the request failed: ")
        server.idle()


def test_a_first_take_that_fails_before_its_first_frame_gives_the_reply_its_status(
    numbers: Voice, unlucky: Callable[[int], None]
) -> None:
    unlucky(0)
    with running(numbers, max_batch=1) as server:
        reply = server.speak(input=TEXT, seed=13, n=2, stream_format="sse")
        assert reply.status_code == 500 and error_of(reply)["message"].startswith("the request failed: ")
        server.idle()


def test_a_take_that_fails_while_another_waits_is_the_list_s_error(
    numbers: Voice, patience: None, unlucky: Callable[[int], None]
) -> None:
    unlucky(4)
    with running(numbers, max_batch=1) as server:
        reply = server.speak(input=TEXT, seed=13, n=2, max_frames=20)
        assert reply.status_code == 500 and error_of(reply)["message"].startswith("the request failed: ")
        server.idle()
