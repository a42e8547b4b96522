"""The decoder: the thread in which frames become the bytes of audio files, for readers that are ready for more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from torch import Tensor

from voxradix.audio import Codec, Container


class Sounding:
    """The audio of one take on its way to a reader."""

    def __init__(self, codec: Codec, container: Container, skip: int) -> None:
        """Audio in a container; the first ``skip`` samples are left out."""
        self._stream = codec.stream()
        self._writer = container.writer(codec.sample_rate, channels_of(codec))
        self._skip = skip

    def advance(self, codes: Tensor, last: bool) -> bytes:
        """The bytes made ready by more codes int64 [k, codebooks], and by the end of the stream after ``last``."""
        data = self._written(self._stream.push(codes))
        return data + self._written(self._stream.finish()) + self._writer.end() if last else data

    def _written(self, samples: Tensor) -> bytes:
        skipped = min(self._skip, len(samples))
        self._skip -= skipped
        return self._writer.write(samples[skipped:])


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    sounding: Sounding
    codes: Tensor
    last: bool
    sound: asyncio.Future[bytes]


class Decoder:
    """Makes sound of frames in a thread of its own. What waits at the same time is done in one pass."""

    def __init__(self, codec: Codec) -> None:
        """A decoder with its thread."""
        self.codec = codec
        self._thread = ThreadPoolExecutor(1, "voxradix-codec")
        self._waiting: list[_Piece] = []
        self._work: asyncio.Task[None] | None = None

    def open(self, container: Container, skip: int = 0) -> Sounding:
        """Begin the audio of a take, less its first ``skip`` frames."""
        return Sounding(self.codec, container, skip * self.codec.samples_per_frame)

    async def sound(self, sounding: Sounding, codes: Tensor, last: bool) -> bytes:
        """`Sounding.advance`, in the decoder's thread."""
        piece = _Piece(sounding, codes, last, asyncio.get_running_loop().create_future())
        self._waiting.append(piece)
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._passes())
        return await piece.sound

    async def whole(self, container: Container, codes: Tensor, skip: int = 0) -> bytes:
        """The file of all frames of a take, less the first ``skip``."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, _whole, self.codec, container, codes, skip)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(cancel_futures=True)

    async def _passes(self) -> None:
        while self._waiting:
            pieces, self._waiting = self._waiting, []
            sounds = await asyncio.get_running_loop().run_in_executor(self._thread, _pass, pieces)
            for piece, sound in zip(pieces, sounds, strict=True):
                if piece.sound.done():  # its reader has gone
                    continue
                if isinstance(sound, bytes):
                    piece.sound.set_result(sound)
                else:
                    piece.sound.set_exception(sound)


def channels_of(codec: Codec) -> int:
    """How many channels a codec's samples have."""
    return int(getattr(codec, "channels", 1))


def _pass(pieces: Sequence[_Piece]) -> list[bytes | Exception]:
    """One pass over the pieces that wait; an error is its own piece's alone."""
    return [_advanced(piece) for piece in pieces]


def _advanced(piece: _Piece) -> bytes | Exception:
    try:
        return piece.sounding.advance(piece.codes, piece.last)
    except Exception as error:
        return error


def _whole(codec: Codec, container: Container, codes: Tensor, skip: int) -> bytes:
    return container.whole(codec.decode(codes)[skip * codec.samples_per_frame :], codec.sample_rate)
