"""Lookahead: a step launched before the one before it is known changes no frame, and nothing is lost on the way."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import pytest
import torch
from torch import Tensor

from tests.requests import FRAMES, PENALISED, SEEDED, WAYS, finish, patch_frames, prompts, undisturbed
from voxradix import GREEDY, Draw, Engine, Sampling
from voxradix.engine import Request, State, StepReport
from voxradix.engine.loop import StepLoop
from voxradix.engine.runner import StepOutput, StepRunner
from voxradix.engine.scheduler import Scheduler
from voxradix.models.moss_local import Frames
from voxradix.voice import Voice

STOPPING = Sampling(stop=Draw(), codes=Draw(temperature=1.7, top_p=0.8, top_k=25))
"""On the endless checkpoint every frame is as likely the last as not."""


def ahead(voice: Voice, **options: int | bool) -> Engine:
    return Engine(voice, lookahead=True, **options)  # type: ignore[arg-type]


@WAYS
def test_one_seed_one_waveform_looking_ahead(endless: Voice, sampling: Sampling) -> None:
    prompt = prompts(1)[0]
    engine = ahead(endless, pool_rows=300)
    for _ in range(2):
        made = finish(engine, [engine.submit(prompt, sampling=sampling, seed=5, max_frames=FRAMES)])[0]
        assert torch.equal(made, undisturbed(endless, prompt, sampling))


@pytest.mark.parametrize("count", [1, 2, 7])
def test_the_end_of_speech_is_seen_and_what_ran_on_is_nobodys(endless: Voice, count: int) -> None:
    engine = ahead(endless, pool_rows=800)
    batch = prompts(count)
    for seed in range(12):
        requests = [engine.submit(p, sampling=STOPPING, seed=seed + i, max_frames=50) for i, p in enumerate(batch)]
        for i, made in enumerate(finish(engine, requests)):
            alone = Engine(endless, pool_rows=100, cache=False)
            expected = alone.generate(batch[i], sampling=STOPPING, seed=seed + i, max_frames=50)
            assert torch.equal(made, expected.rows) and requests[i].finish == expected.finish == "audio_end"
        assert engine.occupancy().held == 0 and engine.step() is None


def test_what_ran_on_is_not_cached(endless: Voice) -> None:
    engine = ahead(endless, pool_rows=300)
    prompt = prompts(1)[0]
    request = engine.submit(prompt, sampling=STOPPING, seed=1, max_frames=50)
    frames = len(finish(engine, [request])[0])
    assert engine.occupancy().cached == len(prompt) + frames


@pytest.mark.parametrize("leave", ["abort", "retract"])
def test_who_leaves_at_any_frame_loses_none_and_disturbs_nobody(endless: Voice, leave: str) -> None:
    batch = prompts(3)
    for at in range(1, 12):
        engine = ahead(endless, pool_rows=300)
        requests = [engine.submit(p, sampling=SEEDED, seed=i, max_frames=12) for i, p in enumerate(batch)]
        while len(requests[1].frames) < at:
            engine.step()
        getattr(engine, leave)(requests[1])
        engine.check()
        for i, made in enumerate(finish(engine, requests)):
            expected = undisturbed(endless, batch[i], SEEDED, seed=i, frames=12)
            assert torch.equal(made, expected[: len(made)])
            assert len(made) == 12 or (i == 1 and leave == "abort" and at <= len(made) <= at + 1)


def test_a_pool_too_small_for_all_loses_nothing_looking_ahead(endless: Voice) -> None:
    batch = prompts(5)
    engine = ahead(endless, pool_rows=130)
    ways = [SEEDED, GREEDY, PENALISED, SEEDED, GREEDY]
    requests = [
        engine.submit(p, sampling=w, seed=i, max_frames=FRAMES)
        for i, (p, w) in enumerate(zip(batch, ways, strict=True))
    ]
    for i, made in enumerate(finish(engine, requests)):
        assert torch.equal(made, undisturbed(endless, batch[i], ways[i], seed=i))
    assert engine.totals.retractions > 0


def test_every_frame_is_reported_once(endless: Voice) -> None:
    engine = ahead(endless, pool_rows=600)
    requests = [engine.submit(p, sampling=STOPPING, seed=i, max_frames=9) for i, p in enumerate(prompts(6))]
    gained: list[Request] = []
    ended: list[Request] = []
    steps = 0
    while (report := engine.step()) is not None:
        steps += 1
        if steps == 2:
            engine.abort(requests[0])
        assert len(report.requests) == len(report.next_ids)
        gained += report.gained
        ended += report.finished
    assert {r: gained.count(r) for r in requests} == {r: len(r.frames) for r in requests}
    assert sorted(r.order for r in ended) == [r.order for r in requests if r.finish != "aborted"]


def test_steps_are_launched_before_the_ones_before_them_land(endless: Voice, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def told(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def telling(*arguments: object) -> object:
            order.append(name)
            return call(*arguments)

        return telling

    monkeypatch.setattr(StepRunner, "launch", told("launch", StepRunner.launch))
    monkeypatch.setattr(StepLoop, "_resolve", told("resolve", StepLoop._resolve))
    engine = ahead(endless, pool_rows=100)
    finish(engine, [engine.submit(prompts(1)[0], sampling=SEEDED, max_frames=5)])
    assert order == [
        "launch",
        "resolve",
        "launch",
        "launch",
        "resolve",
        "launch",
        "resolve",
        "launch",
        "resolve",
        "resolve",
    ]


POINTS: dict[str, tuple[type, str]] = {
    "planning ahead": (Scheduler, "plan_ahead"),
    "launching": (StepRunner, "launch"),
    "landing": (Future, "result"),
    "resolving": (StepLoop, "_resolve"),
    "appending": (Request, "append"),
}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", range(1, 8, 2))
def test_a_step_broken_off_at_any_point_leaks_nothing_and_others_are_right(
    endless: Voice, monkeypatch: pytest.MonkeyPatch, point: str, after: bool, call: int
) -> None:
    owner, name = POINTS[point]
    original = getattr(owner, name)
    calls = 0

    def breaking(*arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == call and not after:
            raise KeyboardInterrupt
        made = original(*arguments, **options)
        if calls == call:
            raise KeyboardInterrupt
        return made

    batch = prompts(5)
    engine = ahead(endless, pool_rows=300, max_batch=3)
    requests = [engine.submit(p, sampling=SEEDED, seed=i, max_frames=10) for i, p in enumerate(batch)]
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, breaking)
        try:
            while engine.step() is not None:
                engine.check()
        except KeyboardInterrupt:
            pass
    engine.check()
    while engine.step() is not None:
        engine.check()
    assert all(request.state is State.FINISHED for request in requests)
    assert engine.occupancy().held == 0
    assert calls < call or sum(r.finish == "error" for r in requests) in (1, 2, 3)
    for i, request in enumerate(requests):
        expected = undisturbed(endless, batch[i], SEEDED, seed=i, frames=10)
        made = request.result().rows
        assert torch.equal(made, expected[: len(made)]) and (len(made) == 10 or request.finish == "error")
    again = engine.generate(batch[0], sampling=SEEDED, seed=0, max_frames=10)
    assert torch.equal(again.rows, undisturbed(endless, batch[0], SEEDED, seed=0, frames=10))


def test_a_step_that_fails_ends_its_requests_and_leaves_nothing_in_the_cache(
    endless: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def broken(frames: Frames) -> Frames:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise RuntimeError("out of luck")
        return frames

    prompt = prompts(1)[0]
    engine = ahead(endless, pool_rows=300)
    patch_frames(endless, monkeypatch, broken)
    request = engine.submit(prompt, sampling=SEEDED, seed=5, max_frames=20)
    made = finish(engine, [request])[0]
    assert request.finish == "error" and "out of luck" in str(request.error) and len(made) == 3
    assert engine.occupancy().cached == len(prompt) and engine.occupancy().held == 0


def test_a_row_that_is_not_finite_ends_its_request_alone(endless: Voice, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def spoiled(frames: Frames) -> Frames:
        nonlocal calls
        calls += 1
        finite: Tensor = frames.finite.clone()
        finite[1] = calls != 6
        return Frames(frames.stop, frames.codes, finite)

    batch = prompts(3)
    engine = Engine(endless, pool_rows=300, lookahead=True, graphs=False)
    expected = [undisturbed(endless, p, SEEDED, seed=i, frames=12) for i, p in enumerate(batch)]
    patch_frames(endless, monkeypatch, spoiled)
    requests = [engine.submit(p, sampling=SEEDED, seed=i, max_frames=12) for i, p in enumerate(batch)]
    made = finish(engine, requests)
    assert [request.finish for request in requests] == ["length", "error", "length"]
    assert torch.equal(made[0], expected[0]) and torch.equal(made[2], expected[2])
    assert torch.equal(made[1], expected[1][: len(made[1])]) and len(made[1]) < 12


def test_a_key_pressed_twice_leaves_nobody_a_step_ahead(endless: Voice, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second press comes while the first is dealt with."""
    batch = prompts(3)
    engine = ahead(endless, pool_rows=300)
    first = [engine.submit(p, sampling=SEEDED, seed=i, max_frames=10) for i, p in enumerate(batch)]
    for _ in range(4):
        engine.step()

    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(StepLoop, "_resolve", pressed)
        patched.setattr(StepRunner, "settle", pressed)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                engine.step()
    assert all(request.finish == "error" for request in first)
    again = [engine.submit(p, sampling=SEEDED, seed=i, max_frames=10) for i, p in enumerate(batch)]
    for i, made in enumerate(finish(engine, again)):
        assert torch.equal(made, undisturbed(endless, batch[i], SEEDED, seed=i, frames=10))


