"""The body of a speech request: read within its limits, and turned into fields."""

from __future__ import annotations

import asyncio
import binascii
import json
from base64 import b64decode
from dataclasses import dataclass

from python_multipart.exceptions import FormParserError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from voxradix.server.fields import SpeechFields
from voxradix.server.refusal import Refusal
from voxradix.server.settings import Settings

_MOST_DIGITS = 400
"""Of an integer in JSON; a longer one is as good as infinite."""


@dataclass(frozen=True, slots=True)
class SpeechBody:
    """The fields of a request, and the bytes of the reference recording that came with them."""

    fields: SpeechFields
    reference: bytes | None


async def read_body(request: Request, settings: Settings) -> SpeechBody:
    """Read a speech request. Raises `Refusal` for one that cannot be read or used."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/json", "multipart/form-data"):
        raise Refusal(
            415,
            f"the content type is {kind[:64]!a}; send application/json or multipart/form-data",
            code="unsupported_content_type",
        )
    data = await _bytes(request, settings)
    if kind == "multipart/form-data":
        return await _form(request, data, settings)
    fields = SpeechFields.of_json(_json(data))
    return SpeechBody(fields, None if fields.reference is None else _data_uri(fields.reference, settings))


async def _bytes(request: Request, settings: Settings) -> bytes:
    most = settings.max_body_bytes
    declared = request.headers.get("content-length", "")
    data = bytearray()
    try:
        async with asyncio.timeout(settings.body_seconds):
            if not (declared.isdecimal() and int(declared[:20]) > most):
                async for chunk in request.stream():
                    data += chunk
                    if len(data) > most:
                        break
                else:
                    return bytes(data)
    except TimeoutError:
        raise Refusal(408, f"the body did not arrive within {settings.body_seconds:g} s", code="timeout") from None
    except ClientDisconnect:
        raise Refusal(400, "the connection ended before the body did") from None
    raise Refusal(413, f"the body is larger than {most} bytes; send less", code="too_large")


def _json(data: bytes) -> object:
    try:
        return json.loads(data.decode("utf-8"), parse_int=_whole)
    except UnicodeDecodeError as error:
        raise Refusal(400, f"the body is not UTF-8 text: byte {error.start} cannot be read") from None
    except json.JSONDecodeError as error:
        raise Refusal(400, f"the body is no JSON: {error}") from None
    except RecursionError:
        raise Refusal(400, "the body is nested too deeply; it must be one flat object") from None


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float("inf")


async def _form(request: Request, data: bytes, settings: Settings) -> SpeechBody:
    async def receive() -> Message:
        return {"type": "http.request", "body": data, "more_body": False}

    values: dict[str, str] = {}
    reference: bytes | None = None
    try:
        async with Request(request.scope, receive).form(
            max_files=1, max_fields=64, max_part_size=settings.max_body_bytes
        ) as form:
            for name, value in form.multi_items():
                if isinstance(value, UploadFile):
                    if name != "reference":
                        raise Refusal(400, f"{name[:64]!a} is a file; only reference may be one", param=name[:64])
                    reference = await value.read()
                elif name in values:
                    raise Refusal(400, f"{name[:64]!a} is given twice; give it once", param=name[:64])
                elif value.encode() not in data:  # the parser has taken other bytes for Latin-1
                    raise Refusal(400, f"{name[:64]!a} is not UTF-8 text", param=name[:64])
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
