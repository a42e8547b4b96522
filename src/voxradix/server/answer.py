"""An answer: one request from its admission to the last byte, whatever becomes of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from voxradix.server.connection import break_off
from voxradix.server.house import House
from voxradix.server.refusal import Refusal, stopping

_log = logging.getLogger("voxradix.server")
_CHUNK = 1 << 16
"""Bytes of a body that is all there, sent at once: a client must take so many within the time for one."""


class Gone(Exception):  # noqa: N818 - nothing failed: there is nobody to answer
    """The client has hung up, or has stopped reading."""


class Answer(Response):
    """Work whose outcome is sent; subclasses say what. It is left when nobody wants it, or may have it, any longer.

    Attributes:
        house: What all answers share.
        started: Whether the status is sent. What fails before is answered with a status of its own.
    """

    def __init__(self, house: House) -> None:
        """An answer that has not begun."""
        super().__init__()
        self.house = house
        self.started = False
        self._complete = False

    def enter(self) -> None:
        """Be admitted, or raise `Refusal`."""
        self.house.admission.enter(0)

    async def work(self) -> None:
        """Do it, and send what comes of it."""
        raise NotImplementedError

    def at_work(self) -> bool:
        """Whether the time of a request still runs; it does not for a reader of what is made."""
        return not self.started

    async def farewell(self, refusal: Refusal) -> None:
        """Say why the body ends early, where its form allows for that. One left incomplete is broken off."""

    def leave(self) -> None:
        """It is over, whatever became of it."""
        self.house.admission.left()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. When the client hangs up or the time is over, the work is left at once."""
        self._send = send
        try:
            self.enter()
        except Refusal as refusal:
            return await self._refuse(refusal, scope, receive, send)
        try:
            await self._until_over(receive)
        except Gone:
            pass
        except Refusal as refusal:
            if self.started:
                with suppress(Gone, TimeoutError):
                    await self.farewell(refusal)
            else:
                await self._refuse(refusal, scope, receive, send)
        finally:
            self.leave()
            if self.started and not self._complete:
                break_off(scope)

    async def begin_sending(self, headers: dict[str, str]) -> None:
        """Send the status and the headers."""
        self.started = True
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await self._sent({"type": "http.response.start", "status": 200, "headers": encoded})

    async def send_body(self, data: bytes, more: bool = True) -> None:
        """Send some of the body."""
        await self._sent({"type": "http.response.body", "body": data, "more_body": more})
        self._complete = not more

    async def send_whole(self, data: bytes) -> None:
        """Send all of the body."""
        for start in range(0, len(data), _CHUNK):
            await self.send_body(data[start : start + _CHUNK])
        await self.send_body(b"", more=False)

    async def _sent(self, message: Message) -> None:
        """Send; a client that takes nothing for long is as good as gone."""
        try:
            async with asyncio.timeout(self.house.settings.request_seconds):
                await self._send(message)
        except (TimeoutError, OSError):
            raise Gone from None

    async def _until_over(self, receive: Receive) -> None:
        """Work, until that is done or there is no use in going on."""
        seconds = self.house.settings.request_seconds
        late = Refusal(504, f"the request was not spoken within {seconds:g} s", code="timeout")
        work = asyncio.create_task(self._work())
        ends: dict[asyncio.Task[object], Exception] = {
            asyncio.create_task(_hung_up(receive)): Gone(),
            asyncio.create_task(self.house.cut.wait()): stopping(),
            asyncio.create_task(self._late(seconds)): late,
        }
        try:
            await asyncio.wait([work, *ends], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise next(reason for end, reason in ends.items() if end.done())
            await work
        finally:
            await cancelled([work, *ends])

    async def _work(self) -> None:
        try:
            await self.work()
        except Gone:
            raise
        except Exception as error:
            raise refusal_of(error) from None

    async def _late(self, seconds: float) -> None:
        """Returns when the time is over and the work is not."""
        await asyncio.sleep(seconds)
        if not self.at_work():
            await asyncio.Event().wait()

    async def _refuse(self, refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
        self.house.measures.refused(refusal.status)
        await refusal.response()(scope, receive, send)


def refusal_of(error: Exception) -> Refusal:
    """What a reply that has failed with an error is answered with. One that nobody foresaw is logged."""
    if isinstance(error, Refusal):
        return error
    _log.error("a reply failed", exc_info=error)
    return Refusal(500, "the reply failed", code="failed")


async def cancelled(tasks: Sequence[asyncio.Task[object]] | Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
