"""A sounding: the audio of one take on its way to a reader, whatever stream of the codec makes it."""

from __future__ import annotations

from time import monotonic

import torch
from torch import Tensor

from voxradix.audio import Codec, CodecStream, Writer

PIECE = 12
"""Frames of one sounding that are decoded at once: others wait for no more."""


class Sounding:
    """The audio of one take. Its codes are kept, so that it can be parked: it loses its stream and takes another later.

    The other hears all codes again. What it makes of those that were heard is dropped, and what was written goes on.

    Attributes:
        live: Whether it is heard while it is made.
        asked: When its reader was last given sound.
        stream: The stream that makes it, if it has one. Only the codec's thread touches it.
    """

    def __init__(self, codec: Codec, writer: Writer, skip: int, live: bool) -> None:
        """Audio for a writer, less that of the first ``skip`` frames."""
        self.live = live
        self.asked = monotonic()
        self.stream: CodecStream | None = None
        self._codec = codec
        self._writer = writer
        self._codes = torch.zeros(0, codec.codebooks, dtype=torch.int64)
        self._fed = 0  # frames that the stream has heard
        self._heard = 0  # frames that any stream has
        self._made = 0  # samples that the stream has made
        self._done = skip * codec.samples_per_frame  # samples that are written, or never will be

    @property
    def left(self) -> int:
        """Frames that the stream has not heard."""
        return len(self._codes) - self._fed

    @property
    def repeats(self) -> bool:
        """Whether it lost its stream, and another hears again what one has heard."""
        return self._fed < self._heard

    def add(self, codes: Tensor) -> None:
        """More codes int64 [k, codebooks] follow."""
        self._codes = torch.cat((self._codes, codes))

    def next(self) -> Tensor:
        """The codes to be decoded next."""
        return self._codes[self._fed : self._fed + PIECE]

    def take_stream(self) -> None:
        """Take a stream. `VoxradixError` when the codec has no room."""
        self.stream = self._codec.stream()

    def park(self) -> None:
        """Give the stream back, if there is one."""
        stream, self.stream = self.stream, None
        self._fed = self._made = 0
        if stream is not None:
            stream.close()

    def took(self, codes: Tensor, samples: Tensor) -> bytes:
        """The bytes made ready by samples that the stream has made of codes."""
        self._fed += len(codes)
        self._heard = max(self._heard, self._fed)
        return self._written(samples)

    def finish(self) -> bytes:
        """The bytes still held back. A live file ends; a whole one is its owner's to end, for that takes a while."""
        assert self.stream is not None
        stream, self.stream = self.stream, None
        data = self._written(stream.finish())
        return data + self._writer.end() if self.live else data

    def _written(self, samples: Tensor) -> bytes:
        new = samples[max(self._done - self._made, 0) :]
        self._made += len(samples)
        self._done = max(self._done, self._made)
        return self._writer.write(new)
