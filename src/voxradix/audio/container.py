"""Containers: samples into the bytes of a file, whole or while they are made."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import Protocol

import soundfile
from torch import Tensor

_UNKNOWN = 0xFFFFFFFF
"""The size in a WAV header that is written before the length is known."""


class Writer(Protocol):
    """Writes one file piece by piece."""

    def write(self, samples: Tensor) -> bytes:
        """The bytes that are ready after samples float32 [N] or [N, channels] in [-1, 1]; there may be none yet."""

    def end(self) -> bytes:
        """The bytes still held back; the file ends."""


@dataclass(frozen=True, slots=True)
class Container:
    """A kind of audio file.

    Attributes:
        name: As requests name it.
        media_type: As HTTP names it.
        format: As soundfile names it.
        subtype: As soundfile names the encoding.
        rates: The sample rates it takes; None for any.
    """

    name: str
    media_type: str
    format: str
    subtype: str
    rates: tuple[int, ...] | None = None

    @property
    def endian(self) -> str:
        """The order of bytes, where the format leaves it open."""
        return "LITTLE" if self.format == "RAW" else "FILE"

    def writer(self, sample_rate: int, channels: int) -> Writer:
        """A writer of one file whose length is not known yet. What it gives does not depend on how samples are cut."""
        if self.name == "wav":  # as long as a header can say: readers go on to the end
            return _Encoded(RAW, sample_rate, channels, _wav_header(sample_rate, channels))
        return _Encoded(self, sample_rate, channels, b"")

    def whole(self, samples: Tensor, sample_rate: int) -> bytes:
        """A file of samples that are all there; its header knows their number."""
        buffer = io.BytesIO()
        soundfile.write(
            buffer, samples.numpy(), sample_rate, format=self.format, subtype=self.subtype, endian=self.endian
        )
        return buffer.getvalue()


RAW = Container("pcm", "audio/pcm", "RAW", "PCM_16")
CONTAINERS = (
    Container("wav", "audio/wav", "WAV", "PCM_16"),
    RAW,
    Container("flac", "audio/flac", "FLAC", "PCM_16"),
    Container(
        "mp3", "audio/mpeg", "MP3", "MPEG_LAYER_III", (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
    ),
    Container("opus", "audio/ogg", "OGG", "OPUS", (8000, 12000, 16000, 24000, 48000)),
)


def containers(sample_rate: int) -> dict[str, Container]:
    """The containers that the audio library here can write at a sample rate, by name."""
    return {
        each.name: each
        for each in CONTAINERS
        if (each.rates is None or sample_rate in each.rates)
        and each.subtype in soundfile.available_subtypes(each.format)
    }


class _Encoded:
    """An encoder of the audio library over a file that can only grow, behind a header of its own."""

    def __init__(self, container: Container, sample_rate: int, channels: int, header: bytes) -> None:
        self._sink = _Sink()
        self._header = header
        # at a constant rate, readers can tell the length of an MP3 whose header was written before it was known
        constant = {"bitrate_mode": "CONSTANT", "compression_level": 0.5} if container.name == "mp3" else {}
        self._file = soundfile.SoundFile(
            self._sink,
            "w",
            samplerate=sample_rate,
            channels=channels,
            format=container.format,
            subtype=container.subtype,
            endian=container.endian,
            **constant,
        )

    def write(self, samples: Tensor) -> bytes:
        self._file.write(samples.numpy())
        return self._taken()

    def end(self) -> bytes:
        self._file.close()
        return self._taken()

    def _taken(self) -> bytes:
        header, self._header = self._header, b""
        return header + self._sink.taken()


class _Sink:
    """A file of which only the end is kept: what an encoder would go back to change has left already."""

    def __init__(self) -> None:
        self._new = bytearray()
        self._size = self._position = 0

    def write(self, data: bytes) -> int:
        count = len(data)
        if self._position == self._size:
            self._new += data
            self._size += count
        self._position += count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, _count: int = -1) -> bytes:
        return b""

    def flush(self) -> None:
        pass

    def taken(self) -> bytes:
        new = bytes(self._new)
        self._new.clear()
        return new


def _wav_header(sample_rate: int, channels: int) -> bytes:
    width = 2 * channels
    form = struct.pack("<HHIIHH", 1, channels, sample_rate, sample_rate * width, width, 16)
    return (
        b"RIFF"
        + struct.pack("<I4s4sI", _UNKNOWN, b"WAVE", b"fmt ", len(form))
        + form
        + b"data"
        + struct.pack("<I", _UNKNOWN)
    )
