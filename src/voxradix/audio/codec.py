"""What every codec does: turn frames of codes into a waveform, whole or as they come."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from torch import Tensor

from voxradix.audio.spectral import SpectralCodec
from voxradix.errors import VoxradixError
from voxradix.files import read_json


class CodecStream(Protocol):
    """Decodes one utterance in pieces. All pieces joined are the whole decode, bit for bit."""

    def push(self, codes: Tensor) -> Tensor:
        """The samples made ready by codes int64 [t, codebooks]: float32, one dimension."""

    def finish(self) -> Tensor:
        """The samples still held back; the stream ends."""


class Codec(Protocol):
    """Decodes codes int64 [T, codebooks] to mono float32 [T * samples_per_frame] in [-1, 1]."""

    sample_rate: int
    samples_per_frame: int
    codebooks: int

    def decode(self, codes: Tensor) -> Tensor:
        """The whole waveform."""

    def stream(self) -> CodecStream:
        """A decoder that takes frames as they come."""


_KINDS: dict[str, Callable[[Path], Codec]] = {"spectral": SpectralCodec.load}


def load_codec(directory: Path) -> Codec:
    """Load the codec in a directory; its config.json says which ``kind`` it is."""
    kind = read_json(directory / "config.json").get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise VoxradixError(f"{directory}: codec kind is {kind!r}; known kinds: {', '.join(_KINDS)}")
    return _KINDS[kind](directory)
