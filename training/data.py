"""Makes the teacher speak the training lines."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor

import numpy as np

from training.corpus import HOPS, Corpus
from training.teacher import Speech, Teacher
from training.texts import VOCABULARY, lines

_teacher: Teacher | None = None


def _speak(words: list[str]) -> Speech:
    global _teacher
    _teacher = _teacher or Teacher()
    return _teacher.speak(words)


def make(count: int, seed: int, workers: int = 2) -> Corpus:
    """Speak `count` random lines."""
    index = {word: i for i, word in enumerate(VOCABULARY)}
    with ProcessPoolExecutor(workers) as pool:
        said = list(pool.map(_speak, lines(count, seed), chunksize=50))
    durations = [np.array(s.frames) for s in said]
    return Corpus(
        [np.array([index[w] for w in s.words]) for s in said],
        durations,
        np.concatenate([[0], np.cumsum([d.sum() for d in durations])]),
        np.concatenate([s.latents.reshape(-1, HOPS, s.latents.shape[1]) for s in said]).astype(np.float16),
        np.concatenate([s.f0.reshape(-1, HOPS) for s in said]),
    )
