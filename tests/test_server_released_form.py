"""A checkpoint of the released form over HTTP: stereo sound, details, recordings, and a codec with few places."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from tests.serving import Running, error_of, events, running
from tests.test_released_form import directory, trusting  # noqa: F401
from voxradix import Engine, Take
from voxradix.audio import load_moss_codec
from voxradix.models.moss_local import Details
from voxradix.voice import Voice


@pytest.fixture
def server(trusting: Voice) -> Iterator[Running]:  # noqa: F811
    with running(trusting, pool_rows=1200) as started:
        yield started


def recording() -> bytes:
    buffer = io.BytesIO()
    noise = torch.rand(24000, generator=torch.Generator().manual_seed(0)) - 0.5
    soundfile.write(buffer, noise.numpy(), 24000, format="WAV")
    return buffer.getvalue()


def assert_sounds(data: bytes, voice: Voice, take: Take) -> None:
    """16-bit samples in two channels, within a step of the whole decode: this codec rounds anew in pieces."""
    want = voice.codec.decode(take.codes).numpy()
    got = np.frombuffer(data, dtype="<i2").reshape(-1, 2) / 32768
    assert got.shape == want.shape and np.abs(got - want).max() < 1e-4


def test_details_and_a_recording_are_the_engine_s(server: Running, trusting: Voice) -> None:  # noqa: F811
    details = Details(language="English", instruction="Softly.")
    codes = trusting.reference(recording())
    want = Engine(trusting, pool_rows=1200).speak("Hello.", details=details, references=[codes], seed=1, max_frames=6)
    fields = {"input": "Hello.", "seed": 1, "max_frames": 6, "language": "English", "instructions": "Softly."}
    uri = "data:audio/wav;base64," + base64.b64encode(recording()).decode()
    told = server.speak(**fields, reference=uri)
    assert told.status_code == 200, told.text
    assert_sounds(told.content, trusting, want)
    assert told.headers["x-voxradix-channels"] == "2" and told.headers["x-voxradix-sample-rate"] == "1000"
    parts = {name: (None, str(value)) for name, value in (fields | {"response_format": "pcm"}).items()}
    form = server.client.post("/v1/audio/speech", files={**parts, "reference": ("voice.wav", recording())})
    assert form.content == told.content
    assert int(form.headers["x-voxradix-reused-rows"]) == want.prompt_rows - 1
    accepts = server.client.get("/v1/audio/voices").json()["data"][0]["accepts"]
    assert accepts == {"language": True, "instructions": True, "reference": True}


@pytest.mark.parametrize("data", [b"RIFF", b"not sound", recording()[:60]])
def test_a_recording_that_cannot_be_read_is_named(server: Running, data: bytes) -> None:
    parts: dict[str, Any] = {"input": (None, "Hello."), "response_format": (None, "wav"), "reference": ("a.wav", data)}
    reply = server.client.post("/v1/audio/speech", files=parts)
    assert reply.status_code == 400 and error_of(reply)["param"] == "reference"


def test_files_have_both_channels_and_only_formats_that_know_the_rate_are_offered(server: Running) -> None:
    assert server.client.get("/v1/audio/voices").json()["data"][0]["formats"] == ["wav", "pcm", "flac"]
    for name in ("wav", "flac"):
        reply = server.speak(input="Hello.", seed=1, max_frames=6, response_format=name)
        with soundfile.SoundFile(io.BytesIO(reply.content)) as file:
            assert file.channels == 2 and file.samplerate == 1000
    for name in ("mp3", "opus"):
        reply = server.speak(input="Hello.", response_format=name)
        assert reply.status_code == 400 and error_of(reply)["param"] == "response_format"


def test_more_takes_than_the_codec_has_places_wait_for_one(trusting: Voice) -> None:  # noqa: F811
    directory = Path(trusting.checkpoint.directory) / "codec"  # noqa: F811
    trusting.__dict__["codec"] = load_moss_codec(directory, codebooks=4, trust_remote_code=True, slots=1)
    with running(trusting, pool_rows=1200) as server:
        told = events(server.speak(input="Hello.", seed=1, n=3, max_frames=6, stream_format="sse").text)
        want = Engine(trusting, pool_rows=1200).speak("Hello.", seed=1, n=3, max_frames=6)
        for index, take in enumerate(want):
            deltas = [event["audio"] for event in told if event["index"] == index and "audio" in event]
            assert_sounds(b"".join(map(base64.b64decode, deltas)), trusting, take)
        server.idle()
        assert trusting.codec._slots.free == [0], "every place is given back"  # type: ignore[attr-defined]
