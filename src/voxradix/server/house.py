"""The house: all that the replies of one server share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from time import monotonic
from typing import TypeVar

from voxradix.audio import Container, containers
from voxradix.engine import Engine
from voxradix.server.admission import Admission
from voxradix.server.decoder import Decoder
from voxradix.server.desk import Desk
from voxradix.server.keys import Keys
from voxradix.server.measures import Measures
from voxradix.server.settings import Settings
from voxradix.server.takes import TakeShelf
from voxradix.server.uploads import Uploads

_T = TypeVar("_T")
_TICK = 0.05


class House:
    """An engine at its desk, a decoder, the kept takes, and who may come in.

    Attributes:
        desk: The engine's thread.
        decoder: The codec's thread.
        shelf: The kept takes.
        uploads: Bodies on their way.
        admission: Who is let in.
        keys: The API keys.
        measures: Counts and times.
        settings: The limits.
        cut: Set when requests that are still under way must end.
    """

    def __init__(self, make: Callable[[], Engine], settings: Settings) -> None:
        """Start the threads. Raises what ``make`` raises, and `VoxradixError` for a voice without a codec."""
        self.settings = settings
        self.measures = Measures()
        self.keys = Keys(settings.keys)
        self.shelf = TakeShelf(settings.max_takes, settings.max_take_frames)
        self.admission = Admission(settings.max_batch, settings.queue, settings.readers, self.measures.request_seconds)
        self.uploads = Uploads(settings.uploads)
        self.cut = asyncio.Event()
        self._writer = ThreadPoolExecutor(1, "voxradix-script")
        self.desk = Desk(make, self.measures.step)
        try:
            self.decoder = Decoder(self.desk.voice.codec)
        except BaseException:
            self.desk.close()
            raise
        self.measures.watch(lambda: self.desk.snapshot, lambda: len(self.shelf))

    @cached_property
    def containers(self) -> dict[str, Container]:
        """The containers that can be written, by name."""
        return containers(self.decoder.codec.sample_rate)

    @property
    def sound(self) -> dict[str, object]:
        """What the voice's samples are."""
        return {"sample_rate": self.decoder.codec.sample_rate, "channels": self.decoder.codec.channels}

    async def scripts(self, work: Callable[..., _T], *arguments: object) -> _T:
        """Work on a text, which for a long one takes a while, in a thread of its own."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, work, *arguments)

    @property
    def status(self) -> str:
        """What the server is up to: "ok", "stopping" or "down"."""
        if not self.desk.alive:
            return "down"
        return "ok" if self.admission.open else "stopping"

    async def empty(self) -> None:
        """Admit nobody, let replies end, and cut off those that have not after ``stop_seconds``."""
        self.admission.open = False
        deadline = monotonic() + self.settings.stop_seconds
        while self.admission.replies and monotonic() < deadline:
            await asyncio.sleep(_TICK)
        self.cut.set()

    def close(self) -> None:
        """End the threads."""
        self.desk.close()
        self.decoder.shut()
        self._writer.shutdown(cancel_futures=True)
