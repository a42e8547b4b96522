"""The forms of an answer: one audio file while it is made or whole, events, or all takes in one JSON object."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode

from voxradix.audio import Container
from voxradix.server.answer import Answer
from voxradix.server.house import House
from voxradix.server.news import Frames, Recomputed
from voxradix.server.refusal import Refusal
from voxradix.server.reply import Job, Reply, Voicing
from voxradix.server.takes import KeptTake


def reply_of(house: House, job: Job) -> Reply:
    """The reply in the form that a job asks for."""
    if job.fields.stream_format == "sse":
        return EventReply(house, job)
    return FileReply(house, job) if job.fields.n == 1 else ListReply(house, job)


class FileReply(Reply):
    """One audio file, sent while it is made."""

    async def begun(self, voicing: Voicing) -> None:
        """Send the headers."""
        await self.begin_reply(voicing, self.job.container.media_type)

    async def audio(self, voicing: Voicing, data: bytes) -> None:
        """Send the next bytes."""
        await self.send_body(data)

    async def end(self) -> None:
        """Complete the file."""
        await self.send_body(b"", more=False)


class ListReply(Reply):
    """Several takes in one JSON object, each with its whole file."""

    def __init__(self, house: House, job: Job) -> None:
        """A reply that has not begun."""
        super().__init__(house, job)
        self._files = [""] * job.fields.n

    async def voice(self, voicing: Voicing) -> None:
        """Wait for the take's end, and make its file."""
        while not voicing.over:
            await voicing.mailbox.take()
        if voicing.refusal is not None:
            raise voicing.refusal
        skip = voicing.kept.kept if self.job.fields.new_only else 0
        file = await self.house.decoder.whole(self.job.container, voicing.kept.take.codes, skip)
        self._files[voicing.index] = await self.house.scripts(_base64, file)

    async def end(self) -> None:
        """Send them all."""
        await self.begin_reply(self.voicings[0], "application/json")
        takes = [
            {
                **voicing.kept.about(),
                **self.house.sound,
                "index": voicing.index,
                "format": self.job.container.name,
                "audio": file,
            }
            for voicing, file in zip(self.voicings, self._files, strict=True)
        ]
        await self.send_whole(await self.house.scripts(_json, {"object": "list", "data": takes}))


def _base64(file: bytes) -> str:
    return b64encode(file).decode()


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


class EventReply(Reply):
    """Server-sent events: OpenAI's, and with details those that tell how the audio is made."""

    async def event(self, kind: str, voicing: Voicing, **values: object) -> None:
        """Send one event."""
        data = json.dumps({"type": kind, "index": voicing.index, **values}, separators=(",", ":"))
        await self.send_body(f"data: {data}\n\n".encode())

    async def detail(self, kind: str, voicing: Voicing, **values: object) -> None:
        """Send one event that only a request for details wants."""
        if self.job.fields.details:
            await self.event(f"voxradix.{kind}", voicing, **values)

    async def begun(self, voicing: Voicing) -> None:
        """Send the headers with the first take's beginning, and how each has begun."""
        if not self.started:
            await self.begin_reply(voicing, "text/event-stream")
        begun, first = voicing.begun, voicing.begun.first_frame_seconds
        await self.detail(
            "begin",
            voicing,
            take=voicing.name,
            seed=begun.seed,
            texts=begun.texts,
            kept_frames=len(begun.kept),
            prompt_rows=begun.prompt_rows,
            reused_prompt_rows=begun.reused_prompt_rows,
            reused_generated_rows=begun.reused_generated_rows,
            first_frame_ms=None if first is None else round(1000 * first, 2),
            **self.house.sound,
            frame_rate=self.house.desk.voice.frame_rate,
            samples_per_frame=self.codec.samples_per_frame,
        )
        if len(begun.kept):
            codes = begun.kept.tolist()
            await self.detail("frames", voicing, how="kept", first=0, count=len(codes), codes=codes)

    async def frames(self, voicing: Voicing, news: Frames | Recomputed) -> None:
        """Send what was made, or computed again."""
        if isinstance(news, Recomputed):
            await self.detail("frames", voicing, how="recomputed", first=news.first, count=news.count)
        else:
            codes = news.codes.tolist()
            await self.detail("frames", voicing, how="made", first=news.first, count=len(codes), codes=codes)

    async def audio(self, voicing: Voicing, data: bytes) -> None:
        """Send the next bytes of the file."""
        await self.event("speech.audio.delta", voicing, audio=b64encode(data).decode())

    async def done(self, voicing: Voicing) -> None:
        """Send the take's name and what it cost."""
        voicing.told = True
        take = voicing.kept.take
        cached = take.reused_prompt_rows + take.reused_generated_rows
        usage = {
            "input_tokens": take.prompt_rows,
            "output_tokens": take.new_frames,
            "total_tokens": take.prompt_rows + take.new_frames,
            "input_tokens_details": {"cached_tokens": cached},
        }
        await self.event(
            "speech.audio.done",
            voicing,
            take=voicing.name,
            finish=take.finish,
            unsaid=list(take.unsaid),
            usage=usage,
        )
        await self.detail("take", voicing, take=voicing.kept.about() | self.house.sound)

    async def failed(self, voicing: Voicing, refusal: Refusal) -> None:
        """Tell of the failure; the other takes go on."""
        voicing.told = True
        await self.event("error", voicing, error=refusal.body)

    async def end(self) -> None:
        """Complete the stream."""
        await self.send_body(b"", more=False)

    async def farewell(self, refusal: Refusal) -> None:
        """Tell of the failure for every take whose end is not told, and complete the stream."""
        async with asyncio.timeout(1):
            for voicing in self.voicings:
                if not voicing.told:
                    await self.failed(voicing, refusal)
            await self.end()


class TakeFile(Answer):
    """The whole audio file of a kept take."""

    def __init__(self, house: House, kept: KeptTake, container: Container) -> None:
        """An answer that has not begun."""
        super().__init__(house)
        self._kept = kept
        self._container = container

    async def work(self) -> None:
        """Make the file and send it."""
        data = await self.house.decoder.whole(self._container, self._kept.take.codes)
        media_type = self._container.media_type
        await self.begin_sending(
            {"content-type": media_type, "content-length": str(len(data)), "cache-control": "no-store"}
        )
        await self.send_whole(data)
