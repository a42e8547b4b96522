"""The engine: prompts in, frames out, one step at a time."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import torch
from torch import Tensor

from voxradix.cache import Chain
from voxradix.engine.request import Finish, Request, Result, State
from voxradix.engine.runner import NOT_FINITE, NOT_FINITE_REASON, StepOutput, StepRunner
from voxradix.engine.scheduler import Occupancy, Scheduler
from voxradix.errors import VoxradixError
from voxradix.keys import RowHash, RowPublisher, fastest_hash, pack_rows, row_keys
from voxradix.sampling import Sampling
from voxradix.voice import Voice, load_voice

Prompt = str | Tensor | Sequence[Sequence[int]]
"""Text for the voice's own prompt builder, or prompt rows int [T, C] as a tensor, an array or lists."""

FrameCallback = Callable[[Tensor], None]
"""Called with each frame, int64 [C], when it is made."""


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
            if _whole(name, value) < 1:
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
        request = self._request(prompt, sampling, seed, max_frames)
        self._scheduler.add(request)
        return request

    def step(self) -> StepReport | None:
        """Advance every active request by a chunk or a frame; None when there is nothing to do.

        Should anything break the step off, a key press included, the requests it served end with an error.
        """
        plan = self._scheduler.plan()
        if not plan:
            return None
        try:
            return self._resolve(self._runner.run(plan))
        except BaseException as error:
            for request in [*(chunk.request for chunk in plan.prefill), *plan.decode]:
                if request.state is not State.FINISHED:
                    self._scheduler.finish(request, Finish.ERROR, f"the step was broken off by {type(error).__name__}")
            raise

    @torch.inference_mode(False)
    def _resolve(self, output: StepOutput) -> StepReport:
        """Take a step's output over: end what failed, offer what was written, append what was made."""
        rows, next_ids = output.rows.clone(), output.next_ids.clone()  # ordinary tensors: callers keep them
        gained: list[Request] = []
        finished: list[Request] = []

        def end(request: Request, finish: Finish, error: str | None = None) -> None:
            self._scheduler.finish(request, finish, error)
            finished.append(request)

        for request, reason in output.failures.items():
            end(request, Finish.ERROR, reason)
        published = dict(zip(output.requests, next_ids.tolist(), strict=True))
        for request, written in output.written.items():
            key = published.get(request, 0)
            if 0 <= key < self._layout.bounds[0]:
                self._scheduler.wrote(request, written)
            else:
                end(request, Finish.ERROR, _outside(key))
        for index, (request, key) in enumerate(published.items()):
            if request.state is State.FINISHED:
                continue
            if key == self._layout.end_key:
                end(request, Finish.AUDIO_END)
                continue
            request.append(rows[index], output.packed[index].numpy().tobytes(), key)
            gained.append(request)
            if len(request.frames) >= request.max_frames:
                end(request, Finish.LENGTH)
        return StepReport(tuple(output.requests), next_ids, tuple(gained), tuple(finished))

    def abort(self, request: Request) -> None:
        """End a request now, keeping its frames so far; its slots are free before the next step."""
        if request.state is State.FINISHED:
            return
        self._require_own(request)
        self._scheduler.finish(request, Finish.ABORTED)

    def run(self, requests: Sequence[Request], on_frame: FrameCallback | None = None) -> list[Result]:
        """Step until all of ``requests`` have ended. Should the caller break off, they are aborted."""
        told = dict.fromkeys(requests, 0)
        for request in requests:
            self._require_own(request)
        try:
            while any(request.state is not State.FINISHED for request in requests):
                self.step()
                if on_frame is None:
                    continue
                for request in requests:
                    while told[request] < len(request.frames):
                        told[request] += 1
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
        on_frame: FrameCallback | None = None,
    ) -> Result:
        """Generate the rows that follow one prompt (see `submit`)."""
        return self.generate_batch([prompt], sampling=sampling, seed=seed, max_frames=max_frames, on_frame=on_frame)[0]

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
        if isinstance(prompts, str):
            raise VoxradixError(f"prompts is one text, {prompts!r}; it must be a list of prompts")
        requests = [self._request(prompt, sampling, seed, max_frames) for prompt in prompts]
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
        """Yield each frame (int64 [C]) as it is made, from the first `next` on. Leaving the loop aborts the request.

        Raises:
            VoxradixError: At the call, as `submit` does.
            RuntimeError: When the request ends in an error, after the frames made before it.
        """
        return self._frames_of(self._request(prompt, sampling, seed, max_frames))

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

    def _require_own(self, request: Request) -> None:
        if request.state is not State.FINISHED and request not in self._scheduler:
            raise VoxradixError("the request is another engine's; only the engine it was submitted to serves it")

    @torch.inference_mode(False)
    def _request(self, prompt: Prompt, sampling: Sampling | None, seed: int, max_frames: int | None) -> Request:
        rows = self.voice.prompt(prompt) if isinstance(prompt, str) else _own_rows(prompt)
        self._layout.check(rows)
        sampling = self.voice.sampling if sampling is None else sampling
        if not isinstance(sampling, Sampling):
            raise VoxradixError(f"sampling is {sampling!r}; it must be a Sampling")
        seed = _whole("seed", seed)
        if not -(2**63) <= seed < 2**63:
            raise VoxradixError(f"seed is {seed}; it must be a 64-bit integer")
        budget = self._budget(rows.shape[0], max_frames)
        chain = Chain(self._row_bytes)
        keys = row_keys(rows.clone(), self._layout, row_hash=self._row_hash)
        chain.extend(pack_rows(rows, self._layout).numpy().tobytes(), keys.tolist())
        request = Request(next(self._orders), rows, sampling, seed, budget, chain)
        if sampling.repetition_penalty != 1.0:
            request.seen = torch.zeros(self._layout.codebooks, self.voice.model.config.codebook_size, dtype=torch.bool)
        return request

    def _budget(self, prompt_rows: int, max_frames: int | None) -> int:
        """The frames a request may have; `VoxradixError` when it can never fit."""
        if prompt_rows < 1:
            raise VoxradixError("the prompt has no rows; it needs at least one")
        if max_frames is None:
            budget = max(min(self.voice.max_frames, self._positions - prompt_rows), 1)
        else:
            budget = _whole("max_frames", max_frames)
        if budget < 1:
            raise VoxradixError(f"max_frames is {budget}; it must be at least 1")
        needed = prompt_rows + budget
        for limit, what in ((self.pool_rows, "the pool holds"), (self._positions, "the model's positions end at")):
            if needed > limit:
                raise VoxradixError(
                    f"the request needs {needed} rows ({prompt_rows} of prompt and {budget} frames) but {what} "
                    f"{limit}; shorten the text, lower max_frames or raise that limit"
                )
        return budget


def _whole(name: str, value: object) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise VoxradixError(f"{name} is {value!r}; it must be a whole number") from None


def _own_rows(prompt: object) -> Tensor:
    """The caller's rows as a tensor of the engine's own, on the CPU."""
    try:
        rows = torch.as_tensor(prompt)
        if rows.dtype is torch.bool or rows.is_floating_point() or rows.is_complex():
            raise VoxradixError(f"prompt rows have dtype {rows.dtype}; they must be integers")
        return rows.to("cpu", torch.int64, copy=True)
    except VoxradixError:
        raise
    except Exception as error:  # whatever the conversion raises, the prompt is at fault
        raise VoxradixError(f"the prompt is neither text nor rows of integers [T, C]: {error}") from None


def _outside(key: int) -> str:
    if key == NOT_FINITE:
        return NOT_FINITE_REASON
    return f"the step published id {key}, outside the vocabulary"
