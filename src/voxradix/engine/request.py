"""A request on its way through the engine, and the result it ends in."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from time import perf_counter

import torch
from torch import Tensor

from voxradix.cache import Chain, Node
from voxradix.sampling import Sampling


class State(Enum):
    """Where a request stands. Retraction takes it from PREFILLING or RUNNING back to WAITING."""

    WAITING = "waiting"
    PREFILLING = "prefilling"
    RUNNING = "running"
    FINISHED = "finished"


class Finish(StrEnum):
    """Why a request ended: the model stopped, its budget ran out, the caller left, or a step failed."""

    AUDIO_END = "audio_end"
    LENGTH = "length"
    ABORTED = "aborted"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Result:
    """What a request ended in.

    Attributes:
        rows: The generated rows, int64 [F, C], the prompt not included.
        finish: "audio_end", "length", "aborted" or "error".
        error: What went wrong, for "error".
        prompt_rows: Rows of the prompt.
        reused_prompt_rows: Those found in the cache when the request was first admitted, computed as prompt rows.
        reused_generated_rows: Those found there that had been generated.
        recomputed_rows: Rows that had been written, were lost to a retraction, and were computed again.
        retractions: How often the request gave its slots back.
        first_frame_seconds: From submission to the first frame; None without one.
        seconds: From submission to the end.
    """

    rows: Tensor
    finish: str
    error: str | None
    prompt_rows: int
    reused_prompt_rows: int
    reused_generated_rows: int
    recomputed_rows: int
    retractions: int
    first_frame_seconds: float | None
    seconds: float

    @property
    def reused_rows(self) -> int:
        """Prompt rows found in the cache, however they came there."""
        return self.reused_prompt_rows + self.reused_generated_rows

    @property
    def codes(self) -> Tensor:
        """The generated codes, int64 [F, C - 1]: what a codec decodes."""
        return self.rows[:, 1:]


@dataclass(eq=False)
class Request:
    """A prompt, how to go on from it, and how far it has come.

    The draws of its frame ``n`` are numbered ``first_draw + n``. ``chain`` holds all rows known so far, prompt and
    generated. The first ``written`` of them have keys and values in ``slots``; the first ``shared`` of those slots
    belong to the tree, which ``node`` locks. All of it is the engine's own: callers read it, and take copies of rows.
    """

    order: int
    prompt: Tensor
    sampling: Sampling
    seed: int
    max_frames: int
    first_draw: int
    chain: Chain
    state: State = State.WAITING
    frames: list[Tensor] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    written: int = 0
    shared: int = 0
    node: Node | None = None
    seen: Tensor | None = None
    finish: Finish | None = None
    error: str | None = None
    admissions: int = 0
    reused_prompt: int = 0
    reused_generated: int = 0
    recomputed: int = 0
    computed: int = 0
    retractions: int = 0
    submitted: float = field(default_factory=perf_counter)
    first_frame: float | None = None
    finished: float | None = None

    @property
    def rows(self) -> int:
        """Rows known so far."""
        return len(self.chain)

    @property
    def next_draw(self) -> int:
        """The number of the next frame's draws."""
        return self.first_draw + len(self.frames)

    def rows_between(self, start: int, end: int) -> Tensor:
        """Known rows ``start .. end - 1``, int64 [end - start, C]."""
        prompt = self.prompt.shape[0]
        parts = [self.prompt[start:end]]
        if end > prompt:
            parts.append(torch.stack(self.frames[max(start - prompt, 0) : end - prompt]))
        return torch.cat(parts)

    def admitted(self, hit: int, generated: int) -> None:
        """Record an admission that found ``hit`` rows in the cache, ``generated`` of them generated ones."""
        if not self.admissions:
            self.reused_prompt, self.reused_generated = hit - generated, generated
        self.admissions += 1
        self.written = hit

    def wrote(self, rows: int) -> None:
        """Record that the first ``rows`` rows have been written."""
        self.recomputed += max(min(rows, self.computed) - self.written, 0)
        self.written = rows

    def append(self, row: Tensor, packed: bytes, key: int) -> None:
        """Take a generated row (int64 [C]) with its packed form and key."""
        self.saw(row)
        if self.first_frame is None:
            self.first_frame = perf_counter()
        self.chain.append(packed, key)
        self.frames.append(row.clone())

    def saw(self, row: Tensor) -> None:
        """Let the repetition penalty, if there is one, know the codes of a frame (int64 [C])."""
        if self.seen is not None:
            self.seen[torch.arange(row.shape[0] - 1), row[1:]] = True

    def result(self) -> Result:
        """The result of a finished request."""
        if self.finish is None or self.finished is None:
            raise RuntimeError("the request is still under way")
        rows = torch.stack(self.frames) if self.frames else self.prompt[:0]
        return Result(
            rows=rows,
            finish=self.finish.value,
            error=self.error,
            prompt_rows=self.prompt.shape[0],
            reused_prompt_rows=self.reused_prompt,
            reused_generated_rows=self.reused_generated,
            recomputed_rows=self.recomputed,
            retractions=self.retractions,
            first_frame_seconds=None if self.first_frame is None else self.first_frame - self.submitted,
            seconds=self.finished - self.submitted,
        )
