"""What every codec does: turn frames of codes into a waveform, whole or as they come.

Samples are as soundfile has them: float32 [N] for one channel, [N, channels] for more, on the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor


class CodecStream(Protocol):
    """Decodes one utterance in pieces. All pieces joined are the whole decode.

    How nearly they are is the codec's to say: the spectral codec gives the same bits, a large one rounds anew.
    """

    def push(self, codes: Tensor) -> Tensor:
        """The samples made ready by codes int64 [t, codebooks], t >= 0; the same as `Codec.push` for one stream.

        `VoxradixError` when the codes do not fit the codec or the stream has ended.
        """

    def finish(self) -> Tensor:
        """The samples still held back; the stream ends and gives back what it held."""

    def close(self) -> None:
        """Abandon the stream, giving back what it held. A stream that has ended may be closed."""


class Codec(Protocol):
    """Decodes codes int64 [T, codebooks] to T * `samples_per_frame` samples in [-1, 1].

    Attributes: `sample_rate` in Hz, `samples_per_frame` in each channel, `channels`, `codebooks` (codes a frame).
    """

    sample_rate: int
    samples_per_frame: int
    channels: int
    codebooks: int

    def decode(self, codes: Tensor) -> Tensor:
        """The whole waveform."""

    def stream(self) -> CodecStream:
        """A decoder that takes frames as they come; `VoxradixError` when the codec has room for no more."""

    def push(self, parts: Mapping[CodecStream, Tensor]) -> dict[CodecStream, Tensor]:
        """Decode what several streams of this codec are given, in as few passes as it can.

        Takes codes and gives samples as `CodecStream.push` does. Nothing is decoded unless all parts can be.
        """
