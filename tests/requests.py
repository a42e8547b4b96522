"""Requests on the endless checkpoint: prompts, ways to draw, and the run every other is held against."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import Tensor

from tests import checkpoints
from tests.conftest import SIZES
from voxradix import GREEDY, Draw, Engine, Sampling
from voxradix.engine import Request, State
from voxradix.models.moss_local import Frames
from voxradix.voice import Voice

FRAMES = 40
NEVER = Draw(temperature=0.0)  # greedy never stops on the endless checkpoint
SEEDED = Sampling(stop=NEVER, codes=Draw(temperature=1.7, top_p=0.8, top_k=25))
PENALISED = Sampling(stop=NEVER, codes=Draw(), repetition_penalty=1.3)
WAYS = pytest.mark.parametrize("sampling", [GREEDY, SEEDED, PENALISED], ids=["greedy", "seeded", "penalised"])


def prompts(count: int, rows: int = 20) -> list[Tensor]:
    return [checkpoints.prompt(SIZES, rows + 3 * i, seed=i) for i in range(count)]


def undisturbed(voice: Voice, prompt: Tensor, sampling: Sampling, seed: int = 5, frames: int = FRAMES) -> Tensor:
    """The reference: alone, cold, in one prefill, without a cache, no step captured."""
    engine = Engine(voice, pool_rows=200, cache=False, graphs=False)
    return engine.generate(prompt, sampling=sampling, seed=seed, max_frames=frames).rows


def finish(engine: Engine, requests: list[Request]) -> list[Tensor]:
    """Run to the end, checking after every step that no row is lost."""
    while any(request.state is not State.FINISHED for request in requests):
        assert engine.step() is not None
        engine.check()
    return [request.result().rows for request in requests]


def patch_frames(voice: Voice, monkeypatch: pytest.MonkeyPatch, change: Callable[[Frames], Frames]) -> None:
    decoder = voice.model.frames
    monkeypatch.setattr(voice.model, "frames", lambda hidden, chooser: change(decoder(hidden, chooser)))
