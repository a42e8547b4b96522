"""The engine: prompts in, frames out, one step at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack, overload

from torch import Tensor

from voxradix.cache import Run
from voxradix.engine.door import Door, Prompt, whole_number
from voxradix.engine.loop import StepLoop, StepReport
from voxradix.engine.request import Finish, Request, Result, State
from voxradix.engine.runner import StepRunner
from voxradix.engine.scheduler import Occupancy, Scheduler
from voxradix.engine.script import Script, script
from voxradix.engine.speaking import FrameCallback, Settings, Speaking
from voxradix.engine.take import Branch, Take
from voxradix.engine.totals import Totals
from voxradix.errors import VoxradixError
from voxradix.keys import RowHash, RowPublisher, fastest_hash
from voxradix.models.moss_local import Details
from voxradix.sampling import Sampling
from voxradix.voice import Voice, load_voice

_MOST = 2**31


class _SpeakSettings(TypedDict, total=False):
    sampling: Sampling | None
    seed: int | None
    max_frames: int | None
    salt: str
    details: Details | None
    references: Sequence[Tensor] | None
    on_frame: FrameCallback | None


class Engine:
    """Generates rows for many requests at once and reuses every prefix it has computed.

    Not thread-safe: one thread calls it.
    """

    def __init__(
        self,
        voice: str | Path | Voice = "numbers",
        *,
        pool_rows: int = 8192,
        max_batch: int = 16,
        chunk_rows: int = 256,
        cache: bool = True,
        graphs: bool = True,
        lookahead: bool | None = None,
        row_hash: RowHash | None = None,
    ) -> None:
        """An engine over one voice.

        Args:
            voice: The name of a bundled voice, a checkpoint directory, or a loaded `Voice`.
            pool_rows: Rows whose keys and values fit in memory at once, cached ones included.
            max_batch: Requests prefilled or running at once; more wait.
            chunk_rows: Rows prefilled in one step, all requests together.
            cache: Whether rows are kept for reuse.
            graphs: Whether decode steps are captured, once a kind of step has proved common, and replayed: the same
                rows, sooner.
            lookahead: Whether a step is launched before the one before it is known: the same rows. By default where the
                device works by itself, which a CPU does not.
            row_hash: The raw hash the row keys are folded from; by default the seed's. Keys only nominate: any
                function is safe.
        """
        for name, value in (("pool_rows", pool_rows), ("max_batch", max_batch), ("chunk_rows", chunk_rows)):
            if not 1 <= whole_number(name, value) < _MOST:
                raise VoxradixError(f"{name} is {value}; it must be from 1 to {_MOST - 1}")
        self.voice = voice if isinstance(voice, Voice) else load_voice(voice)
        model = self.voice.model
        self.pool_rows = pool_rows
        self._door = Door(self.voice, pool_rows, row_hash or fastest_hash(model.layout))
        publish = RowPublisher(model.layout, model.config.assistant_slot_id, device=model.device, row_hash=row_hash)
        if lookahead is None:
            lookahead = model.device.type != "cpu"
        worker = ThreadPoolExecutor(1, "voxradix-step") if lookahead and model.device.type == "cpu" else None
        runner = StepRunner(model, pool_rows, max_batch, publish, graphs=graphs, worker=worker)
        self._scheduler = Scheduler(
            slots=pool_rows,
            max_batch=max_batch,
            chunk_rows=chunk_rows,
            row_bytes=8 * model.layout.words,
            cache=cache,
        )
        self._loop = StepLoop(self._scheduler, runner, model.layout, lookahead=lookahead)
        self._pins: Counter[tuple[bytes, bytes]] = Counter()

    def submit(
        self,
        prompt: Prompt,
        *,
        sampling: Sampling | None = None,
        seed: int = 0,
        max_frames: int | None = None,
        salt: str = "",
        own_frames: int = 0,
        first_draw: int = 0,
    ) -> Request:
        """Let a request wait for its turn; `step` brings it on.

        Args:
            prompt: Text, or prompt rows int [T, C].
            sampling: How frames are drawn; by default as the voice says.
            seed: Any 64-bit integer. The same request and seed give the same rows, whatever else runs.
            max_frames: The budget; by default the voice's.
            salt: Rows are shared only among requests of the same salt, such as those of one tenant.
            own_frames: How many of the prompt's last rows the repetition penalty takes for the request's own.
            first_draw: The number of the first frame's draws, when the request goes on from frames drawn before.

        Raises:
            VoxradixError: When the prompt or a value cannot be used, or the request can never fit.
        """
        request = self._door.request(
            prompt,
            sampling=sampling,
            seed=seed,
            max_frames=max_frames,
            salt=salt,
            own_frames=own_frames,
            first_draw=first_draw,
        )
        self._scheduler.add(request)
        return request

    def step(self) -> StepReport | None:
        """Advance every active request by a chunk or a frame; None when there is nothing to do.

        With lookahead, the next step is launched, from the device's own state, before this one is known. Should
        anything break the step off, a key press included, the requests it served end with an error.
        """
        return self._loop.step()

    def abort(self, request: Request) -> None:
        """End a request now, keeping its frames so far; its slots are free before the next step."""
        if request.state is State.FINISHED:
            return
        self._require_own(request)
        self._loop.leave(request)

    def run(self, requests: Sequence[Request], on_frame: FrameCallback | None = None) -> list[Result]:
        """Step until all of ``requests`` have ended. Should the caller break off, they are aborted."""
        told = dict.fromkeys(requests, 0)
        for request in requests:
            self._require_own(request)
        try:
            while any(
                request.state is not State.FINISHED or told[request] < len(request.frames) for request in requests
            ):
                self.step()
                for request in requests:
                    while told[request] < len(request.frames):
                        told[request] += 1
                        if on_frame is not None:
                            on_frame(request.frames[told[request] - 1].clone())
        finally:
            for request in requests:
                self.abort(request)
        return [request.result() for request in requests]

    def generate(
        self,
        prompt: Prompt,
        *,
        sampling: Sampling | None = None,
        seed: int = 0,
        max_frames: int | None = None,
        salt: str = "",
        on_frame: FrameCallback | None = None,
    ) -> Result:
        """Generate the rows that follow one prompt (see `submit`)."""
        return self.generate_batch(
            [prompt], sampling=sampling, seed=seed, max_frames=max_frames, salt=salt, on_frame=on_frame
        )[0]

    def generate_batch(
        self,
        prompts: Sequence[Prompt],
        *,
        sampling: Sampling | None = None,
        seed: int = 0,
        max_frames: int | None = None,
        salt: str = "",
        on_frame: FrameCallback | None = None,
    ) -> list[Result]:
        """Generate for many prompts together, each as `generate` would alone. None runs if one is refused."""
        if isinstance(prompts, str):
            raise VoxradixError(f"prompts is one text, {prompts!r}; it must be a list of prompts")
        requests = [
            self._door.request(prompt, sampling=sampling, seed=seed, max_frames=max_frames, salt=salt)
            for prompt in prompts
        ]
        for request in requests:
            self._scheduler.add(request)
        return self.run(requests, on_frame)

    def stream(
        self,
        prompt: Prompt,
        *,
        sampling: Sampling | None = None,
        seed: int = 0,
        max_frames: int | None = None,
        salt: str = "",
    ) -> Iterator[Tensor]:
        """Yield each frame (int64 [C]) as it is made, from the first `next` on. Leaving the loop aborts the request.

        Raises:
            VoxradixError: At the call, as `submit` does.
            RuntimeError: When the request ends in an error, after the frames made before it.
        """
        return self._frames_of(
            self._door.request(prompt, sampling=sampling, seed=seed, max_frames=max_frames, salt=salt)
        )

    def _frames_of(self, request: Request) -> Iterator[Tensor]:
        told = 0
        self._scheduler.add(request)
        try:
            while told < len(request.frames) or request.state is not State.FINISHED:
                if told == len(request.frames):  # another consumer may have stepped meanwhile
                    self.step()
                    continue
                told += 1
                yield request.frames[told - 1].clone()
        finally:
            self.abort(request)
        if request.finish is Finish.ERROR:
            raise RuntimeError(f"the request failed after {told} frames: {request.error}")

    def begin(
        self,
        text: str | Script | None = None,
        *,
        after: Take | Branch | None = None,
        sampling: Sampling | None = None,
        seed: int | None = None,
        max_frames: int | None = None,
        salt: str = "",
        details: Details | None = None,
        references: Sequence[Tensor] | None = None,
        number: int = 0,
    ) -> Speaking:
        """Begin one take, the ``number``-th of its text; `step` and, after each step, `Speaking.proceed` bring it on.

        The text may be a script of it and of ``after`` that was made before (in another thread, where it is long). The
        other arguments are those of `speak`.
        """
        lines = text if isinstance(text, Script) else script(self.voice, text, after)
        settings = Settings.of(self.voice, lines, after, sampling, seed, max_frames, salt, details, references)
        return Speaking(self.voice, self.submit, lines, replace(settings, seed=settings.seed + number))

    @overload
    def speak(
        self, text: str | None = None, *, after: Take | Branch | None = None, **settings: Unpack[_SpeakSettings]
    ) -> Take: ...

    @overload
    def speak(
        self, text: str | None = None, *, after: Take | Branch | None = None, n: int, **settings: Unpack[_SpeakSettings]
    ) -> list[Take]: ...

    def speak(
        self,
        text: str | None = None,
        *,
        after: Take | Branch | None = None,
        n: int | None = None,
        sampling: Sampling | None = None,
        seed: int | None = None,
        max_frames: int | None = None,
        salt: str = "",
        details: Details | None = None,
        references: Sequence[Tensor] | None = None,
        on_frame: FrameCallback | None = None,
    ) -> Take | list[Take]:
        """Speak a text; a long one sentence by sentence, each after the ones before.

        Args:
            text: What to say. Without one, the rest of what ``after`` was to say is said anew.
            after: A take to go on from, or a place in one (`Take.at`).
            n: Speak it so many times, with as many seeds from ``seed`` on, and return a list.
            sampling: How frames are drawn; by default as in ``after``, or as the voice says.
            seed: By default that of ``after``, or the one after it where a branch says the same text anew; else 0.
            max_frames: The budget of new frames; by default the voice's for each text.
            salt: As for `submit`.
            details: What the prompt says beside the text, such as its language; by default as in ``after``.
            references: Codes int64 [F, codebooks] of recordings whose voice to take (`Voice.reference`); by default
                those of ``after``.
            on_frame: Called with each new frame, int64 [C], when it is made.

        Returns:
            The take, or for ``n`` all of them. One that a failure ended says so in ``finish`` and ``error``.

        Raises:
            VoxradixError: When a value cannot be used, or what is to be said can never fit.
        """
        count = 1 if n is None else whole_number("n", n)
        if count < 1:
            raise VoxradixError(f"n is {count}; it must be at least 1")
        speakings: list[Speaking] = []
        try:
            for number in reversed(range(count)):  # the last seed first: one that is too large is refused at once
                speaking = self.begin(
                    text,
                    after=after,
                    sampling=sampling,
                    seed=seed,
                    max_frames=max_frames,
                    salt=salt,
                    details=details,
                    references=references,
                    number=number,
                )
                speakings.append(speaking)
            while sum(speaking.proceed(on_frame) for speaking in speakings):
                self.step()
        finally:
            for speaking in speakings:
                self.abort(speaking.request)
        takes = [speaking.take() for speaking in reversed(speakings)]
        return takes[0] if n is None else takes

    @property
    def totals(self) -> Totals:
        """Sums over all requests that have ended."""
        return self._scheduler.totals

    def pin(self, prompt: Prompt, *, salt: str = "") -> int:
        """Compute a prompt's rows, unless they are cached, and let them go last until `unpin`; how many those are.

        A pin is no reservation: rows that requests under way need push pinned ones out when nothing else is left.
        """
        request = self._door.request(prompt, max_frames=1, salt=salt)
        name = _name(request)
        self._scheduler.add(request)
        self.run([request])
        self._pins[name] += 1
        return self._scheduler.tree.pin(request.chain, request.prompt.shape[0])

    def unpin(self, prompt: Prompt, *, salt: str = "") -> None:
        """Take one `pin` of a prompt back; `VoxradixError` for a prompt that is not pinned."""
        request = self._door.request(prompt, max_frames=1, salt=salt)
        if not self._pins[_name(request)]:
            raise VoxradixError(f"the prompt {prompt!r} is not pinned under salt {salt!r}")
        self._pins[_name(request)] -= 1
        self._scheduler.tree.unpin(request.chain, request.prompt.shape[0])

    def occupancy(self) -> Occupancy:
        """Where the pool's rows are: free + cached + held = ``pool_rows``."""
        return self._scheduler.occupancy()

    @property
    def waiting(self) -> int:
        """Requests that wait for their turn."""
        return len(self._scheduler.waiting)

    @property
    def running(self) -> int:
        """Requests that are prefilled or decode."""
        return len(self._scheduler.active)

    def cached(self, salt: str = "", *, limit: int = 1000) -> list[Run]:
        """What is cached for requests of one salt, parents first, ``limit`` runs at most."""
        return self._scheduler.tree.runs(self._door.namespace(salt), limit)

    def retract(self, request: Request) -> None:
        """Take a request's slots back as if the pool had run out; it resumes by itself. For tests and tuning."""
        self._loop.drain()
        if request in self._scheduler.active:
            self._scheduler.retract(request)

    def check(self) -> None:
        """Raise `AssertionError` if a row or a seat is lost or owned twice. Visits every row: for tests."""
        self._scheduler.check()
        self._loop.check()

    def _require_own(self, request: Request) -> None:
        if request.state is not State.FINISHED and request not in self._scheduler:
            raise VoxradixError("the request is another engine's; only the engine it was submitted to serves it")


def _name(request: Request) -> tuple[bytes, bytes]:
    """The namespace and rows of a request just made."""
    return request.chain.namespace, bytes(request.chain.rows)
