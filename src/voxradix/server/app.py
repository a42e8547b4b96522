"""The application: the routes of a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from voxradix import __version__
from voxradix.server.body import read_body
from voxradix.server.desk import Order
from voxradix.server.fields import SpeechFields
from voxradix.server.forms import TakeFile, reply_of
from voxradix.server.guard import Guard
from voxradix.server.house import House
from voxradix.server.order import (
    MODEL,
    checked,
    container_of,
    details_of,
    order_of,
    place_of,
    require_model,
    require_places,
)
from voxradix.server.pages import add_page
from voxradix.server.refusal import Refusal, engine_down, stopping
from voxradix.server.reply import Job
from voxradix.server.report import node_list, stats, voice_list

_SPEECH = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {"schema": {"$ref": "#/components/schemas/SpeechFields"}}
            for kind in ("application/json", "multipart/form-data")
        },
    },
    "responses": {
        "200": {
            "description": "An audio file; events with stream_format sse; JSON with n above 1.",
            "content": {"audio/*": {}, "text/event-stream": {}, "application/json": {}},
        }
    },
}


def application(house: House) -> FastAPI:
    """The routes over a house, which the caller closes."""
    app = FastAPI(title="voxradix", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.add_middleware(Guard, house=house)
    _errors(app, house)
    _speech(app, house)
    _takes(app, house)
    _voices(app, house)
    _state(app, house)
    add_page(app)
    _schema(app)
    return app


def _speech(app: FastAPI, house: House) -> None:
    @app.post("/v1/audio/speech", openapi_extra=_SPEECH)
    async def speech(request: Request) -> Response:
        """Speak a text, or go on from a take."""
        body = await read_body(request, house)
        fields, salt, voice = body.fields, request.state.salt, house.desk.voice
        checked(fields, voice, house.settings)
        container = container_of(fields.response_format, house.containers)
        after = place_of(fields, house.shelf, salt)
        require_places(body, voice)

        async def order() -> Order:
            details = await details_of(body, voice, house.decoder)
            return await house.scripts(order_of, fields, details, after, voice, salt)

        return reply_of(house, Job(fields, salt, order, container))


def _takes(app: FastAPI, house: House) -> None:
    @app.get("/v1/takes/{name}")
    async def take(name: str, request: Request) -> dict[str, object]:
        """What a take is, with its codes."""
        kept = house.shelf.get(name, request.state.salt)
        return kept.about() | house.sound | {"codes": kept.take.codes.tolist()}

    @app.get("/v1/takes/{name}/audio")
    async def audio(name: str, request: Request, response_format: str = "mp3") -> Response:
        """The whole audio of a take."""
        container = container_of(response_format, house.containers)
        kept = house.shelf.get(name, request.state.salt)
        return TakeFile(house, kept, container)

    @app.delete("/v1/takes/{name}")
    async def forget(name: str, request: Request) -> dict[str, object]:
        """Forget a take."""
        house.shelf.forget(name, request.state.salt)
        return {"id": name, "object": "take", "deleted": True}


def _voices(app: FastAPI, house: House) -> None:
    def about(name: str) -> dict[str, object]:
        return {"id": name, "object": "model", "created": 0, "owned_by": "voxradix"}

    @app.get("/v1/models")
    async def models() -> dict[str, object]:
        """The models served here."""
        return {"object": "list", "data": [about(house.desk.voice.name)]}

    @app.get("/v1/models/{name}")
    async def model(name: str) -> dict[str, object]:
        """One model."""
        require_model(name, house.desk.voice)
        return about(name if name == MODEL else house.desk.voice.name)

    @app.get("/v1/audio/voices")
    async def voices() -> dict[str, object]:
        """The voices served here, with what they take."""
        return voice_list(house)


def _state(app: FastAPI, house: House) -> None:
    @app.get("/v1/tree")
    async def tree(request: Request) -> dict[str, object]:
        """The cached rows of the caller's own."""
        return await node_list(house, request.state.salt)

    @app.get("/v1/stats")
    async def numbers(request: Request) -> dict[str, object]:
        """What the server is busy with, and what it has made for the caller."""
        return stats(house, request.state.salt)

    @app.head("/health", include_in_schema=False)
    @app.get("/health")
    async def health() -> JSONResponse:
        """Whether requests are served."""
        if house.status == "ok":
            return JSONResponse({"status": "ok"})
        refusal = engine_down() if house.status == "down" else stopping()
        return JSONResponse({"status": house.status, "error": refusal.body}, 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        """The measures, as Prometheus reads them."""
        return Response(generate_latest(house.measures.registry), media_type=CONTENT_TYPE_LATEST)


def _errors(app: FastAPI, house: House) -> None:
    def handler(refusal_of: Callable[[Any], Refusal]) -> Callable[[Request, Any], Awaitable[Response]]:
        async def handle(_: Request, error: Any) -> Response:
            refusal = refusal_of(error)
            house.measures.refused(refusal.status)
            return refusal.response()

        return handle

    def invalid(error: RequestValidationError) -> Refusal:
        detail = error.errors()[0]
        param = str(detail["loc"][-1])
        return Refusal(400, f"{ascii(param)[1:-1]}: {detail['msg']}", param=param)

    app.add_exception_handler(Refusal, handler(lambda refusal: refusal))
    app.add_exception_handler(RequestValidationError, handler(invalid))
    app.add_exception_handler(HTTPException, handler(_of_status))
    app.add_exception_handler(Exception, handler(lambda _: Refusal(500, "the server failed", code="failed")))


def _of_status(error: HTTPException) -> Refusal:
    phrase = HTTPStatus(error.status_code).phrase
    allowed = (error.headers or {}).get("Allow")
    return Refusal(error.status_code, f"{error.detail}", code=phrase.lower().replace(" ", "_"), allow=allowed)


def _schema(app: FastAPI) -> None:
    """Put the fields of a speech request, which the route reads itself, among the schemas."""
    document = app.openapi()
    schema = SpeechFields.model_json_schema(ref_template="#/components/schemas/{model}")
    parts = document.setdefault("components", {}).setdefault("schemas", {})
    parts |= schema.pop("$defs", {})
    parts["SpeechFields"] = schema
