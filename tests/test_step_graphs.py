"""Step graphs: a decode step replayed is the decode step, whoever sits in it, and nothing of it is lost."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor

from tests.requests import FRAMES, PENALISED, SEEDED, WAYS, finish, prompts, undisturbed
from voxradix import GREEDY, Engine, Sampling
from voxradix.capture import check
from voxradix.engine import Request, State, graph, shape
from voxradix.engine.runner import Flight, StepOutput
from voxradix.engine.scheduler import Plan
from voxradix.engine.shape import StepShape
from voxradix.keys import row_hash
from voxradix.voice import Voice

MIXED = [SEEDED, GREEDY, PENALISED]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are captured the first time their shape comes up."""
    monkeypatch.setitem(graph.PATIENCE, "cpu", 0)


def graphs(engine: Engine) -> int:
    return len(engine._loop._runner._graphs)


@WAYS
def test_one_seed_one_waveform_replayed(endless: Voice, sampling: Sampling, at_once: None) -> None:
    prompt = prompts(1)[0]
    engine = Engine(endless, pool_rows=300)
    expected = undisturbed(endless, prompt, sampling, frames=60)
    for frames in (12, 60):  # into a second context bucket
        assert torch.equal(
            finish(engine, [engine.submit(prompt, sampling=sampling, seed=5, max_frames=frames)])[0], expected[:frames]
        )
    assert graphs(engine) == 2


