"""A reply: the takes that one request asks for, from their order to the last byte."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic

import torch

from voxradix.audio import Container
from voxradix.server.answer import Answer, Gone, cancelled, refusal_of
from voxradix.server.desk import Order
from voxradix.server.fields import SpeechFields
from voxradix.server.house import House
from voxradix.server.lead import FIRST_SECONDS, Lead
from voxradix.server.news import Begun, Ended, Failed, Frames, Mailbox, News, Recomputed
from voxradix.server.refusal import Refusal
from voxradix.server.sounding import Sounding
from voxradix.server.takes import KeptTake, new_id


@dataclass(frozen=True, slots=True)
class Job:
    """What a reply has to do: the fields, the caller's salt, how the order comes about, and the kind of file."""

    fields: SpeechFields
    salt: str
    order: Callable[[], Awaitable[Order]]
    container: Container


class Voicing:
    """One of a reply's takes.

    Attributes:
        index: Its number among them.
        name: The id it is kept under.
        mailbox: Where its news arrives.
        begun: How it began.
        kept: The take on the shelf, once it has ended.
        refusal: Why there will be none, once that is known.
        over: Whether it has ended, or was left.
        told: Whether its end has been sent.
    """

    begun: Begun
    kept: KeptTake

    def __init__(self, index: int, reply: Reply) -> None:
        """A take that has not begun."""
        self.index = index
        self.name = new_id()
        self.mailbox = Mailbox(lambda news: reply.ended(self, news))
        self.news: list[News] = []
        self.refusal: Refusal | None = None
        self.over = False
        self.told = False


class Reply(Answer):
    """Speaks a job and sends what becomes of it; subclasses say in which form.

    Nothing is sent before the first frame of a take exists, so what fails before is answered with its status.
    """

    def __init__(self, house: House, job: Job) -> None:
        """A reply that has not begun."""
        super().__init__(house)
        self.job = job
        self.codec = house.decoder.codec
        self.voicings: list[Voicing] = []

    async def begun(self, voicing: Voicing) -> None:
        """A take has begun."""

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

    def enter(self) -> None:
        """Be admitted with all takes."""
        self.house.admission.enter(self.job.fields.n)

    async def work(self) -> None:
        """Speak all takes."""
        house, count, started = self.house, self.job.fields.n, monotonic()
        order = await self.job.order()
        self._first_seed = order.seed
        self.voicings = [Voicing(index, self) for index in range(count)]
        house.desk.begin(order, [voicing.mailbox for voicing in self.voicings])
        tasks = [asyncio.create_task(self._spoken(voicing)) for voicing in self.voicings]
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancelled(tasks)
        await self.end()
        house.measures.spoken(monotonic() - started)

    def at_work(self) -> bool:
        """Whether a take is not over; a reader of finished takes has all the time."""
        return not self.voicings or not all(voicing.over for voicing in self.voicings)

    def leave(self) -> None:
        """Leave the takes that have not ended."""
        left = [voicing for voicing in self.voicings if not voicing.over]
        for voicing in left:
            voicing.over = True
        self.house.desk.leave([voicing.mailbox for voicing in left])
        self.house.admission.ended(self.job.fields.n - len(self.voicings) + len(left))
        super().leave()

    def ended(self, voicing: Voicing, news: Ended | Failed) -> None:
        """A take has ended, however much of it is sent by now: it is kept, and makes room for another."""
        if voicing.over:
            return
        voicing.over = True
        self.house.admission.ended(1)
        if isinstance(news, Ended):
            voicing.kept = KeptTake(voicing.name, self.job.salt, news.take, news.kept, news.unknown)
            self.house.shelf.keep(voicing.kept)
        else:
            voicing.refusal = news.refusal

    async def begin_reply(self, first: Voicing, media_type: str) -> None:
        """Send the status and the headers, which tell of the take that has begun first."""
        begun = first.begun
        about = {
            "Take": ",".join(voicing.name for voicing in self.voicings),
            "Seed": ",".join(str(self._first_seed + voicing.index) for voicing in self.voicings),
            "Prompt-Rows": begun.prompt_rows,
            "Reused-Rows": begun.reused_prompt_rows + begun.reused_generated_rows,
            "Reused-Prompt-Rows": begun.reused_prompt_rows,
            "Reused-Generated-Rows": begun.reused_generated_rows,
            "Kept-Frames": len(begun.kept),
            "Sample-Rate": self.codec.sample_rate,
            "Channels": self.codec.channels,
        }
        if begun.first_frame_seconds is not None:
            about["First-Frame-Ms"] = round(1000 * begun.first_frame_seconds, 2)
        names = {f"x-voxradix-{name.lower()}": str(value) for name, value in about.items()}
        await self.begin_sending(names | {"content-type": media_type, "cache-control": "no-store"})

    async def voice(self, voicing: Voicing) -> None:
        """Bring one take from its frames to the reader's ears."""
        skip = len(voicing.begun.kept) if self.job.fields.new_only else 0
        writer = self.job.container.writer(self.codec.sample_rate, self.codec.channels)
        sounding = self.house.decoder.open(writer, skip)
        try:
            await self._sound(voicing, sounding, skip)
        finally:
            self.house.decoder.close(sounding)
        await self.done(voicing)

    async def _sound(self, voicing: Voicing, sounding: Sounding, skip: int) -> None:
        """Send a take's audio in pieces that grow with the reader's lead; the first ``skip`` frames are not heard."""
        codes, lead, rate = voicing.begun.kept, Lead(), self.house.desk.voice.frame_rate
        news, over = voicing.news, False
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

    async def _spoken(self, voicing: Voicing) -> None:
        """Bring one take to its end. One that fails before the status is sent gives the reply its status."""
        try:
            await self._beginning(voicing)
            await self.begun(voicing)
            await self.voice(voicing)
        except Gone:
            raise
        except Exception as error:
            refusal = refusal_of(error)
            if not self.started:
                raise refusal from None
            await self.failed(voicing, refusal)

    async def _beginning(self, voicing: Voicing) -> None:
        news = await voicing.mailbox.take()
        if isinstance(news[0], Failed):
            raise news[0].refusal
        assert isinstance(news[0], Begun)
        voicing.begun, voicing.news = news[0], news[1:]
        if voicing.begun.first_frame_seconds is not None:
            self.house.measures.first_frame(voicing.begun.first_frame_seconds)
