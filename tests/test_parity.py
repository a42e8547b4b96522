"""Parity, layer by layer, with outputs recorded from the public modelling code on a small checkpoint.

Logits of the public code itself differ by up to 6e-5 between its ways to compute them; 1e-4 tells a wrong epsilon.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.checkpoints import TINY
from voxradix import GREEDY, Engine, Sampling
from voxradix.models.moss_local import BLOCK, KVStore, MossLocal, Placement, load, padded
from voxradix.sampling import penalise

CASES = json.loads((TINY / "cases.json").read_text())
NAMES = [case["name"] for case in CASES]


def recorded(name: str) -> tuple[dict[str, object], dict[str, Tensor]]:
    case = next(case for case in CASES if case["name"] == name)
    with np.load(TINY / f"{name}.npz") as file:
        return case, {key: torch.from_numpy(file[key]) for key in file.files}


def forward(model: MossLocal, kv: KVStore, rows: Tensor, start: int) -> Tensor:
    end = start + rows.shape[0]
    missing = padded(rows.shape[0]) - rows.shape[0]
    length = -(-end // BLOCK) * BLOCK
    place = Placement(
        positions=F.pad(torch.arange(start, end), (0, missing))[None],
        slots=F.pad(torch.arange(start, end), (0, missing), value=kv.waste),
        context=F.pad(torch.arange(end), (0, length - end), value=kv.null)[None],
    )
    return model.hidden(F.pad(rows, (0, 0, 0, missing)), place, kv)[: rows.shape[0]]


class Recorder:
    """Chooses greedily under a repetition penalty and keeps the logits of the first row."""

    def __init__(self, penalty: float, codebooks: int, size: int) -> None:
        self.penalty = torch.tensor([[penalty]])
        self.seen = torch.zeros(codebooks, size, dtype=torch.bool)
        self.stops: list[Tensor] = []
        self.codes: list[list[Tensor]] = []

    def stop(self, logits: Tensor) -> Tensor:
        self.stops.append(logits[0].clone())
        self.codes.append([])
        return logits.argmax(dim=-1)

    def code(self, channel: int, logits: Tensor) -> Tensor:
        self.codes[-1].append(logits[0].clone())
        return penalise(logits, self.seen[channel], self.penalty).argmax(dim=-1)


@dataclass(frozen=True)
class Replay:
    """What this package computes where the recording has the same: a greedy decode of one prompt."""

    prompt_embeds: Tensor
    prompt_hidden: Tensor
    step_hidden: Tensor
    stop_logits: Tensor
    code_logits: Tensor
    rows: Tensor


@cache
def replay(name: str) -> Replay:
    case, data = recorded(name)
    model = load(TINY / "checkpoint")
    prompt, steps = data["prompt_rows"].long(), len(data["step_hidden"])
    kv = model.kv_store(len(prompt) + steps)
    prompt_hidden = forward(model, kv, prompt, 0)
    recorder = Recorder(float(str(case["audio_repetition_penalty"])), 12, 1024)
    hidden, rows = [prompt_hidden[-1:]], [prompt[:0]]
    while len(hidden) <= steps:
        frame = model.frames(hidden[-1].expand(4, -1).contiguous(), recorder)
        if frame.stop[0]:
            break
        recorder.seen[torch.arange(12), frame.codes[0]] = True
        rows.append(F.pad(frame.codes[:1], (1, 0), value=model.config.assistant_slot_id))
        hidden.append(forward(model, kv, rows[-1], len(prompt) + len(rows) - 2))
    return Replay(
        prompt_embeds=model.embed(prompt),
        prompt_hidden=prompt_hidden,
        step_hidden=torch.cat(hidden)[:steps],
        stop_logits=torch.stack(recorder.stops),
        code_logits=torch.stack([torch.stack(codes) for codes in recorder.codes]),
        rows=torch.cat(rows),
    )


@pytest.mark.parametrize("name", NAMES)
def test_embeddings_are_the_recorded_ones_to_the_bit(name: str) -> None:
    assert torch.equal(replay(name).prompt_embeds, recorded(name)[1]["prompt_embeds"])


@pytest.mark.parametrize("name", NAMES)
def test_hidden_states_are_the_recorded_ones(name: str) -> None:
    data = recorded(name)[1]
    assert torch.allclose(replay(name).prompt_hidden, data["prompt_hidden"], atol=1e-4, rtol=0)
    assert torch.allclose(replay(name).step_hidden, data["step_hidden"], atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_stop_logits_are_the_recorded_ones(name: str) -> None:
    assert torch.allclose(replay(name).stop_logits, recorded(name)[1]["stop_logits"], atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_code_logits_are_the_recorded_ones(name: str) -> None:
    expected = recorded(name)[1]["code_logits"]
    assert torch.allclose(replay(name).code_logits[: len(expected)], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_greedy_frames_are_the_recorded_ones(name: str) -> None:
    assert torch.equal(replay(name).rows, recorded(name)[1]["greedy_rows"].long())


@pytest.mark.parametrize("name", NAMES)
def test_the_engine_gives_the_recorded_frames(name: str) -> None:
    case, data = recorded(name)
    engine = Engine(TINY / "checkpoint", pool_rows=200)
    sampling = Sampling(GREEDY.stop, GREEDY.codes, float(str(case["audio_repetition_penalty"])))
    result = engine.generate(data["prompt_rows"], sampling=sampling, max_frames=24)
    assert torch.equal(result.rows, data["greedy_rows"].long())
    assert result.finish == case["finish"]
