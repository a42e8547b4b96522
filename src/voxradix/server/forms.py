"""The forms of a reply: one audio file, events, or all takes in one JSON object."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode

from voxradix.server.house import House
from voxradix.server.news import Failed, Frames, Recomputed
from voxradix.server.refusal import Refusal
from voxradix.server.reply import Job, Reply, Voicing


def reply_of(house: House, job: Job) -> Reply:
    """The reply in the form that a job asks for."""
    if job.fields.stream_format == "sse":
        return EventReply(house, job)
    return FileReply(house, job) if job.fields.n == 1 else ListReply(house, job)


class FileReply(Reply):
    """One audio file, sent while it is made."""

    async def start(self) -> None:
        """Send the headers."""
        await self.begin_sending(self.job.container.media_type)

    async def audio(self, voicing: Voicing, data: bytes) -> None:
        """Send the next bytes."""
        await self.send_body(data)

    async def end(self) -> None:
        """Complete the file."""
        await self.send_body(b"", more=False)


class ListReply(Reply):
    """Several takes in one JSON object, each with its whole file."""

    async def voice(self, voicing: Voicing) -> None:
        """Wait for the take's end, and make its file."""
        news = voicing.news
        while not voicing.over:
            news = await voicing.mailbox.take()
        if isinstance(news[-1], Failed):
            raise news[-1].refusal
        skip = voicing.kept.kept if self.job.fields.new_only else 0
        file = await self.house.decoder.whole(self.job.container, voicing.kept.take.codes, skip)
        self._files[voicing.index] = b64encode(file).decode()

    async def start(self) -> None:
        """Make room for the files."""
        self._files = [""] * len(self.voicings)

    async def end(self) -> None:
        """Send them all."""
        await self.begin_sending("application/json")
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
        await self.send_body(json.dumps({"object": "list", "data": takes}).encode(), more=False)


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

    async def start(self) -> None:
        """Send the headers, and how each take has begun."""
        await self.begin_sending("text/event-stream")
        for voicing in self.voicings:
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
        take = voicing.kept.take
        cached = take.reused_prompt_rows + take.reused_generated_rows
        usage = {
            "input_tokens": take.prompt_rows,
            "output_tokens": take.new_frames,
            "total_tokens": take.prompt_rows + take.new_frames,
            "input_tokens_details": {"cached_tokens": cached},
        }
        await self.event("speech.audio.done", voicing, take=voicing.name, usage=usage)
        await self.detail("take", voicing, take=voicing.kept.about() | self.house.sound)

    async def failed(self, voicing: Voicing, refusal: Refusal) -> None:
        """Tell of the failure; the other takes go on."""
        await self.event("error", voicing, error=refusal.body)

    async def end(self) -> None:
        """Complete the stream."""
        await self.send_body(b"", more=False)

    async def break_off(self, refusal: Refusal) -> None:
        """Tell of the failure for every take that is not done, and complete the stream."""
        async with asyncio.timeout(1):
            for voicing in self.voicings:
                if not voicing.over:
                    await self.failed(voicing, refusal)
            await self.end()
