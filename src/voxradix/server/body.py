"""The body of a speech request: read within its limits, and turned into fields."""

from __future__ import annotations

import asyncio
import binascii
import json
from base64 import b64decode
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from voxradix.server.fields import SpeechFields, printable, twice
from voxradix.server.house import House
from voxradix.server.refusal import Refusal, stopping
from voxradix.server.settings import Settings

_MOST_PARTS = 20_000
"""Commas and brackets of a JSON body, those in its texts included: parsing so many takes a few milliseconds."""

_SLOWEST = 16 << 10
"""Bytes a second at which a body may always arrive."""

_MOST_DIGITS = 400
"""Of an integer in JSON; a longer one is as good as infinite."""


@dataclass(frozen=True, slots=True)
class SpeechBody:
    """The fields of a request, and the bytes of the reference recording that came with them."""

    fields: SpeechFields
    reference: bytes | None


async def read_body(request: Request, house: House) -> SpeechBody:
    """Read a speech request. Raises `Refusal` for one that cannot be read or used, or when the server stops."""
    settings = house.settings
    name, options = parse_options_header(request.headers.get("content-type", ""))
    kind = name.decode("latin-1").lower()
    if kind not in ("application/json", "multipart/form-data"):
        raise Refusal(
            415,
            f"the content type is {kind[:64]!a}; send application/json or multipart/form-data",
            code="unsupported_content_type",
        )
    if options.get(b"charset", b"utf-8").lower() not in (b"utf-8", b"utf8"):
        raise Refusal(415, "the charset must be utf-8; leave it out", code="unsupported_content_type")
    if not house.admission.open:
        raise stopping()
    with house.uploads.one():
        data = await _unless_cut(_bytes(request, settings), house)
    if kind == "multipart/form-data":
        return await _form(request, data, settings)
    fields = SpeechFields.of_json(_json(data))
    return SpeechBody(fields, None if fields.reference is None else _data_uri(fields.reference, settings))


async def _unless_cut(reading: Coroutine[Any, Any, bytes], house: House) -> bytes:
    task, cut = asyncio.create_task(reading), asyncio.create_task(house.cut.wait())
    try:
        await asyncio.wait([task, cut], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise stopping()
        return await task
    finally:
        task.cancel()
        cut.cancel()
        await asyncio.gather(task, cut, return_exceptions=True)


async def _bytes(request: Request, settings: Settings) -> bytes:
    most = settings.max_body_bytes
    declared = request.headers.get("content-length", "")
    data = bytearray()
    try:
        async with asyncio.timeout(settings.body_seconds) as limit:
            begun = limit.when() or 0.0
            if not (declared.isdecimal() and int(declared[:20]) > most):
                async for chunk in request.stream():
                    data += chunk
                    limit.reschedule(begun + len(data) / _SLOWEST)
                    if len(data) > most:
                        break
                else:
                    return bytes(data)
    except TimeoutError:
        raise Refusal(
            408,
            f"the body came too slowly: it has {settings.body_seconds:g} s, and one more for every {_SLOWEST} bytes",
            code="timeout",
        ) from None
    except ClientDisconnect:
        raise Refusal(400, "the connection ended before the body did") from None
    raise Refusal(413, f"the body is larger than {most} bytes; send less", code="too_large")


def _json(data: bytes) -> object:
    # what a body costs is its parts: texts may be long, but a request has few of them
    if sum(map(data.count, (b",", b"[", b"{"))) > _MOST_PARTS:
        raise Refusal(400, f"the body has more than {_MOST_PARTS} commas and brackets; it must be one flat object")
    try:
        return json.loads(data.decode("utf-8"), parse_int=_whole, object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        raise Refusal(400, f"the body is not UTF-8 text: byte {error.start} cannot be read") from None
    except json.JSONDecodeError as error:
        raise Refusal(400, f"the body is no JSON: {error}") from None
    except RecursionError:
        raise Refusal(400, "the body is nested too deeply; it must be one flat object") from None


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, value in pairs:
        if name in values:
            raise twice(name)
        values[name] = value
    return values


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float("inf")


async def _form(request: Request, data: bytes, settings: Settings) -> SpeechBody:
    async def receive() -> Message:
        return {"type": "http.request", "body": data, "more_body": False}

    if not data.rstrip().endswith(b"--"):
        raise Refusal(400, "the form is cut off before its last boundary; send it whole")
    values: dict[str, str] = {}
    reference: bytes | None = None
    try:
        async with Request(request.scope, receive).form(
            max_files=1, max_fields=64, max_part_size=settings.max_body_bytes
        ) as form:
            for name, value in form.multi_items():
                param = printable(name)
                if name in values or (name == "reference" and reference is not None):
                    raise twice(name)
                if isinstance(value, UploadFile):
                    if name != "reference":
                        raise Refusal(400, f"{param} is a file; only reference may be one", param=param)
                    reference = await value.read()
                elif value.encode() not in data:  # the parser has taken other bytes for Latin-1
                    raise Refusal(400, f"{param} is not UTF-8 text", param=param)
                else:
                    values[name] = value
    except HTTPException as error:
        raise Refusal(400, f"the form cannot be read: {error.detail}") from None
    except (FormParserError, ValueError, LookupError, KeyError) as error:  # of the form's parser
        raise Refusal(400, f"the form cannot be read: {type(error).__name__}") from None
    fields = SpeechFields.of_form(values)
    if fields.reference is not None:
        reference = _data_uri(fields.reference, settings)
    elif reference is not None:
        _fits(reference, settings)
    return SpeechBody(fields, reference)


def _data_uri(uri: str, settings: Settings) -> bytes:
    """The bytes in a data URI; no other address is fetched."""
    head, comma, text = uri.partition(",")
    if not (head.lower().startswith("data:") and head.lower().endswith(";base64") and comma):
        raise Refusal(
            400,
            f"reference is {uri[:32]!a}; it must be a data URI (data:audio/wav;base64,...); no address is fetched",
            param="reference",
        )
    try:
        data = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Refusal(400, "reference holds no valid base64 after its comma", param="reference") from None
    return _fits(data, settings)


def _fits(data: bytes, settings: Settings) -> bytes:
    if not data:
        raise Refusal(400, "reference is empty; it must be a recording", param="reference")
    if len(data) > settings.max_reference_bytes:
        raise Refusal(
            400,
            f"reference has {len(data)} bytes; it must have at most {settings.max_reference_bytes}",
            param="reference",
        )
    return data
