"""The `serve` command: an engine over HTTP until it is told to stop."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from voxradix.cli.speak import use_threads
from voxradix.engine import Engine
from voxradix.errors import VoxradixError
from voxradix.voice import load_voice

if TYPE_CHECKING:
    from voxradix.server import Settings

KEYS_VARIABLE = "VOXRADIX_API_KEY"


def api_keys(file: Path | None) -> tuple[str, ...]:
    """The API keys: those in a file, or those in the environment."""
    from voxradix.server import read_key_file, read_keys

    if file is not None:
        return read_key_file(file)
    keys = os.environ.get(KEYS_VARIABLE)
    return () if keys is None else read_keys(keys, KEYS_VARIABLE)


def engine_maker(voice: str | Path, *, max_batch: int, max_rows: int, threads: int | None) -> Callable[[], Engine]:
    """What makes the engine, in the thread that will own it; the voice is loaded now."""
    loaded = load_voice(voice)
    use_threads(threads, loaded.model)
    return lambda: Engine(loaded, max_batch=max_batch, pool_rows=max_rows)


def run_serve(host: str, port: int, make: Callable[[], Engine], max_batch: int, settings: Settings) -> None:
    """Serve, and print the address when connections are taken."""
    from voxradix.server import House, listen, serve

    listener = listen(host, port)
    port = listener.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host

    def ready() -> None:
        print(f"voxradix: listening on http://{shown}:{port}", flush=True)

    with listener:
        serve(House(make, max_batch, settings), listener, ready)


def require_server() -> None:
    """Refuse to go on without the libraries of the server."""
    try:
        import fastapi
        import prometheus_client
        import python_multipart
        import uvicorn
    except ImportError as error:
        raise VoxradixError(f'{error.name} is not installed; pip install "voxradix[serve]" brings it') from None
    del fastapi, prometheus_client, python_multipart, uvicorn
