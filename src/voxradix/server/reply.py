"""A reply: one request from its admission to the last byte, whatever becomes of it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

import torch
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from voxradix.audio import Container
from voxradix.server.decoder import channels_of
from voxradix.server.desk import Order
from voxradix.server.fields import SpeechFields
from voxradix.server.house import House
from voxradix.server.lead import FIRST_SECONDS, Lead
from voxradix.server.news import Begun, Ended, Failed, Frames, Mailbox, News, Recomputed
from voxradix.server.refusal import Refusal, stopping
from voxradix.server.takes import KeptTake, new_id

_log = logging.getLogger("voxradix.server")


class _Gone(Exception):  # noqa: N818 - nothing failed: there is nobody to answer
    """The client has hung up, or has stopped reading."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a reply has to do."""

    fields: SpeechFields
    order: Order
    container: Container


class Voicing:
    """One of a reply's takes.

    Attributes:
        index: Its number among them.
        name: The id it is kept under.
        mailbox: Where its news arrives.
        begun: How it began.
        kept: The take on the shelf, once it has ended.
        over: Whether it has ended, or was left.
    """

    begun: Begun
    kept: KeptTake

    def __init__(self, index: int, reply: Reply) -> None:
        """A take that has not begun."""
        self.index = index
        self.name = new_id()
        self.mailbox = Mailbox(lambda news: reply.ended(self, news))
        self.news: list[News] = []
        self.over = False