@pytest.mark.parametrize("lookahead", [False, True])
def test_a_request_that_leaves_in_the_middle_of_a_step_is_ended_after_it(
    endless: Voice, monkeypatch: pytest.MonkeyPatch, lookahead: bool
) -> None:
    batch = prompts(2)
    engine = Engine(endless, pool_rows=300, lookahead=lookahead)
    stays, leaves = (engine.submit(p, sampling=SEEDED, seed=i, max_frames=12) for i, p in enumerate(batch))
    resolve = StepLoop._resolve
    calls = 0

    def leaving(loop: StepLoop, output: StepOutput) -> StepReport:
        nonlocal calls
        calls += 1
        if calls == 5:
            engine.abort(leaves)
        return resolve(loop, output)

    monkeypatch.setattr(StepLoop, "_resolve", leaving)
    made = finish(engine, [stays, leaves])
    assert leaves.finish == "aborted" and len(made[1]) in (5, 6)
    assert torch.equal(made[0], undisturbed(endless, batch[0], SEEDED, seed=0, frames=12))


def test_every_frame_is_told_although_a_callback_lets_the_flight_land(endless: Voice) -> None:
    engine = ahead(endless, pool_rows=300)
    told: list[Tensor] = []
    request = engine.submit(prompts(1)[0], sampling=SEEDED, seed=5, max_frames=9)

    def retracting(row: Tensor) -> None:
        told.append(row)
        engine.retract(request)

    result = engine.run([request], retracting)[0]
    assert torch.equal(torch.stack(told), result.rows) and len(told) == 9
