"""The `serve` command: an engine over HTTP until it is told to stop."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from voxradix.cli.terminal import say
from voxradix.engine import Engine
from voxradix.errors import VoxradixError

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


def run_serve(host: str, port: int, make: Callable[[], Engine], settings: Settings) -> None:
    """Serve, and print the address when connections are taken."""
    from voxradix.server import House, listen, serve

    listener = listen(host, port)
    port = listener.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host

    def ready() -> None:
        print(f"voxradix: listening on http://{shown}:{port}", flush=True)

    with listener:
        house = House(make, settings)

        def stop() -> None:
            if house.admission.replies:
                say(
                    f"stopping: {house.admission.replies} requests are under way and have {settings.stop_seconds:g} s "
                    "to end; asked again, it stops at once"
                )

        if not settings.keys and not settings.loopback:
            say(f"warning: everybody who reaches {shown}:{port} is served; --api-key-file asks for a key")
        serve(house, listener, ready, stop)


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