class Reply(Response):
    """Speaks a job and sends what becomes of it; subclasses say in which form.

    Nothing is sent before the first frame of each take exists, so what fails before is answered with its status.
    """

    def __init__(self, house: House, job: Job) -> None:
        """A reply that has not begun."""
        super().__init__()
        self.house = house
        self.job = job
        self.codec = house.decoder.codec
        self.voicings: list[Voicing] = []
        self._started = False

    async def start(self) -> None:
        """All takes have begun."""

    async def frames(self, voicing: Voicing, news: Frames | Recomputed) -> None:
        """Frames were made, or their rows computed again."""

    async def audio(self, voicing: Voicing, data: bytes) -> None:
        """Some more of a take's audio file is there."""

    async def done(self, voicing: Voicing) -> None:
        """All of a take's audio is there."""

    async def failed(self, voicing: Voicing, refusal: Refusal) -> None:
        """A take has failed."""
        raise refusal

    async def end(self) -> None:
        """All takes are done."""

    async def break_off(self, refusal: Refusal) -> None:
        """The reply ends early. Left incomplete, it makes the client's reading fail: cut audio never looks whole."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. When the client hangs up or the time is over, the takes are left at once."""
        self._send = send
        house, count, began = self.house, self.job.fields.n, monotonic()
        try:
            house.admission.enter(count)
        except Refusal as refusal:
            return await self._refuse(refusal, scope, receive, send)
        try:
            self.voicings = [Voicing(index, self) for index in range(count)]
            house.desk.begin(self.job.order, [voicing.mailbox for voicing in self.voicings])
            await self._until_over(receive)
            house.measures.spoken(monotonic() - began)
        except _Gone:
            pass
        except Refusal as refusal:
            if self._started:
                with suppress(_Gone, TimeoutError):
                    await self.break_off(refusal)
            else:
                await self._refuse(refusal, scope, receive, send)
        finally:
            left = [voicing for voicing in self.voicings if not voicing.over]
            for voicing in left:
                voicing.over = True
            house.desk.leave([voicing.mailbox for voicing in left])
            house.admission.ended(count - len(self.voicings) + len(left))
            house.admission.left()

    def ended(self, voicing: Voicing, news: Ended | Failed) -> None:
        """A take has ended, however much of it is sent by now: it is kept, and makes room for another."""
        if voicing.over:
            return
        voicing.over = True
        self.house.admission.ended(1)
        if isinstance(news, Ended):
            voicing.kept = KeptTake(voicing.name, self.job.order.salt, news.take, news.kept, news.unknown)
            self.house.shelf.keep(voicing.kept)

    async def send(self, message: Message) -> None:
        """Send; a client that takes nothing for long is as good as gone."""
        try:
            async with asyncio.timeout(self.house.settings.request_seconds):
                await self._send(message)
        except (TimeoutError, OSError):
            raise _Gone from None

    async def begin_sending(self, media_type: str, **headers: str) -> None:
        """Send the status and the headers."""
        self._started = True
        begun = self.voicings[0].begun
        about = {
            "Take": ",".join(voicing.name for voicing in self.voicings),
            "Seed": ",".join(str(voicing.begun.seed) for voicing in self.voicings),
            "Prompt-Rows": begun.prompt_rows,
            "Reused-Rows": begun.reused_prompt_rows + begun.reused_generated_rows,
            "Reused-Prompt-Rows": begun.reused_prompt_rows,
            "Reused-Generated-Rows": begun.reused_generated_rows,
            "Kept-Frames": len(begun.kept),
            "Sample-Rate": self.codec.sample_rate,
            "Channels": channels_of(self.codec),
        }
        if begun.first_frame_seconds is not None:
            about["First-Frame-Ms"] = round(1000 * begun.first_frame_seconds, 2)
        names = {f"x-voxradix-{name.lower()}": str(value) for name, value in about.items()}
        names |= {"content-type": media_type, "cache-control": "no-store", **headers}
        await self.send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(name.encode(), value.encode("latin-1")) for name, value in names.items()],
            }
        )

    async def send_body(self, data: bytes, more: bool = True) -> None:
        """Send some of the body."""
        await self.send({"type": "http.response.body", "body": data, "more_body": more})

    async def voice(self, voicing: Voicing) -> None:
        """Bring one take from its frames to the reader's ears, in pieces that grow with the reader's lead."""
        begun, lead, rate = voicing.begun, Lead(), self.house.desk.voice.frame_rate
        skip = len(begun.kept) if self.job.fields.new_only else 0
        sounding = self.house.decoder.open(self.job.container, skip)
        codes, news, over = begun.kept, voicing.news, False
        while not over:
            for each in news:
                match each:
                    case Frames():
                        codes = torch.cat((codes, each.codes))
                        await self.frames(voicing, each)
                    case Recomputed():
                        await self.frames(voicing, each)
                    case Failed():
                        raise each.refusal
                    case Ended():
                        over = True
            hurry = over or not news
            while len(codes) or over:
                size = max(round(lead.piece(monotonic()) * rate), 1)
                if len(codes) < size and not hurry:
                    break
                part, codes = codes[:size], codes[size:]
                last = over and not len(codes)
                data = await self.house.decoder.sound(sounding, part, last)
                heard = max(len(part) - skip, 0)
                skip -= len(part) - heard
                lead.sent(heard / rate, monotonic())
                if data:
                    await self.audio(voicing, data)
                if last:
                    break
            if not over:
                # what is in hand must not wait longer than the reader has to listen to
                patience = max(lead.seconds(monotonic()), FIRST_SECONDS) if len(codes) and lead.begun else None
                news = await voicing.mailbox.take(patience)
        await self.done(voicing)

    async def _until_over(self, receive: Receive) -> None:
        """Speak, until that is done or there is no use in going on."""
        seconds = self.house.settings.request_seconds
        late = Refusal(504, f"the request was not spoken within {seconds:g} s", code="timeout")
        speech = asyncio.create_task(self._speak())
        ends: dict[asyncio.Task[object], Exception] = {
            asyncio.create_task(_hung_up(receive)): _Gone(),
            asyncio.create_task(self.house.cut.wait()): stopping(),
            asyncio.create_task(self._late(seconds)): late,
        }
        try:
            await asyncio.wait([speech, *ends], return_when=asyncio.FIRST_COMPLETED)
            if not speech.done():
                raise next(reason for end, reason in ends.items() if end.done())
            await speech
        finally:
            await _cancelled([speech, *ends])

    async def _late(self, seconds: float) -> None:
        """Returns when the time is over and a take is not; a reader of finished takes has all the time."""
        await asyncio.sleep(seconds)
        if all(voicing.over for voicing in self.voicings):
            await asyncio.Event().wait()

    async def _speak(self) -> None:
        tasks: list[asyncio.Task[None]] = []
        try:
            for voicing in self.voicings:
                await self._beginning(voicing)
            await self.start()
            tasks = [asyncio.create_task(self._voice_or_fail(voicing)) for voicing in self.voicings]
            await asyncio.gather(*tasks)
            await self.end()
        except (_Gone, Refusal):
            raise
        except Exception:
            _log.exception("a reply failed")
            raise Refusal(500, "the reply failed", code="failed") from None
        finally:
            await _cancelled(tasks)

    async def _beginning(self, voicing: Voicing) -> None:
        news = await voicing.mailbox.take()
        if isinstance(news[0], Failed):
            raise news[0].refusal
        assert isinstance(news[0], Begun)
        voicing.begun, voicing.news = news[0], news[1:]
        if voicing.begun.first_frame_seconds is not None:
            self.house.measures.first_frame(voicing.begun.first_frame_seconds)

    async def _voice_or_fail(self, voicing: Voicing) -> None:
        try:
            await self.voice(voicing)
        except Refusal as refusal:
            await self.failed(voicing, refusal)

    async def _refuse(self, refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
        self.house.measures.refused(refusal.status)
        await refusal.response()(scope, receive, send)


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancelled(tasks: list[asyncio.Task[object]] | list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
