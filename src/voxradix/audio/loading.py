"""Loading a codec of voxradix's own by the ``kind`` its directory names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from voxradix.audio.codec import Codec
from voxradix.audio.spectral import SpectralCodec
from voxradix.errors import VoxradixError
from voxradix.files import read_json

_KINDS: dict[str, Callable[[Path], Codec]] = {"spectral": SpectralCodec.load}


def load_codec(directory: Path) -> Codec:
    """Load the codec in a directory; its config.json says which ``kind`` it is."""
    kind = read_json(directory / "config.json").get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise VoxradixError(f"{directory}: codec kind is {kind!r}; known kinds: {', '.join(_KINDS)}")
    return _KINDS[kind](directory)
