"""A take under way: its texts, spoken one after the other as requests of one engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from voxradix.engine.door import whole_number
from voxradix.engine.request import Request, Result, State
from voxradix.engine.script import Script
from voxradix.engine.take import Branch, Take
from voxradix.errors import VoxradixError
from voxradix.models.moss_local import NO_DETAILS, Details, own_codes
from voxradix.piece import End, Piece
from voxradix.sampling import Sampling
from voxradix.voice import Voice

FrameCallback = Callable[[Tensor], None]
"""Called with each frame, int64 [C], when it is made."""


def next_seed(seed: int) -> int:
    """The seed after a 64-bit seed; after the last one comes the first."""
    return -(2**63) if seed == 2**63 - 1 else seed + 1


@dataclass(frozen=True, slots=True)
class Settings:
    """How a take is spoken.

    Attributes:
        sampling: How its frames are drawn.
        seed: Of its draws.
        max_frames: Its budget of new frames; None: the voice's, for each text.
        salt: Rows are shared only among requests of the same salt.
        details: What its prompts say beside their texts.
        references: Codes int64 [F, codebooks] of recordings whose voice it takes.
    """

    sampling: Sampling
    seed: int
    max_frames: int | None
    salt: str
    details: Details
    references: tuple[Tensor, ...]

    @classmethod
    def of(
        cls,
        voice: Voice,
        script: Script,
        after: Take | Branch | None,
        sampling: Sampling | None,
        seed: int | None,
        max_frames: int | None,
        salt: str,
        details: Details | None,
        references: Sequence[Tensor] | None,
    ) -> Settings:
        """The settings of a call, with what it leaves out: as in the take it goes on from, or as the voice says.

        A branch that says the same text anew takes the next seed; with the same one it would say it as it did. A wish
        for a number of frames is taken over by the same text alone.

        Raises `VoxradixError` when a value cannot be used, or has no use with what is behind.
        """
        take = after.take if isinstance(after, Branch) else after
        if max_frames is not None:
            max_frames = whole_number("max_frames", max_frames)
        if sampling is None:
            sampling = voice.sampling if take is None else take.sampling
        if seed is None:
            seed = 0 if take is None else take.seed
            if script.own and isinstance(after, Branch):
                seed = next_seed(seed)
        parts = len(script.texts)
        if details is None:
            details = NO_DETAILS if take is None else take.details
            if not script.own or parts > 1:
                details = replace(details, tokens=None)
        elif not isinstance(details, Details):
            raise VoxradixError(f"details is {details!r}; it must be a Details")
        elif details.tokens is not None and parts > 1:
            raise VoxradixError(
                f"tokens is {details.tokens}, but the text is spoken in {parts} parts; a number of frames can be "
                "wished for one"
            )
        if references is None:
            references = () if take is None else take.references
        elif isinstance(references, str | bytes) or not isinstance(references, Sequence):
            raise VoxradixError("references must be a list of codes [F, codebooks]; Voice.reference makes them")
        elif script.behind and references:
            raise VoxradixError(
                "references are given with audio to go on from, which has its own voice; leave them out"
            )
        config = voice.model.config
        codes = tuple(own_codes(codes, config, f"reference {n}") for n, codes in enumerate(references, start=1))
        return cls(sampling, whole_number("seed", seed), max_frames, salt, details, codes)


class Speaking:
    """Speaks a script. After every step of the engine, `proceed` brings it on.

    Draws are numbered by the frames of the whole take, so a take that branches off with its own seed, or goes on after
    its budget was spent, has the frames it would have had.

    Attributes:
        script: What it speaks.
        frames: The new frames so far, over all texts, each int64 [C].
        request: The request under way, or the last one.
    """

    def __init__(self, voice: Voice, submit: Callable[..., Request], script: Script, settings: Settings) -> None:
        """Begin; ``submit`` is the engine's. Raises `VoxradixError` when the first text can never fit."""
        self.script = script
        self.frames: list[Tensor] = []
        self._voice = voice
        self._submit = submit
        self._settings = settings
        self._pieces = list(script.behind)
        self._results: list[Result] = []
        self._left = list(script.texts)
        self._kept = script.kept
        self._taken = 0
        self._finish: str | None = None
        self._error: str | None = None
        self.request = self._next()

    @property
    def done(self) -> int:
        """How many of the texts are spoken."""
        return len(self._pieces) - len(self.script.behind)

    def proceed(self, on_frame: FrameCallback | None = None) -> bool:
        """Take over what the request under way has made; when it has ended, begin the next text.

        ``on_frame`` is called with each frame that is new. Returns whether there is more to come.
        """
        while self._taken < len(self.request.frames):  # a callback may bring more
            frame = self.request.frames[self._taken]
            self._taken += 1
            self.frames.append(frame)
            if on_frame is not None:
                on_frame(frame.clone())
        if self._finish is None and self.request.state is State.FINISHED:
            self._end_text()
        return self._finish is None

    def take(self) -> Take:
        """The take as far as it has come, when `proceed` says that there is no more."""
        if self._finish is None:
            raise RuntimeError("the take is still under way")
        model = self._voice.model
        return Take(
            voice=self._voice.name,
            model=model.digest.hex(),
            layout=model.layout,
            frame_rate=self._voice.frame_rate,
            pieces=tuple(self._pieces),
            unsaid=tuple(self._left),
            seed=self._settings.seed,
            sampling=self._settings.sampling,
            details=self._settings.details,
            references=self._settings.references,
            finish=self._finish,
            error=self._error,
            results=tuple(self._results),
        )

    def _next(self) -> Request:
        """Submit the next text, after the pieces that are spoken and the frames of it that are kept."""
        settings = self._settings
        budget = settings.max_frames
        prompt = self._voice.prompt(self._left[0], self._pieces, settings.details, settings.references)
        request = self._submit(
            torch.cat((prompt, self._kept)),
            sampling=settings.sampling,
            seed=settings.seed,
            max_frames=None if budget is None else budget - len(self.frames),
            salt=settings.salt,
            own_frames=len(self._kept),
            first_draw=sum(len(piece.rows) for piece in self._pieces) + len(self._kept),
        )
        self._taken = 0
        return request

    def _end_text(self) -> None:
        result = self.request.result()
        self._results.append(result)
        ended = result.finish == "audio_end"
        rows = torch.cat((self._kept, result.rows))
        self._pieces.append(Piece(self._left.pop(0), rows, End.ENDED if ended else End.OPEN))
        self._kept = self._kept[:0]
        if not ended or not self._left:
            self._finish, self._error = result.finish, result.error
        elif self._settings.max_frames is not None and len(self.frames) >= self._settings.max_frames:
            self._finish = "length"
        else:
            try:
                self.request = self._next()
            except VoxradixError as error:  # the frames of earlier texts leave no room for the next
                self._finish, self._error = "error", str(error)
