"""A hub on this machine that answers just what a snapshot download asks, and tells what was asked."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


@dataclass
class Hub:
    """Repositories by name, each with its files by path; ``revisions`` says which commit a revision is.

    Attributes:
        url: Where it answers.
        refusals: The error code a repository answers with, by name (as the hub's X-Error-Code).
        fetched: The paths of the files that were downloaded, in order.
        asked: The revisions that were asked for, in order.
    """

    url: str
    repositories: Mapping[str, Mapping[str, bytes]]
    revisions: dict[str, str] = field(default_factory=lambda: {"main": "1" * 40, "v2": "2" * 40})
    refusals: dict[str, str] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@contextmanager
def serving(repositories: Mapping[str, Mapping[str, bytes]]) -> Iterator[Hub]:
    """Serve repositories until the context ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.hub = hub = Hub(f"http://127.0.0.1:{server.server_address[1]}", repositories)  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Handler(BaseHTTPRequestHandler):
    """Answers /api/models/NAME/revision/R, /api/models/NAME/tree/COMMIT and /NAME/resolve/COMMIT/PATH."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, format: str, *values: object) -> None:
        pass

    def _answer(self) -> None:
        hub: Hub = self.server.hub  # type: ignore[attr-defined]
        path = unquote(urlsplit(self.path).path).strip("/").removeprefix("api/models/")
        owner, name, what, revision, *rest = path.split("/")
        files = hub.repositories.get(f"{owner}/{name}")
        refusal = hub.refusals.get(f"{owner}/{name}", None if files is not None else "RepoNotFound")
        if what == "revision":
            hub.asked.append(revision)
            if revision not in hub.revisions and refusal is None:
                refusal = "RevisionNotFound"
        if refusal is not None or files is None:
            self._send(403 if refusal == "GatedRepo" else 404, b"", {"X-Error-Code": str(refusal)})
        elif what == "revision":
            body = {"id": f"{owner}/{name}", "sha": hub.revisions[revision], "siblings": []}
            self._send(200, json.dumps(body).encode(), {})
        elif what == "tree":
            tree = [
                {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for path, data in files.items()
            ]
            self._send(200, json.dumps(tree).encode(), {})
        else:
            data = files["/".join(rest)]
            if self.command == "GET":
                hub.fetched.append("/".join(rest))
            self._send(200, data, {"X-Repo-Commit": revision, "ETag": f'"{hashlib.sha1(data).hexdigest()}"'})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)
