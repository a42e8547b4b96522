"""The server: what is asked over HTTP is what the engine says, whoever else asks."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from dataclasses import replace

import httpx
import openai
import pytest
import soundfile
import torch
from torch import Tensor

from tests.serving import TEXT, Running, events, running
from voxradix import Draw, Engine, Take
from voxradix.audio import Container, containers, wav_bytes
from voxradix.voice import Voice, load_voice

FORMATS = ["wav", "pcm", "flac", "mp3", "opus"]


@pytest.fixture(scope="module")
def numbers() -> Voice:
    return load_voice("numbers")


@pytest.fixture(scope="module")
def server(numbers: Voice) -> Iterator[Running]:
    with running(numbers) as started:
        yield started


@pytest.fixture(scope="module")
def engine(numbers: Voice) -> Engine:
    return Engine(numbers)


@pytest.fixture
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none needed", max_retries=0) as client:
        yield client


def pcm(voice: Voice, take: Take) -> bytes:
    return wav_bytes(voice.codec.decode(take.codes), voice.codec.sample_rate)[44:]


def made(response: httpx.Response) -> bytes:
    assert response.status_code == 200, response.text
    return response.content


def decoded(data: bytes, name: str) -> Tensor:
    """The samples of a file, of a FLAC whose length is not in its header too."""
    if name == "pcm":
        return torch.frombuffer(bytearray(data), dtype=torch.int16).float() / 32768
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        blocks = [torch.from_numpy(file.read(256, dtype="float32"))]
        while len(blocks[-1]):
            try:
                blocks.append(torch.from_numpy(file.read(256, dtype="float32")))
            except soundfile.LibsndfileError:
                break
    return torch.cat(blocks)


def test_openai_s_client_gets_the_audio_that_the_engine_makes(
    client: openai.OpenAI, engine: Engine, numbers: Voice
) -> None:
    reply = client.audio.speech.create(
        model="voxradix", voice="numbers", input=TEXT, response_format="pcm", extra_body={"seed": 7}
    )
    assert reply.content == pcm(numbers, engine.speak(TEXT, seed=7))


@pytest.mark.parametrize("name", FORMATS)
def test_openai_s_client_streams_every_format(client: openai.OpenAI, numbers: Voice, name: str) -> None:
    want = torch.from_numpy(numbers.codec.decode(Engine(numbers).speak(TEXT, seed=7).codes).numpy())
    with client.audio.speech.with_streaming_response.create(
        model="numbers",
        voice={"id": "numbers"},
        input=TEXT,
        response_format=name,  # type: ignore[arg-type]
        extra_body={"seed": 7},
    ) as reply:
        pieces = list(reply.iter_bytes())
    assert reply.headers["content-type"] == containers(24000)[name].media_type
    assert len(pieces) > 1 or name == "opus", "audio leaves before all of it is made"
    got = decoded(b"".join(pieces), name)
    if name in ("wav", "pcm", "flac"):
        assert torch.allclose(got[: len(want)], want[: len(got)], atol=1e-4) and abs(len(got) - len(want)) < 4096
    if name in ("wav", "pcm"):
        assert len(got) == len(want)
    else:
        assert len(got) > 0.9 * len(want) and got.abs().max() > 0.1


@pytest.mark.parametrize("name", FORMATS)
def test_the_default_format_is_mp3_and_a_seed_s_bytes_are_the_same_however_the_audio_was_cut(
    server: Running, name: str
) -> None:
    first, again = (made(server.speak(input=TEXT, seed=3, response_format=name)) for _ in range(2))
    # streams of opus have a number drawn for each file
    assert first == again or (name == "opus" and len(first) == len(again))
    assert made(server.client.post("/v1/audio/speech", json={"input": TEXT, "seed": 3})) == made(
        server.speak(input=TEXT, seed=3, response_format="mp3")
    )


def test_sampling_is_the_request_s(server: Running, engine: Engine, numbers: Voice) -> None:
    sampling = replace(numbers.sampling, codes=Draw(1.1, 0.9, 40), repetition_penalty=1.2)
    want = engine.speak(TEXT, seed=2, sampling=sampling, max_frames=9)
    got = server.speak(input=TEXT, seed=2, temperature=1.1, top_p=0.9, top_k=40, repetition_penalty=1.2, max_frames=9)
    assert made(got) == pcm(numbers, want)


def test_the_headers_tell_what_was_reused(server: Running) -> None:
    text = "seven seven seven one"
    cold, warm = (server.speak(input=text, seed=seed).headers for seed in (1, 2))
    rows = int(warm["x-voxradix-prompt-rows"])
    assert int(warm["x-voxradix-reused-rows"]) == rows - 1 > int(cold["x-voxradix-reused-rows"])
    assert warm["x-voxradix-reused-generated-rows"] == "0" and warm["x-voxradix-kept-frames"] == "0"
    assert warm["x-voxradix-seed"] == "2" and float(warm["x-voxradix-first-frame-ms"]) > 0
    assert warm["x-voxradix-sample-rate"] == "24000" and warm["x-voxradix-channels"] == "1"
    assert warm["x-voxradix-take"] != cold["x-voxradix-take"]


@pytest.mark.parametrize(
    ("place", "text", "seed"),
    [
        ({}, "nine two", None),
        ({"at_seconds": 0.5}, None, None),
        ({"at_seconds": 0.5}, "", 4),
        ({"at_frames": 9}, "six six", 5),
        ({"at_frames": 9, "said": "four"}, "six six", 5),
        ({"at_frames": 0}, None, None),
    ],
)
def test_a_take_goes_on_as_the_engine_s_own_does(
    server: Running, engine: Engine, numbers: Voice, place: dict[str, object], text: str | None, seed: int | None
) -> None:
    first = server.speak(input=TEXT, seed=7)
    take = engine.speak(TEXT, seed=7)
    at = {name.removeprefix("at_"): value for name, value in place.items()}
    want = engine.speak(text or None, after=take.at(**at) if at else take, seed=seed)  # type: ignore[arg-type]
    name = first.headers["x-voxradix-take"]
    got = server.speak(input=text, take=name, seed=seed, **place)
    assert made(got) == pcm(numbers, want)
    assert int(got.headers["x-voxradix-seed"]) == want.seed
    kept = want.frames - want.new_frames
    assert int(got.headers["x-voxradix-kept-frames"]) == kept
    new = server.speak(input=text, take=name, seed=seed, new_only=True, **place)
    assert made(new) == made(got)[2 * 1920 * kept :], "what existed before is left out"


def test_n_takes_come_with_their_audio_and_are_the_engine_s(server: Running, engine: Engine, numbers: Voice) -> None:
    reply = server.speak(input=TEXT, n=3, seed=5, response_format="pcm")
    assert reply.headers["content-type"] == "application/json"
    takes = reply.json()["data"]
    want = engine.speak(TEXT, n=3, seed=5)
    assert [base64.b64decode(take["audio"]) for take in takes] == [pcm(numbers, take) for take in want]
    assert [take["id"] for take in takes] == reply.headers["x-voxradix-take"].split(",")
    assert [take["seed"] for take in takes] == [5, 6, 7] and [take["index"] for take in takes] == [0, 1, 2]


def test_events_carry_the_audio_and_with_details_every_frame(server: Running, engine: Engine, numbers: Voice) -> None:
    plain = server.speak(input=TEXT, seed=7, stream_format="sse")
    assert plain.headers["content-type"] == "text/event-stream"
    told = events(plain.text)
    assert {event["type"] for event in told} == {"speech.audio.delta", "speech.audio.done"}
    want = engine.speak(TEXT, seed=7)
    deltas = [event["audio"] for event in told if event["type"] == "speech.audio.delta"]
    assert b"".join(map(base64.b64decode, deltas)) == pcm(numbers, want)
    usage = told[-1]["usage"]
    assert usage["output_tokens"] == want.frames and usage["input_tokens"] == want.prompt_rows

    name = plain.headers["x-voxradix-take"]
    reply = server.speak(take=name, at_frames=5, n=2, stream_format="sse", details=True)
    told = events(reply.text)
    want_all = engine.speak(after=want.at(frames=5), n=2)
    for index, take in enumerate(want_all):
        mine = [event for event in told if event["index"] == index]
        kinds = [event["type"] for event in mine]
        assert kinds[0] == "voxradix.begin" and kinds[-2:] == ["speech.audio.done", "voxradix.take"]
        frames = [event for event in mine if event["type"] == "voxradix.frames"]
        assert [code for event in frames for code in event["codes"]] == take.codes.tolist()
        assert frames[0]["how"] == "kept" and frames[0]["count"] == 5
        assert {event["how"] for event in frames[1:]} == {"made"}
        assert [event["first"] for event in frames] == [0, *range(5, take.frames)]
        deltas = [event["audio"] for event in mine if event["type"] == "speech.audio.delta"]
        assert b"".join(map(base64.b64decode, deltas)) == pcm(numbers, take)
        assert mine[-1]["take"]["kept_frames"] == 5 and mine[-1]["take"]["frames"] == take.frames


def test_a_frame_whose_row_was_lost_is_told_as_recomputed_and_the_audio_is_the_same(numbers: Voice) -> None:
    text = "four eight one five nine two three"
    with running(numbers, max_batch=3, pool_rows=64) as tight:
        replies = [tight.speak(input=text, seed=0, n=3, max_frames=30, stream_format="sse", details=True)]
        told = events(replies[0].text)
        tight.idle()
    again = [event for event in told if event.get("how") == "recomputed"]
    assert again, "the pool was too small for three"
    for event in again:
        before = told[: told.index(event)]
        known = [e for e in before if e.get("how") == "made" and e["index"] == event["index"]]
        assert event["first"] >= 0 and event["count"] > 0 and event["first"] + event["count"] <= len(known)
    takes = [event["take"] for event in told if event["type"] == "voxradix.take"]
    assert sum(take["retractions"] for take in takes) > 0
    for index, take in enumerate(Engine(numbers).speak(text, n=3, max_frames=30)):
        codes = [c for e in told if e["index"] == index for c in e.get("codes", [])]
        assert codes == take.codes.tolist()


def test_a_take_is_there_until_it_is_forgotten(server: Running, engine: Engine, numbers: Voice) -> None:
    name = server.speak(input=TEXT, seed=7).headers["x-voxradix-take"]
    take = engine.speak(TEXT, seed=7)
    about = server.client.get(f"/v1/takes/{name}").json()
    assert about["codes"] == take.codes.tolist() and about["text"] == TEXT and about["frames"] == take.frames
    assert [piece["frames"] for piece in about["pieces"]] == [take.frames]
    wav = server.client.get(f"/v1/takes/{name}/audio", params={"response_format": "wav"})
    assert wav.content == wav_bytes(numbers.codec.decode(take.codes), 24000), "the whole file, its length in its header"
    assert server.client.get(f"/v1/takes/{name}/audio").headers["content-type"] == "audio/mpeg"
    assert server.client.delete(f"/v1/takes/{name}").json() == {"id": name, "object": "take", "deleted": True}
    for reply in (
        server.client.get(f"/v1/takes/{name}"),
        server.client.delete(f"/v1/takes/{name}"),
        server.speak(take=name, input="one"),
    ):
        assert reply.status_code == 404 and reply.json()["error"]["code"] == "take_not_found"


def test_a_long_text_is_spoken_in_parts(server: Running, engine: Engine, numbers: Voice) -> None:
    text = "four eight one five. nine two three. six six seven one. two five five, eight. one thousand two. three nine."
    reply = server.speak(input=text, seed=1)
    assert made(reply) == pcm(numbers, engine.speak(text, seed=1))
    about = server.client.get(f"/v1/takes/{reply.headers['x-voxradix-take']}").json()
    assert len(about["pieces"]) > 1 and about["unsaid"] == []


def test_the_lists_say_what_there_is(server: Running, client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["numbers"]
    assert client.models.retrieve("voxradix").id == "voxradix"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("tts-1")
    voice = server.client.get("/v1/audio/voices").json()["data"][0]
    assert voice["id"] == "numbers" and set(voice["formats"]) == set(FORMATS)
    assert voice["sampling"]["temperature"] == pytest.approx(0.6)


def test_the_tree_and_the_figures_add_up(server: Running) -> None:
    server.speak(input="eight eight eight eight two")
    server.idle()
    stats = server.client.get("/v1/stats").json()
    rows = stats["rows"]
    assert rows["free"] + rows["cached"] + rows["held"] == rows["pool"] and rows["held"] == 0
    assert stats["running"] == stats["waiting"] == 0 and stats["first_frame_ms"]["p50"] > 0
    tree = server.client.get("/v1/tree").json()
    assert tree["rows"] == rows["cached"] == sum(node["rows"] for node in tree["nodes"])
    depth = {None: 0}
    for node in tree["nodes"]:
        assert node["depth"] == depth[node["parent"]], "parents come first"
        depth[node["id"]] = node["depth"] + node["rows"]
        assert node["kind"] in ("prompt", "generated", "mixed") and not node["in_use"]
    assert len(depth) == len(tree["nodes"]) + 1, "no id twice"
    metrics = server.client.get("/metrics").text
    assert f'voxradix_rows{{state="cached"}} {float(rows["cached"])}' in metrics
    assert "voxradix_first_frame_seconds_count" in metrics and "voxradix_retractions_total" in metrics


def test_the_page_is_served_under_a_policy(server: Running) -> None:
    page = server.client.get("/")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    assert page.content == server.client.get("/page/index.html").content
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert server.client.get("/page/nothing.js").status_code == 404
    assert server.client.get("/page/..%2f__init__.py").status_code == 404


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("cut", [480, 1920, 24000])
def test_a_file_written_in_pieces_does_not_depend_on_them(name: str, cut: int) -> None:
    samples = torch.rand(24000, generator=torch.Generator().manual_seed(1)) - 0.5
    container: Container = containers(24000)[name]

    def written(size: int) -> bytes:
        writer = container.writer(24000, 1)
        return b"".join([*(writer.write(part) for part in samples.split(size)), writer.end()])

    if name == "opus":  # each stream has a serial number of its own
        assert len(written(cut)) == len(written(1000))
    else:
        assert written(cut) == written(1000)


def test_stereo_is_interleaved() -> None:
    samples = torch.tensor([[0.5, -0.5], [0.25, 1.0]])
    writer = containers(48000)["pcm"].writer(48000, 2)
    assert writer.write(samples) + writer.end() == b"".join(
        round(32767 * value).to_bytes(2, "little", signed=True) for value in (0.5, -0.5, 0.25, 1.0)
    )


def test_opus_is_not_offered_at_a_rate_it_does_not_know() -> None:
    assert "opus" not in containers(44100) and "opus" in containers(24000)
