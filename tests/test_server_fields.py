"""Bad input is answered with a 4xx that names the field, in the shape OpenAI's clients read."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import openai
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from tests.serving import HEADERS, TEXT, Running, error_of, running
from voxradix.server import Settings
from voxradix.voice import load_voice

HUGE = "9" * 5000
WAV = base64.b64encode(b"RIFF" + bytes(60)).decode()


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    limits = Settings(max_input_chars=200, max_body_bytes=20_000, max_reference_bytes=1000, body_seconds=0.5)
    with running(load_voice("numbers"), settings=limits) as started:
        yield started


def post(server: Running, body: bytes | str, **headers: str) -> httpx.Response:
    return server.client.post("/v1/audio/speech", content=body, headers=HEADERS | headers)


TEXT_FIELDS = ["model", "input", "voice", "instructions", "take", "said", "language", "reference"]
NUMBERS = ["speed", "temperature", "top_p", "repetition_penalty", "stop_temperature", "stop_top_p", "at_seconds"]
WHOLE = ["seed", "top_k", "stop_top_k", "max_frames", "n", "at_frames"]
BOOLS = ["new_only", "details"]
CHOICES = ["response_format", "stream_format"]
VALUES = [
    (TEXT_FIELDS, ["7", "[]", "true", '{"a": 1}', "1e999", HUGE]),
    (NUMBERS, ['"1"', "[]", "true", "{}", "NaN", "Infinity", "-Infinity", "-1", "1e999", HUGE, '"\\ud800"']),
    (WHOLE, ['"1"', "[]", "false", "1.5", "NaN", HUGE, "-9223372036854775809", "9223372036854775808"]),
    (BOOLS, ['"true"', "1", "[]"]),
    (CHOICES, ["7", '"ogg"', "null", '""', '"\\u0000"']),
]
WRONG = {field: values for fields, values in VALUES for field in fields}


@pytest.mark.parametrize("field", WRONG)
def test_a_field_of_the_wrong_type_or_range_is_named(server: Running, field: str) -> None:
    for value in WRONG[field]:
        reply = post(server, f'{{"input": "one", {json.dumps(field)}: {value}}}')
        assert reply.status_code == 400, (field, value[:40], reply.text)
        error = error_of(reply)
        assert error["param"] == field and error["type"] == "invalid_request_error"
        assert field in error["message"] and len(error["message"]) < 400


@pytest.mark.parametrize(
    ("values", "param"),
    [
        ({"input": "one", "seed": 2**63 - 1, "n": 2}, "seed"),
        ({"input": "one", "n": 9}, "n"),
        ({"input": "one", "n": 0}, "n"),
        ({"input": "one", "temperature": 1e-9}, "temperature"),
        ({"input": "one", "temperature": 1e7}, "temperature"),
        ({"input": "one", "top_p": 0}, "top_p"),
        ({"input": "one", "top_p": 1.01}, "top_p"),
        ({"input": "one", "top_k": -1}, "top_k"),
        ({"input": "one", "repetition_penalty": 0}, "repetition_penalty"),
        ({"input": "one", "max_frames": 0}, "max_frames"),
        ({"input": "one", "max_frames": 2**31 - 1}, "max_frames"),
        ({"input": "one", "speed": 1.5}, "speed"),
        ({"input": "one", "speed": 0.25}, "speed"),
        ({"input": "one", "response_format": "aac"}, "response_format"),
        ({"input": "one", "details": True}, "details"),
        ({"input": "one", "new_only": True}, "new_only"),
        ({"input": "one", "voice": "alloy"}, "voice"),
        ({"input": "one", "voice": {"id": "alloy"}}, "voice"),
        ({"input": "one", "voice": {"id": 3}}, "voice"),
        ({"input": "one", "voice": {}}, "voice"),
        ({"input": "one", "at_seconds": 1.0}, "at_seconds"),
        ({"input": "one", "at_frames": 1}, "at_frames"),
        ({"input": "one", "said": "one"}, "said"),
        ({"input": "one", "language": "English"}, "language"),
        ({"input": "one", "instructions": "softly"}, "instructions"),
        ({"input": "one", "reference": f"data:audio/wav;base64,{WAV}"}, "reference"),
        ({"input": "one", "reference": "https://example.com/a.wav"}, "reference"),
        ({"input": "one", "reference": "file:///etc/passwd"}, "reference"),
        ({"input": "one", "reference": "data:audio/wav,plain"}, "reference"),
        ({"input": "one", "reference": "data:audio/wav;base64,"}, "reference"),
        ({"input": "one", "reference": "data:audio/wav;base64,%%%"}, "reference"),
        ({"input": "one", "reference": "data:audio/wav;base64,é"}, "reference"),
        ({"input": "one", "reference": "data:a;base64," + "AAAA" * 400}, "reference"),
        ({"input": ""}, "input"),
        ({}, "input"),
        ({"input": None}, "input"),
        ({"input": "   "}, "input"),
        ({"input": "..."}, "input"),
        ({"input": "\0"}, "input"),
        ({"input": "one " * 60}, "input"),
        ({"input": "one", "temprature": 1.0}, "temprature"),
        ({"input": "one", "\ud800": 1.0}, "\\ud800"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(server: Running, values: dict[str, object], param: str) -> None:
    error = error_of(reply := post(server, json.dumps(values)))
    assert reply.status_code == 400 and error["param"] == param, error


def test_a_lone_surrogate_is_no_text_in_any_field(server: Running) -> None:
    for field in TEXT_FIELDS:
        error = error_of(reply := post(server, f'{{"{field}": "\\ud800"}}'))
        assert reply.status_code in (400, 404) and error["param"] == field


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"input": "\xc3\x28"}',
        b"[]",
        b"7",
        b"null",
        b'"one"',
        b"[" * 10_000,
        b"9" * 6000,
        b"NaN",
    ],
)
def test_a_body_that_is_no_object_is_refused(server: Running, body: bytes) -> None:
    assert post(server, body).status_code == 400
    error_of(post(server, body))


def test_a_model_that_is_not_there_is_not_found_as_openai_has_it(server: Running) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)
    with pytest.raises(openai.NotFoundError) as caught:
        client.audio.speech.create(model="tts-1", voice="numbers", input="one")
    assert caught.value.code == "model_not_found" and caught.value.param == "model"
    with pytest.raises(openai.BadRequestError) as bad:
        client.audio.speech.create(model="voxradix", voice="numbers", input="one", speed=2.0)
    assert bad.value.param == "speed"


def test_a_place_beyond_the_take_is_named(server: Running) -> None:
    take = server.speak(input="one", seed=1).headers["x-voxradix-take"]
    for values, param in (
        ({"at_seconds": 1e6}, "at_seconds"),
        ({"at_frames": 100_000}, "at_frames"),
        ({"at_frames": 1, "at_seconds": 0.1}, "at_frames"),
        ({"at_frames": 1, "said": " "}, "said"),
        ({"said": "one"}, "said"),
        ({}, "input"),
    ):
        error = error_of(reply := server.speak(take=take, **values))
        assert reply.status_code == 400 and error["param"] == param, (values, error)


def test_a_body_too_large_too_slow_or_of_another_kind_is_refused(server: Running) -> None:
    assert post(server, b" " * 30_000).status_code == 413
    assert server.client.post("/v1/audio/speech", content=iter([b" " * 15_000] * 4), headers=HEADERS).status_code == 413
    assert post(server, b"{}", **{"content-type": "text/plain"}).status_code == 415
    assert server.client.post("/v1/audio/speech", data={"input": "one"}).status_code == 415

    def slow() -> Iterator[bytes]:
        yield b"{"
        time.sleep(1)
        yield b"}"

    assert server.client.post("/v1/audio/speech", content=slow(), headers=HEADERS).status_code == 408


def test_a_form_is_a_request_too(server: Running) -> None:
    values = {"input": TEXT, "seed": "7", "response_format": "pcm", "temperature": "0.5", "max_frames": "6", "n": "1"}
    form = server.client.post("/v1/audio/speech", files={name: (None, value) for name, value in values.items()})
    same = server.speak(input=TEXT, seed=7, temperature=0.5, max_frames=6)
    assert form.status_code == 200 and form.content == same.content


@pytest.mark.parametrize(
    ("parts", "param"),
    [
        ({"input": (None, "one"), "reference": ("a.wav", b"RIFF")}, "reference"),
        ({"input": (None, "one"), "reference": ("a.wav", b"")}, "reference"),
        ({"input": (None, "one"), "reference": ("a.wav", bytes(2000))}, "reference"),
        ({"input": ("a.txt", b"one")}, "input"),
        ({"input": (None, "one"), "seed": (None, "x")}, "seed"),
        ({"input": (None, "one"), "seed": (None, HUGE)}, "seed"),
        ({"input": (None, "one"), "temperature": (None, "nan")}, "temperature"),
        ({"input": (None, "one"), "details": (None, "perhaps")}, "details"),
        ({"input": (None, "one"), "voice": (None, "alloy")}, "voice"),
        ({"input": (None, "one"), "other": (None, "1")}, "other"),
        ({"input": (None, b"\xff\xfe")}, "input"),
    ],
)
def test_a_form_that_cannot_be_used_names_the_field(
    server: Running, parts: dict[str, object], param: str | None
) -> None:
    reply = server.client.post("/v1/audio/speech", files=parts)  # type: ignore[arg-type]
    error = error_of(reply)
    assert reply.status_code == 400 and error["param"] == param, error


@pytest.mark.parametrize(
    "kind", ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=x"]
)
@pytest.mark.parametrize(
    "body", [b"", b"--x", b"--x\r\n\r\n\r\n", b"--x\r\nContent-Disposition: form-data\r\n\r\na\r\n--x--"]
)
def test_a_broken_form_is_refused(server: Running, kind: str, body: bytes) -> None:
    reply = post(server, body, **{"content-type": kind})
    assert reply.status_code == 400
    error_of(reply)


def test_every_other_route_answers_in_the_same_shape(server: Running) -> None:
    for method, path, status in (
        ("GET", "/v1/nothing", 404),
        ("PUT", "/v1/audio/speech", 405),
        ("GET", "/v1/audio/speech", 405),
        ("GET", "/v1/takes/x", 404),
        ("GET", "/v1/takes/%ff%00", 404),
        ("GET", "/v1/takes/x/audio?response_format=aac", 400),
        ("GET", "/v1/models/tts-1", 404),
    ):
        reply = server.client.request(method, path)
        assert reply.status_code == status, path
        error_of(reply)


@pytest.mark.filterwarnings("ignore")
def test_no_request_that_the_schema_allows_or_forbids_makes_the_server_fail(server: Running) -> None:
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    operations = {f"{found.ok().method} {found.ok().path}": found.ok() for found in schema.get_all_operations()}  # type: ignore[union-attr]
    assert len(operations) >= 11 and {"post /v1/audio/speech", "delete /v1/takes/{name}"} <= set(operations)
    for operation in operations.values():
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):

            @settings(
                max_examples=25 if operation.method == "post" else 5,
                deadline=None,
                database=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(operation.as_strategy(generation_mode=mode))
            def call(case: Any) -> None:
                if isinstance(case.body, dict):
                    case.body.setdefault("max_frames", 2)
                reply = case.call()
                assert reply.status_code < 500, reply.text
                assert reply.status_code < 400 or "error" in reply.json()

            with suppress(Unsatisfiable):  # a route without parameters has no invalid ones
                call()
    assert server.client.get("/health").status_code == 200
    server.idle()
