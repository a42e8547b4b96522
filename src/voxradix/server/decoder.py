"""The decoder: the thread in which frames become the bytes of audio files, for readers that are ready for more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import TypeVar

from torch import Tensor

from voxradix.audio import Codec, CodecStream, Container, Writer
from voxradix.errors import VoxradixError
from voxradix.server.lead import MOST_SECONDS
from voxradix.server.sounding import PIECE, Sounding

_T = TypeVar("_T")
_MOST = 16 * PIECE
"""Frames in a pass, about: the codec's thread is free for what comes next after so many."""
_IDLE_SECONDS = 1.5 * MOST_SECONDS
"""A reader who has not asked for so long may lose its stream: one who keeps up asks more often."""
_TICK = 0.1


class _Piece:
    """Codes that a reader waits for; the codec's thread writes all but ``sound``.

    Attributes:
        data: The bytes made so far.
        error: Why there will be no more of them.
        over: Whether all codes are decoded, or there was an error.
        retried: Whether a pass that it shared has failed: it then goes alone, so that only the guilty one fails.
    """

    def __init__(self, sounding: Sounding, last: bool) -> None:
        self.sounding = sounding
        self.last = last
        self.sound: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.data = b""
        self.error: Exception | None = None
        self.over = False
        self.retried = False

    @property
    def behind(self) -> bool:
        """Whether readers who keep up go first."""
        return self.retried or not self.sounding.live or self.sounding.repeats

    def took(self, codes: Tensor, samples: Tensor) -> None:
        """The sounding's stream has decoded some more of it."""
        self.data += self.sounding.took(codes, samples)
        if not self.sounding.left:
            self.data += self.sounding.finish() if self.last else b""
            self.over = True

    def fail(self, error: BaseException) -> None:
        """It will never be whole."""
        self.over = True
        if not isinstance(error, VoxradixError):  # some errors, as StopIteration, cannot be a future's
            failure = RuntimeError(f"the codec has failed: {error!r}")
            failure.__cause__ = error
            error = failure
        self.error = error

    def resolve(self) -> None:
        """Hand its reader what became of it."""
        self.sounding.asked = monotonic()
        if self.sound.done():
            return
        if self.error is None:
            self.sound.set_result(self.data)
        else:
            self.sound.set_exception(self.error)


