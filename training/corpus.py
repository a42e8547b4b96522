"""What the teacher said: hidden states, pitch, words and durations, kept in one file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HOPS = 6  # teacher steps a frame


@dataclass(frozen=True)
class Corpus:
    """Spoken lines: `words[i]` and `durations[i]` in frames; frames of line i start at `starts[i]`.

    `latents` is float16 [frames, 6, 256]; `f0` is float32 [frames, 6], in Hz.
    """

    words: list[NDArray[np.int64]]
    durations: list[NDArray[np.int64]]
    starts: NDArray[np.int64]
    latents: NDArray[np.float16]
    f0: NDArray[np.float32]

    def save(self, path: Path) -> None:
        """Write one .npz file."""
        np.savez(
            path,
            words=np.concatenate(self.words),
            durations=np.concatenate(self.durations),
            lengths=np.array([len(w) for w in self.words]),
            latents=self.latents,
            f0=self.f0,
        )

    @classmethod
    def load(cls, path: Path) -> Corpus:
        """Read what `save` wrote."""
        with np.load(path) as file:
            cuts = np.cumsum(file["lengths"])[:-1]
            durations = np.split(file["durations"], cuts)
            starts = np.concatenate([[0], np.cumsum([d.sum() for d in durations])])
            return cls(np.split(file["words"], cuts), durations, starts, file["latents"], file["f0"])
