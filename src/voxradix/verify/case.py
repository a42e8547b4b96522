"""A case: one of the requests that cells are made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from voxradix.engine import Engine, Request
from voxradix.models.moss_local import random_checkpoint
from voxradix.sampling import GREEDY, Draw, Sampling
from voxradix.verify.axes import Way
from voxradix.voice import Voice, load_voice

FRAMES = 5
"""Frames of every case."""

SIZES = random_checkpoint.Sizes(
    hidden=32,
    inner=48,
    heads=2,
    kv_heads=1,
    head_dim=16,
    local_inner=48,
    local_heads=2,
    codebooks=4,
    codes=48,
    vocab=64,
    positions=128,
)
"""The checkpoint that cells run on. Greedy never stops on it, so a case has all its frames."""

SAMPLING = {
    Way.GREEDY: GREEDY,
    Way.SEEDED: Sampling(stop=GREEDY.stop, codes=Draw(temperature=1.7, top_p=0.8, top_k=25)),
    Way.PENALISED: Sampling(stop=GREEDY.stop, codes=Draw(), repetition_penalty=1.3),
}
"""How each way draws."""


def small_voice() -> Voice:
    """A voice of the size of `SIZES`, always the same one."""
    with TemporaryDirectory() as directory:
        return load_voice(random_checkpoint.write(Path(directory), SIZES))


@dataclass(frozen=True)
class Case:
    """A request by its number, which is its seed too, by the rows of its prompt and by the way it draws."""

    number: int
    prompt_rows: int
    way: Way

    @cached_property
    def prompt(self) -> Tensor:
        """Its prompt rows, int64 [prompt_rows, C]."""
        return random_checkpoint.prompt(SIZES, self.prompt_rows, seed=self.number)

    def submit(self, engine: Engine, *own: Tensor) -> Request:
        """Submit it, or with rows of its own, int64 [N, C], what goes on after them."""
        return engine.submit(
            torch.cat((self.prompt, *own)), sampling=SAMPLING[self.way], seed=self.number, max_frames=FRAMES
        )