class Decoder:
    """Makes sound of frames in a thread of its own. What waits at the same time is decoded together.

    Readers who keep up come first. Whole files, and audio that is made again, get every other pass, in small pieces.
    A sounding has no stream before it is asked for sound. When the codec has no room for another, the one whose reader
    has been idle longest loses its own, which costs that reader alone.
    """

    def __init__(self, codec: Codec) -> None:
        """A decoder with its thread, and one that writes whole files."""
        self.codec = codec
        self._thread = ThreadPoolExecutor(1, "voxradix-codec")
        self._writer = ThreadPoolExecutor(1, "voxradix-file")
        self._soundings: set[Sounding] = set()
        self._waiting: list[_Piece] = []
        self._work: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._files = asyncio.Lock()

    async def run(self, work: Callable[..., _T], *arguments: object) -> _T:
        """Work that concerns the codec, in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def open(self, writer: Writer, skip: int = 0, live: bool = True) -> Sounding:
        """Begin the audio of a take, less its first ``skip`` frames. It must be closed."""
        sounding = Sounding(self.codec, writer, skip, live)
        self._soundings.add(sounding)
        return sounding

    def close(self, sounding: Sounding) -> None:
        """Give back what the audio of a take has held, once the codec's thread is free."""
        self._soundings.discard(sounding)
        loop = asyncio.get_running_loop()

        def closed() -> None:
            try:
                sounding.park()
            finally:
                with suppress(RuntimeError):  # the loop is closed: nobody waits for room
                    loop.call_soon_threadsafe(self._changed.set)

        with suppress(RuntimeError):  # the thread has ended, and with it all streams
            self._thread.submit(closed)

    async def sound(self, sounding: Sounding, codes: Tensor, last: bool) -> bytes:
        """The bytes made ready by more codes int64 [k, codebooks]; after ``last``, all that are left."""
        sounding.add(codes)
        piece = _Piece(sounding, last)
        self._waiting.append(piece)
        self._changed.set()
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._passes())
        return await piece.sound

    async def whole(self, container: Container, codes: Tensor, skip: int = 0) -> bytes:
        """The file of all frames of a take, less the first ``skip``. One is made at a time, for they do not hurry."""
        async with self._files:
            writer = container.whole_writer(self.codec.sample_rate)
            sounding = self.open(writer, skip, live=False)
            try:
                await self.sound(sounding, codes, last=True)
            finally:
                self.close(sounding)
            return await asyncio.get_running_loop().run_in_executor(self._writer, writer.end)

    def shut(self) -> None:
        """End the threads."""
        self._thread.shutdown(cancel_futures=True)
        self._writer.shutdown(cancel_futures=True)

    async def _passes(self) -> None:
        try:
            while self._waiting:
                self._changed.clear()
                served = await self._pass(behind=False, most=_MOST)
                served += await self._pass(behind=True, most=1)
                if not served and self._waiting:  # the codec is full, until a stream ends or its reader falls asleep
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_TICK):
                            await self._changed.wait()
        finally:
            for piece in self._waiting:
                piece.fail(RuntimeError("the decoder has stopped"))
                piece.resolve()
            self._waiting = []

    async def _pass(self, behind: bool, most: int) -> int:
        """One pass over pieces that are behind or are not, in the order of their asking; returns how many it served."""
        self._waiting = [piece for piece in self._waiting if not piece.sound.done()]  # whose readers have not gone
        wanted = [piece for piece in self._waiting if piece.behind is behind]
        if not wanted:
            return 0
        asking, before = {piece.sounding for piece in self._waiting}, monotonic() - _IDLE_SECONDS
        idle = [each for each in self._soundings if each not in asking and each.asked < before]
        served = await self.run(_served, self.codec, wanted, most, sorted(idle, key=lambda each: each.asked))
        for piece in served:
            self._waiting.remove(piece)
            if piece.over:
                piece.resolve()
            else:
                self._waiting.append(piece)  # others that are behind have their turn
        return len(served)


def _served(codec: Codec, wanted: Sequence[_Piece], most: int, idle: Sequence[Sounding]) -> list[_Piece]:
    """Decode some of each piece until that are ``most`` frames or more; those for which there is no room are left out.

    A pass that fails has decoded nothing where it says so (`VoxradixError`). Otherwise nobody knows what its streams
    have heard: they are closed, and hear all of it anew, alone.
    """
    parts: dict[_Piece, Tensor] = {}
    served: list[_Piece] = []
    frames = 0
    for piece in wanted:
        if frames >= most:
            break
        try:
            if not _has_stream(piece.sounding, idle):
                continue
            parts[piece] = piece.sounding.next()
            frames += max(len(parts[piece]), 1)
        except BaseException as error:
            piece.fail(error)
        served.append(piece)
    try:
        made = codec.push({_stream(piece): codes for piece, codes in parts.items()}) if parts else {}
    except BaseException as error:
        for piece in parts:
            if not isinstance(error, VoxradixError):
                piece.sounding.park()
            if len(parts) == 1:
                piece.fail(error)
            piece.retried = True
        return served
    for piece, codes in parts.items():
        try:
            piece.took(codes, made[_stream(piece)])
        except BaseException as error:
            piece.fail(error)
    return served


def _stream(piece: _Piece) -> CodecStream:
    assert piece.sounding.stream is not None
    return piece.sounding.stream


def _has_stream(sounding: Sounding, idle: Sequence[Sounding]) -> bool:
    """See that a sounding has a stream, if need be that of one whose reader is idle."""
    while sounding.stream is None:
        try:
            sounding.take_stream()
        except VoxradixError:
            asleep = next((each for each in idle if each.stream is not None), None)
            if asleep is None:
                return False
            asleep.park()
    return True
