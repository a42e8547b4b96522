"""The engine: prompts in, frames out, one step at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import torch
from torch import Tensor

from voxradix.cache import Chain
from voxradix.engine.request import Finish, Request, Result, State
from voxradix.engine.runner import NOT_FINITE, StepRunner
from voxradix.engine.scheduler import Occupancy, Scheduler
from voxradix.errors import VoxradixError
from voxradix.keys import RowHash, RowPublisher, fastest_hash, pack_rows, row_keys
from voxradix.sampling import Sampling
from voxradix.voice import Voice, load_voice

Prompt = str | Tensor
"""Text for the voice's own prompt builder, or prompt rows int [T, C]."""

FrameCallback = Callable[[Request], None]
"""Called with a request after each frame it gained; the frame is ``request.frames[-1]``."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a step did.

    Attributes:
        requests: The requests that decoded a frame or stopped, one a batch row.
        next_ids: int64 [B], the row keys published for them: each is appended to its request's chain, except
            the end id, which ends the request.
        gained: The requests that gained a frame: ``request.frames[-1]``.
        finished: Requests that ended in this step, for whatever reason.
    """

    requests: tuple[Request, ...]
    next_ids: Tensor
    gained: tuple[Request, ...]
    finished: tuple[Request, ...]


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
        row_hash: RowHash | None = None,
    ) -> None:
        """An engine over one voice.

        Args:
            voice: The name of a bundled voice, a checkpoint directory, or a loaded `Voice`.
            pool_rows: Rows whose keys and values fit in memory at once, cached ones included.
            max_batch: Requests prefilled or running at once; more wait.
            chunk_rows: Rows prefilled in one step, all requests together.
            cache: Whether rows are kept for reuse.
            row_hash: The raw hash the row keys are folded from; by default the seed's. Keys only nominate: any
                function is safe.
        """
        for name, value in (("pool_rows", pool_rows), ("max_batch", max_batch), ("chunk_rows", chunk_rows)):
            if value < 1:
                raise VoxradixError(f"{name} is {value}; it must be at least 1")
        self.voice = voice if isinstance(voice, Voice) else load_voice(voice)
        model = self.voice.model
        self.pool_rows = pool_rows
        self._layout = model.layout
        self._positions = model.config.backbone.positions
        self._row_bytes = 8 * model.layout.words
        self._row_hash = row_hash or fastest_hash(model.layout)
        publish = RowPublisher(model.layout, model.config.assistant_slot_id, device=model.device, row_hash=row_hash)
        self._runner = StepRunner(model, pool_rows, publish)
        self._scheduler = Scheduler(
            slots=pool_rows,
            max_batch=max_batch,
            chunk_rows=chunk_rows,
            row_bytes=self._row_bytes,
            cache=cache,
        )
        self._orders = count()

    def submit(
        self,
        prompt: Prompt,
        *,
        sampling: Sampling | None = None,
        seed: int = 0,
        max_frames: int | None = None,
    ) -> Request:
        """Let a request wait for its turn; `step` brings it on.

        Args:
            prompt: Text, or prompt rows int [T, C].
            sampling: How frames are drawn; by default as the voice says.
            seed: Any 64-bit integer. The same request and seed give the same rows, whatever else runs.
            max_frames: The budget; by default the voice's.

        Raises:
            VoxradixError: When the prompt or a value cannot be used, or the request can never fit.
        """
        request = self._request(prompt, sampling or self.voice.sampling, seed, max_frames)
        self._scheduler.add(request)
        return request

    def step(self) -> StepReport | None:
        """Advance every active request by a chunk or a frame; None when there is nothing to do."""
        plan = self._scheduler.plan()
        if not plan:
            return None
        output = self._runner.run(plan)
        gained: list[Request] = []
        finished: list[Request] = []
        for request, reason in output.failures.items():
            self._end(request, Finish.ERROR, finished, reason)
        ids: list[int] = output.next_ids.tolist()
        outside = {request: key for request, key in zip(output.requests, ids, strict=True) if self._outside(key)}
        for request, key in outside.items():
            self._end(request, Finish.ERROR, finished, self._outside_reason(key))
        for request, rows in output.written.items():
            if request not in outside:
                self._scheduler.wrote(request, rows)
        for index, (request, key) in enumerate(zip(output.requests, ids, strict=True)):
            if request in outside:
                continue
            if key == self._layout.end_key:
                self._end(request, Finish.AUDIO_END, finished)
                continue
            request.append(output.rows[index], output.packed[index].numpy().tobytes(), key)
            gained.append(request)
            if len(request.frames) == request.max_frames:
                self._end(request, Finish.LENGTH, finished)
        return StepReport(tuple(output.requests), output.next_ids, tuple(gained), tuple(finished))

    def abort(self, request: Request) -> None:
        """End a request now, keeping its frames so far; its slots are free before the next step."""
        if request.state is not State.FINISHED:
            self._scheduler.finish(request, Finish.ABORTED)

    def run(self, requests: Sequence[Request], on_frame: FrameCallback | None = None) -> list[Result]:
        """Step until all of ``requests`` have ended. Should the caller break off, they are aborted."""
        ours = set(requests)
        try:
            while any(request.state is not State.FINISHED for request in requests):
                report = self.step()
                assert report is not None, "an unfinished request that no step serves"
                if on_frame is not None:
                    for request in report.gained:
                        if request in ours:
                            on_frame(request)
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
        on_frame: FrameCallback | None = None,
    ) -> Result:
        """Generate the rows that follow one prompt (see `submit`)."""
        request = self.submit(prompt, sampling=sampling, seed=seed, max_frames=max_frames)
        return self.run([request], on_frame)[0]

    def generate_batch(
        self,
        prompts: Sequence[Prompt],
        *,
        sampling: Sampling | None = None,
        seed: int = 0,
        max_frames: int | None = None,
        on_frame: FrameCallback | None = None,
    ) -> list[Result]:
        """Generate for many prompts together, each as `generate` would alone. None runs if one is refused."""
        chosen = sampling or self.voice.sampling
        requests = [self._request(prompt, chosen, seed, max_frames) for prompt in prompts]
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
    ) -> Iterator[Tensor]:
        """Yield each frame (int64 [C]) as it is made. Leaving the loop aborts the request.

        Raises:
            RuntimeError: When the request ends in an error, after the frames made before it.
        """
        request = self.submit(prompt, sampling=sampling, seed=seed, max_frames=max_frames)
        told = 0
        try:
            while request.state is not State.FINISHED:
                self.step()
                yield from request.frames[told:]
                told = len(request.frames)
        finally:
            self.abort(request)
        if request.finish is Finish.ERROR:
            raise RuntimeError(f"the request failed after {told} frames: {request.error}")

    def occupancy(self) -> Occupancy:
        """Where the pool's rows are: free + cached + held = ``pool_rows``."""
        return self._scheduler.occupancy()

    def retract(self, request: Request) -> None:
        """Take a request's slots back as if the pool had run out; it resumes by itself. For tests and tuning."""
        if request in self._scheduler.active:
            self._scheduler.retract(request)

    def check(self) -> None:
        """Raise `AssertionError` if a row of the pool is lost or owned twice. Visits every row: for tests."""
        self._scheduler.check()

    def _request(self, prompt: Prompt, sampling: Sampling, seed: int, max_frames: int | None) -> Request:
        rows = self.voice.prompt(prompt) if isinstance(prompt, str) else torch.as_tensor(prompt)
        self._layout.check(rows)
        rows = rows.to("cpu", torch.int64)
        budget = self.voice.max_frames if max_frames is None else max_frames
        self._check_fit(rows.shape[0], budget)
        if not -(2**63) <= seed < 2**63:
            raise VoxradixError(f"seed is {seed}; it must be a 64-bit integer")
        chain = Chain(self._row_bytes)
        keys = row_keys(rows, self._layout, row_hash=self._row_hash)
        chain.extend(pack_rows(rows, self._layout).numpy().tobytes(), keys.tolist())
        request = Request(next(self._orders), rows, sampling, seed, budget, chain)
        if sampling.repetition_penalty != 1.0:
            request.seen = torch.zeros(self._layout.codebooks, self.voice.model.config.codebook_size, dtype=torch.bool)
        return request

    def _check_fit(self, prompt_rows: int, budget: int) -> None:
        if prompt_rows < 1:
            raise VoxradixError("the prompt has no rows; it needs at least one")
        if budget < 1:
            raise VoxradixError(f"max_frames is {budget}; it must be at least 1")
        needed = prompt_rows + budget
        for limit, what in (
            (self.pool_rows, "the pool holds"),
            (self._positions, "the model's positions end at"),
        ):
            if needed > limit:
                raise VoxradixError(
                    f"the request needs {needed} rows ({prompt_rows} of prompt and {budget} frames) but {what} "
                    f"{limit}; shorten the text, lower max_frames or raise that limit"
                )

    def _outside(self, key: int) -> bool:
        return not 0 <= key < self._layout.bounds[0]

    def _outside_reason(self, key: int) -> str:
        if key == NOT_FINITE:
            return "the model's output was not finite"
        return f"the step published id {key}, outside the vocabulary of {self._layout.bounds[0]}"

    def _end(self, request: Request, finish: Finish, finished: list[Request], error: str | None = None) -> None:
        self._scheduler.finish(request, finish, error)
        finished.append(request)
