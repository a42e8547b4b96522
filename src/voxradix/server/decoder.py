"""The decoder: the thread in which frames become the bytes of audio files, for readers that are ready for more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from voxradix.audio import Codec, CodecStream, Container, Writer
from voxradix.errors import VoxradixError

_T = TypeVar("_T")
_PIECE = 12
"""Frames of a whole file that are decoded at once: others wait for no more."""


class Sounding:
    """The audio of one take on its way to a reader."""

    def __init__(self, codec: Codec, writer: Writer, skip: int) -> None:
        """Audio for a writer, less its first ``skip`` samples. `VoxradixError` when the codec has no room."""
        self.stream: CodecStream = codec.stream()
        self._writer = writer
        self._skip = skip

    def written(self, samples: Tensor, last: bool) -> bytes:
        """The bytes made ready by more samples, and by the end of the stream after ``last``."""
        data = self._kept(samples)
        return data + self._kept(self.stream.finish()) + self._writer.end() if last else data

    def _kept(self, samples: Tensor) -> bytes:
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
    """Makes sound of frames in a thread of its own. What waits at the same time is decoded together."""

    def __init__(self, codec: Codec) -> None:
        """A decoder with its thread."""
        self.codec = codec
        self._thread = ThreadPoolExecutor(1, "voxradix-codec")
        self._waiting: list[_Piece] = []
        self._work: asyncio.Task[None] | None = None
        self._room = asyncio.Condition()

    async def run(self, work: Callable[..., _T], *arguments: object) -> _T:
        """Work that concerns the codec, in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    async def open(self, writer: Writer, skip: int = 0) -> Sounding:
        """Begin the audio of a take, less its first ``skip`` frames, when the codec has room for it."""
        async with self._room:
            while True:
                try:
                    return await self.run(Sounding, self.codec, writer, skip * self.codec.samples_per_frame)
                except VoxradixError:
                    await self._room.wait()

    async def close(self, sounding: Sounding) -> None:
        """Give back what the audio of a take has held, even when the task that asks for it is cancelled."""
        await asyncio.shield(asyncio.ensure_future(self._closed(sounding)))

    async def sound(self, sounding: Sounding, codes: Tensor, last: bool) -> bytes:
        """The bytes made ready by more codes int64 [k, codebooks]; after ``last``, all that are left."""
        piece = _Piece(sounding, codes, last, asyncio.get_running_loop().create_future())
        self._waiting.append(piece)
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._passes())
        return await piece.sound

    async def whole(self, container: Container, codes: Tensor, skip: int = 0) -> bytes:
        """The file of all frames of a take, less the first ``skip``."""
        sounding = await self.open(container.whole_writer(self.codec.sample_rate), skip)
        try:
            for part in codes.split(_PIECE):
                await self.sound(sounding, part, last=False)
            return await self.sound(sounding, codes[:0], last=True)
        finally:
            await self.close(sounding)

    def shut(self) -> None:
        """End the thread."""
        self._thread.shutdown(cancel_futures=True)

    async def _closed(self, sounding: Sounding) -> None:
        await self.run(sounding.stream.close)
        async with self._room:
            self._room.notify()

    async def _passes(self) -> None:
        while self._waiting:
            pieces = [piece for piece in self._waiting if not piece.sound.done()]  # whose readers have not gone
            self._waiting = []
            for piece, sound in zip(pieces, await self.run(_pass, self.codec, pieces), strict=True):
                if piece.sound.done():
                    continue
                if isinstance(sound, bytes):
                    piece.sound.set_result(sound)
                else:
                    piece.sound.set_exception(sound)


def _pass(codec: Codec, pieces: Sequence[_Piece]) -> list[bytes | Exception]:
    """One pass over the pieces that wait. Codes that do not fit are their own piece's error alone."""
    try:
        made = codec.push({piece.sounding.stream: piece.codes for piece in pieces})
    except VoxradixError:  # nothing is decoded
        return [_alone(piece) for piece in pieces]
    except Exception as error:
        return [error for _ in pieces]
    return [_written(piece, made[piece.sounding.stream]) for piece in pieces]


def _alone(piece: _Piece) -> bytes | Exception:
    try:
        samples = piece.sounding.stream.push(piece.codes)
    except Exception as error:
        return error
    return _written(piece, samples)


def _written(piece: _Piece, samples: Tensor) -> bytes | Exception:
    try:
        return piece.sounding.written(samples, piece.last)
    except Exception as error:
        return error