def test_one_seed_one_waveform_replayed_in_any_batch(endless: Voice, at_once: None) -> None:
    batch = prompts(16)
    expected = [undisturbed(endless, p, MIXED[i % 3], seed=i, frames=6 + i // 2) for i, p in enumerate(batch)]
    engine = Engine(endless, pool_rows=2000, chunk_rows=48)
    for count in (2, 5, 16):
        requests = [
            engine.submit(p, sampling=MIXED[i % 3], seed=i, max_frames=6 + i // 2, salt=str(count))
            for i, p in enumerate(batch[:count])
        ]
        for made, wanted in zip(finish(engine, requests), expected, strict=False):
            assert torch.equal(made, wanted)
    assert graphs(engine) > 3


def test_one_seed_one_waveform_replayed_with_strangers_joining_leaving_and_retracted(
    endless: Voice, at_once: None
) -> None:
    batch = prompts(6)
    engine = Engine(endless, pool_rows=1000, max_batch=4)
    first = engine.submit(batch[0], sampling=SEEDED, seed=5, max_frames=FRAMES)
    strangers: list[Request] = []
    for step in range(200):
        if first.state is State.FINISHED:
            break
        if step % 4 == 0:
            i = len(strangers) % 6
            strangers.append(engine.submit(batch[i], sampling=MIXED[i % 3], seed=step, max_frames=9))
        if step % 7 == 6:
            engine.abort(strangers[-2])
        if step % 6 == 5:
            engine.retract(first if step % 12 == 5 else strangers[-1])
        engine.step()
        engine.check()
    assert first.retractions > 2 and graphs(engine)
    assert torch.equal(first.result().rows, undisturbed(endless, batch[0], SEEDED))


@WAYS
def test_retraction_between_replays_loses_nothing(endless: Voice, sampling: Sampling, at_once: None) -> None:
    prompt = prompts(1)[0]
    expected = undisturbed(endless, prompt, sampling)
    engine = Engine(endless, pool_rows=200)
    for at in range(1, FRAMES, 5):
        request = engine.submit(prompt, sampling=sampling, seed=5, max_frames=FRAMES, salt=str(at))
        while len(request.frames) < at:
            engine.step()
        engine.retract(request)
        assert torch.equal(finish(engine, [request])[0], expected), f"retracted after {at} frames"


def test_a_request_that_resumes_in_other_slots_is_read_there(endless: Voice, at_once: None) -> None:
    prompt = prompts(1)[0]
    engine = Engine(endless, pool_rows=300)
    twins = [engine.submit(prompt, sampling=SEEDED, seed=5, max_frames=FRAMES) for _ in range(2)]
    while len(twins[1].frames) < 6:
        engine.step()
    before = list(twins[1].slots)
    for twin in twins:  # the second finds the rows of the first in the tree, and gives its own back
        engine.retract(twin)
    engine.step()
    assert twins[1].slots[: len(before)] != before and len(twins[1].frames) == 7, "resumed at once, elsewhere"
    for made in finish(engine, twins):
        assert torch.equal(made, undisturbed(endless, prompt, SEEDED))


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_a_chunk_that_is_not_the_last_gives_nothing_and_draws_nothing_beside_a_replay(
    endless: Voice, chunk: int, at_once: None
) -> None:
    running, long = prompts(1)[0], prompts(1, rows=70)[0]
    engine = Engine(endless, pool_rows=300, chunk_rows=chunk)
    first = engine.submit(running, sampling=SEEDED, seed=5, max_frames=FRAMES)
    while not first.frames:
        engine.step()
    request = engine.submit(long, sampling=SEEDED, seed=6, max_frames=5, salt="other")
    while request.written + chunk < len(long):
        report = engine.step()
        assert report is not None and request not in report.requests
        assert request.next_draw == 0 and not request.frames
    made = finish(engine, [first, request])
    assert torch.equal(made[0], undisturbed(endless, running, SEEDED))
    assert torch.equal(made[1], undisturbed(endless, long, SEEDED, seed=6, frames=5))
    assert graphs(engine)


def test_a_batch_above_the_largest_bucket_runs_eagerly_to_the_same_codes(
    endless: Voice, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape, "BATCHES", (4,))
    batch = prompts(5)
    engine = Engine(endless, pool_rows=1000)
    requests = [engine.submit(p, sampling=SEEDED, seed=i, max_frames=8) for i, p in enumerate(batch)]
    for made, (i, prompt) in zip(finish(engine, requests), enumerate(batch), strict=True):
        assert torch.equal(made, undisturbed(endless, prompt, SEEDED, seed=i, frames=8))
    assert graphs(engine) == 0


def test_what_a_replay_gave_survives_later_replays(
    endless: Voice, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(endless, pool_rows=300)
    launch = engine._loop._runner.launch
    given: list[StepOutput] = []
    copies: list[tuple[Tensor, ...]] = []

    def kept(plan: Plan) -> Flight:
        flight = launch(plan)
        output = flight.land()
        given.append(output)
        copies.append((output.rows.clone(), output.packed.clone(), output.next_ids.clone()))
        return flight

    monkeypatch.setattr(engine._loop._runner, "launch", kept)
    finish(engine, [engine.submit(p, sampling=SEEDED, seed=i, max_frames=6) for i, p in enumerate(prompts(3))])
    assert graphs(engine)
    for output, copied in zip(given, copies, strict=True):
        assert all(map(torch.equal, (output.rows, output.packed, output.next_ids), copied))


def test_a_step_that_cannot_be_captured_runs_eagerly_and_says_why_once(
    endless: Voice, at_once: None, caplog: pytest.LogCaptureFixture
) -> None:
    def read_by_the_host(rows: Tensor) -> Tensor:
        return row_hash(torch.tensor(rows.tolist()))

    batch = prompts(5)
    engine = Engine(endless, pool_rows=1000, row_hash=read_by_the_host)
    with caplog.at_level(logging.WARNING, logger="voxradix.engine"):
        requests = [engine.submit(p, sampling=PENALISED, seed=i, max_frames=4 + i) for i, p in enumerate(batch)]
        made = finish(engine, requests)
    assert len(caplog.records) == 1 and "tolist" in caplog.records[0].getMessage()
    for i, rows in enumerate(made):
        assert torch.equal(rows, undisturbed(endless, batch[i], PENALISED, seed=i, frames=4 + i))
    assert graphs(engine) == 0


@pytest.mark.parametrize("penalised", [False, True])
def test_a_decode_step_reads_nothing_on_the_host(endless: Voice, penalised: bool) -> None:
    engine = Engine(endless, pool_rows=300)
    ways = MIXED if penalised else [SEEDED, GREEDY]
    requests = [engine.submit(p, sampling=ways[i % len(ways)], max_frames=9) for i, p in enumerate(prompts(3))]
    while not all(request.frames for request in requests):
        engine.step()
    engine.step()
    runner = engine._loop._runner
    step, padding, waste = runner._graphs._step, runner._state.padding, runner._kv.waste
    common = StepShape.of(requests, endless.model.config.codebook_size, runner._state.longest)
    seats, slots = torch.tensor([0, 1, padding, padding]), torch.tensor([290, 291, waste, waste])
    others = torch.tensor([2, 0, 1, padding]), torch.tensor([292, 293, 294, waste])
    with torch.inference_mode():
        report = check(lambda *inputs: step(common, *inputs), seats, slots, others=others)
    assert report.ok, str(report)


def test_more_requests_than_seats_and_slots_never_lose_a_seat(endless: Voice, at_once: None) -> None:
    batch = prompts(6)
    engine = Engine(endless, pool_rows=95, max_batch=3)
    requests = [engine.submit(p, sampling=MIXED[i % 3], seed=i, max_frames=20) for i, p in enumerate(batch)]
    for i, made in enumerate(finish(engine, requests)):  # which checks every seat after every step
        assert torch.equal(made, undisturbed(endless, batch[i], MIXED[i % 3], seed=i, frames=20))
    assert sum(request.retractions for request in requests) > 0


def test_a_rare_step_is_not_captured(endless: Voice) -> None:
    engine = Engine(endless, pool_rows=300)
    engine.generate(prompts(1)[0], sampling=GREEDY, max_frames=graph.PATIENCE["cpu"] // 2)
    assert graphs(engine) == 0
