"""The guard: what every request passes before a route sees it."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from voxradix.server.house import House
from voxradix.server.refusal import Refusal

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_READING = ("GET", "HEAD", "OPTIONS")
_ALWAYS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; media-src 'self' blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; object-src 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Keeps out what a foreign page in a visitor's browser may send, and callers without a key.

    A server on the loopback interface is asked under its own names alone, so that no foreign name that resolves to it
    makes a page its own (DNS rebinding). Elsewhere its names are not known; there the keys protect it.
    """

    def __init__(self, app: ASGIApp, house: House) -> None:
        """A guard before an application."""
        self._app = app
        self._house = house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with its caller's salt in its state, or refuse it."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_ALWAYS)
            await send(message)

        try:
            self._admit(scope)
        except Refusal as refusal:
            self._house.measures.refused(refusal.status)
            return await refusal.response()(scope, receive, send_guarded)
        await self._app(scope, receive, send_guarded)

    def _admit(self, scope: Scope) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        host = headers.get("host", "")
        if self._house.settings.loopback and _hostname(host) not in _LOOPBACK:
            raise Refusal(
                403, f"the host is {host[:64]!a}; ask this server as localhost or 127.0.0.1", code="foreign_host"
            )
        keys = self._house.keys
        origin = headers.get("origin")
        if not keys and scope["method"] not in _READING and origin is not None and _authority(origin) != host.lower():
            raise Refusal(
                403,
                f"the request comes from a page of {origin[:64]!a}; without API keys only the server's own may",
                code="foreign_origin",
            )
        if path.startswith("/v1/") or path == "/metrics":
            scope.setdefault("state", {})["salt"] = keys.salt(headers.get("authorization"))


def _hostname(host: str) -> str | None:
    try:
        return None if "@" in host else urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _authority(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
