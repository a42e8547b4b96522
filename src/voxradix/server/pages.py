"""The page: static files, told apart by their endings."""

from __future__ import annotations

from importlib.resources import files

from fastapi import FastAPI, Response

from voxradix.server.refusal import Refusal

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}


def add_page(app: FastAPI) -> None:
    """Serve the files of `page/`: index.html at the root, every one under its name."""
    directory = files("voxradix.server") / "page"
    found = {
        file.name: (file, _TYPES[ending])
        for file in directory.iterdir()
        if (ending := f".{file.name.rpartition('.')[2]}") in _TYPES
    }

    def response(name: str) -> Response:
        if name not in found:
            raise Refusal(404, f"there is no page file {name[:64]!a}", code="not_found")
        file, media_type = found[name]
        return Response(file.read_bytes(), media_type=media_type, headers={"cache-control": "no-cache"})

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def index() -> Response:
        return response("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def page_file(name: str) -> Response:
        return response(name)
