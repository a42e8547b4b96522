"""News of one take under way: what the engine's thread tells the side that answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from torch import Tensor

from voxradix.engine import Take
from voxradix.server.refusal import Refusal


@dataclass(frozen=True, slots=True, eq=False)
class Begun:
    """The first frame exists, or the take has ended without one.

    Attributes:
        seed: The take's seed.
        texts: What is spoken, one request each.
        kept: The codes of the frames that existed before, int64 [K, codebooks].
        prompt_rows: Rows of the first request's prompt.
        reused_prompt_rows: Those found in the cache that had been computed as prompt rows.
        reused_generated_rows: Those found there that had been generated.
        first_frame_seconds: From submission to the first frame; None without one.
    """

    seed: int
    texts: tuple[str, ...]
    kept: Tensor
    prompt_rows: int
    reused_prompt_rows: int
    reused_generated_rows: int
    first_frame_seconds: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """New frames: codes int64 [k, codebooks], the first of them number ``first`` of the take."""

    first: int
    codes: Tensor


@dataclass(frozen=True, slots=True)
class Recomputed:
    """Frames ``first .. first + count - 1`` stay as they are; their rows were lost and computed again."""

    first: int
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Ended:
    """The take is there; the first ``kept`` of its frames existed before, ``unknown`` are words it spells."""

    take: Take
    kept: int
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Failed:
    """There will be no take."""

    refusal: Refusal


News = Begun | Frames | Recomputed | Ended | Failed


class Mailbox:
    """The news of one take, in order. Written and read in the event loop it was made in.

    It holds codes alone, a few integers a frame, and no more of them than the request's budget allows: a reader may be
    as slow as it likes.
    """

    def __init__(self, on_end: Callable[[Ended | Failed], None]) -> None:
        """An empty mailbox of the running event loop; ``on_end`` is called when the last news arrives, read or not."""
        self.loop = asyncio.get_running_loop()
        self._on_end = on_end
        self._news: list[News] = []
        self._arrived = asyncio.Event()

    def put(self, news: Sequence[News]) -> None:
        """Add news, some of it."""
        self._news += news
        self._arrived.set()
        if isinstance(news[-1], Ended | Failed):
            self._on_end(news[-1])

    async def take(self, within: float | None = None) -> list[News]:
        """All news since the last time; none when there is none within some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._arrived.wait()
        self._arrived.clear()
        news, self._news = self._news, []
        return news
