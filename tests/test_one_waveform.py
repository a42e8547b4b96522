"""One seed, one waveform: however the engine got there, the same codes, bit for bit."""

from __future__ import annotations

import pytest
import torch

from tests.requests import FRAMES, PENALISED, SEEDED, WAYS, finish, prompts, undisturbed
from voxradix import GREEDY, Engine, Sampling
from voxradix.engine import Request, State
from voxradix.voice import Voice


@WAYS
def test_one_seed_one_waveform_cold_and_warm(endless: Voice, sampling: Sampling) -> None:
    prompt = prompts(1)[0]
    expected = undisturbed(endless, prompt, sampling)
    engine = Engine(endless, pool_rows=300)
    cold = engine.generate(prompt, sampling=sampling, seed=5, max_frames=FRAMES)
    warm = engine.generate(prompt, sampling=sampling, seed=5, max_frames=FRAMES)
    assert torch.equal(cold.rows, expected) and cold.reused_rows == 0
    assert torch.equal(warm.rows, expected) and warm.reused_rows == len(prompt) - 1


@WAYS
@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_one_seed_one_waveform_in_any_chunks(endless: Voice, sampling: Sampling, chunk: int) -> None:
    prompt = prompts(1, rows=70)[0]
    engine = Engine(endless, pool_rows=300, chunk_rows=chunk)
    made = engine.generate(prompt, sampling=sampling, seed=5, max_frames=10).rows
    assert torch.equal(made, undisturbed(endless, prompt, sampling, frames=10))


@WAYS
@pytest.mark.parametrize("count", [2, 5, 16])
def test_one_seed_one_waveform_in_any_batch(endless: Voice, sampling: Sampling, count: int) -> None:
    batch = prompts(count)
    engine = Engine(endless, pool_rows=2000, chunk_rows=48)
    requests = [engine.submit(p, sampling=sampling, seed=i, max_frames=8 + i) for i, p in enumerate(batch)]
    for i, made in enumerate(finish(engine, requests)):
        assert torch.equal(made, undisturbed(endless, batch[i], sampling, seed=i, frames=8 + i))


def test_one_seed_one_waveform_with_strangers_joining_and_leaving(endless: Voice) -> None:
    batch = prompts(6)
    ways = [GREEDY, SEEDED, PENALISED] * 2
    engine = Engine(endless, pool_rows=1000)
    first = engine.submit(batch[0], sampling=SEEDED, seed=5, max_frames=FRAMES)
    strangers: list[Request] = []
    for step in range(200):
        if first.state is State.FINISHED:
            break
        if step % 5 == 0:
            i = len(strangers) % 6
            strangers.append(engine.submit(batch[i], sampling=ways[i], seed=step, max_frames=12))
        if step % 11 == 10:
            engine.abort(strangers[-2])
        engine.step()
        engine.check()
    assert torch.equal(first.result().rows, undisturbed(endless, batch[0], SEEDED))


@WAYS
@pytest.mark.parametrize("cache", [True, False], ids=["cached", "uncached"])
def test_retraction_at_every_frame_loses_nothing_alone(endless: Voice, sampling: Sampling, cache: bool) -> None:
    prompt = prompts(1)[0]
    expected = undisturbed(endless, prompt, sampling)
    for at in range(FRAMES):
        engine = Engine(endless, pool_rows=100, cache=cache)
        request = engine.submit(prompt, sampling=sampling, seed=5, max_frames=FRAMES)
        while len(request.frames) < at:
            engine.step()
        engine.retract(request)
        engine.check()
        assert torch.equal(finish(engine, [request])[0], expected), f"retracted after {at} frames"
        assert request.result().retractions == (1 if at else 0)
        if cache and at > 1:
            assert request.result().recomputed_rows == 0, "a resumed request hits its own rows"


def test_retraction_at_every_frame_loses_nothing_in_a_batch(endless: Voice) -> None:
    batch, ways = prompts(4), [SEEDED, GREEDY, PENALISED, SEEDED]
    expected = [undisturbed(endless, p, w, seed=i) for i, (p, w) in enumerate(zip(batch, ways, strict=True))]
    for at in range(1, FRAMES):
        engine = Engine(endless, pool_rows=600, chunk_rows=30)
        requests = [
            engine.submit(p, sampling=w, seed=i, max_frames=FRAMES)
            for i, (p, w) in enumerate(zip(batch, ways, strict=True))
        ]
        victim = requests[at % 4]
        while len(victim.frames) < at:
            engine.step()
        engine.retract(victim)
        for made, wanted in zip(finish(engine, requests), expected, strict=True):
            assert torch.equal(made, wanted), f"request {at % 4} retracted after {at} frames"


def test_a_pool_too_small_for_all_retracts_the_newest_and_loses_nothing(endless: Voice) -> None:
    batch = prompts(5)
    expected = [undisturbed(endless, p, SEEDED, seed=i) for i, p in enumerate(batch)]
    engine = Engine(endless, pool_rows=130)
    requests = [engine.submit(p, sampling=SEEDED, seed=i, max_frames=FRAMES) for i, p in enumerate(batch)]
    made = finish(engine, requests)
    assert all(torch.equal(a, b) for a, b in zip(made, expected, strict=True))
    assert sum(request.retractions for request in requests) > 0
    assert requests[0].retractions == 0, "the oldest is never retracted"
    ends = [request.finished for request in requests]
    assert ends[0] == min(e for e in ends if e is not None)


def test_a_chunked_prefill_that_is_retracted_starts_again_rightly(endless: Voice) -> None:
    prompt = prompts(1, rows=60)[0]
    engine = Engine(endless, pool_rows=200, chunk_rows=9)
    request = engine.submit(prompt, sampling=SEEDED, seed=5, max_frames=5)
    for _ in range(3):
        engine.step()
    assert request.state is State.PREFILLING and not request.frames
    engine.retract(request)
    assert torch.equal(finish(engine, [request])[0], undisturbed(endless, prompt, SEEDED, frames=5))


def test_ambient_torch_settings_change_nothing(endless: Voice) -> None:
    prompt = prompts(1)[0]
    with torch.autocast("cpu"):
        mixed = undisturbed(endless, prompt, PENALISED, frames=5)
    with torch.inference_mode():
        engine = Engine(endless, pool_rows=100)
        request = engine.submit(prompt, sampling=PENALISED, seed=5, max_frames=5)
    finish(engine, [request])
    torch.set_default_dtype(torch.float64)
    try:
        double = undisturbed(endless, prompt, PENALISED, frames=5)
    finally:
        torch.set_default_dtype(torch.float32)
    expected = undisturbed(endless, prompt, PENALISED, frames=5)
    assert all(torch.equal(made, expected) for made in (mixed, double, request.result().rows))
