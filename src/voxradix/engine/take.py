"""A take: audio that exists, as rows, with all it takes to go on from it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path

import torch
from torch import Tensor

from voxradix.engine.door import whole_number
from voxradix.engine.request import Result
from voxradix.engine.take_file import load_take, save_take
from voxradix.errors import VoxradixError
from voxradix.models.moss_local import NO_DETAILS, Details
from voxradix.piece import Piece
from voxradix.rows import RowLayout
from voxradix.sampling import Sampling


@dataclass(frozen=True, slots=True, eq=False)
class Take:
    """Generated audio that a later call goes on from, or branches off at any frame.

    Attributes:
        voice: The name of the voice that speaks.
        model: SHA-256 of the model that made it.
        layout: What its rows are.
        frame_rate: Frames a second.
        pieces: The audio in the order it is heard, with the texts it says.
        unsaid: Texts that were asked for and not begun, because the take ended before.
        seed: The seed of its newest frames.
        sampling: How its newest frames were drawn.
        details: What its newest prompt said beside its text.
        references: Codes int64 [F, C - 1] of the recordings whose voice it takes.
        finish: Why it ended: "audio_end", "length", "aborted" or "error".
        error: What went wrong, for "error".
        results: What each request made for it came to, newest last. Frames that existed before are not among them;
            a take from a file has none.
    """

    voice: str
    model: str
    layout: RowLayout
    frame_rate: float
    pieces: tuple[Piece, ...]
    unsaid: tuple[str, ...]
    seed: int
    sampling: Sampling
    finish: str
    error: str | None = None
    details: Details = NO_DETAILS
    references: tuple[Tensor, ...] = field(default=(), repr=False)
    results: tuple[Result, ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        """What it says, how long it is, and how it ended."""
        return f"<Take {self.text!r}: {self.frames} frames, {self.seconds:.2f} s, {self.finish}>"

    @property
    def text(self) -> str:
        """What it says; the whole text of a piece that was not finished."""
        return " ".join(piece.text for piece in self.pieces)

    @property
    def rows(self) -> Tensor:
        """All its frames, int64 [F, C]."""
        blank = torch.empty(0, self.layout.columns, dtype=torch.int64)
        return torch.cat([blank, *(piece.rows for piece in self.pieces)])

    @property
    def codes(self) -> Tensor:
        """All its codes, int64 [F, C - 1]: what a codec decodes."""
        return self.rows[:, 1:]

    @property
    def frames(self) -> int:
        """How many frames it has."""
        return sum(len(piece.rows) for piece in self.pieces)

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.frames / self.frame_rate

    @property
    def new_frames(self) -> int:
        """Frames that were made for it, those it goes on from not counted."""
        return sum(len(result.rows) for result in self.results)

    @property
    def prompt_rows(self) -> int:
        """Prompt rows of the requests made for it."""
        return sum(result.prompt_rows for result in self.results)

    @property
    def reused_prompt_rows(self) -> int:
        """Prompt rows found in the cache that had been computed as prompt rows."""
        return sum(result.reused_prompt_rows for result in self.results)

    @property
    def reused_generated_rows(self) -> int:
        """Prompt rows found in the cache that had been generated."""
        return sum(result.reused_generated_rows for result in self.results)

    @property
    def recomputed_rows(self) -> int:
        """Rows lost to retractions and computed again."""
        return sum(result.recomputed_rows for result in self.results)

    @property
    def first_frame_seconds(self) -> float | None:
        """From asking for it to its first new frame; None without one."""
        waited = 0.0
        for result in self.results:
            if result.first_frame_seconds is not None:
                return waited + result.first_frame_seconds
            waited += result.seconds
        return None

    def at(self, *, frames: int | None = None, seconds: float | None = None, said: str | None = None) -> Branch:
        """A place to branch off.

        Args:
            frames: The frames to keep, from the beginning.
            seconds: Or the time to keep; a frame that is not over by then is left out.
            said: What the piece that is cut says until there, if the voice cannot tell rightly by itself.

        Raises:
            VoxradixError: When both or neither is given, or the take is not that long.
        """
        if (frames is None) == (seconds is None):
            raise VoxradixError("a place in a take is named by frames or by seconds; give one of them")
        if frames is None:
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= self.seconds:
                raise VoxradixError(f"seconds is {seconds!r}; it must be from 0 to the take's {self.seconds:g}")
            frames = int(seconds * self.frame_rate + 1e-6)
        frames = whole_number("frames", frames)
        if not 0 <= frames <= self.frames:
            raise VoxradixError(f"frames is {frames}; it must be from 0 to the take's {self.frames}")
        if said is not None and (not isinstance(said, str) or not said.strip()):
            raise VoxradixError(f"said is {said!r}; it must be the words that are heard until there")
        return Branch(self, frames, said)

    def save(self, path: str | Path) -> None:
        """Write the take to a file that `Take.load` reads; an existing file is replaced as a whole.

        Raises `VoxradixError` when it cannot be written.
        """
        names = (each.name for each in fields(self) if each.name != "results")
        save_take(Path(path), {name: getattr(self, name) for name in names})

    @classmethod
    def load(cls, path: str | Path) -> Take:
        """Read a take from a file. Raises `VoxradixError` that names what is wrong with it."""
        return cls(**load_take(Path(path)))


@dataclass(frozen=True, slots=True)
class Branch:
    """The first ``frames`` of a take, to go on from otherwise; ``said`` is what the piece cut there says, if named."""

    take: Take
    frames: int
    said: str | None = None
