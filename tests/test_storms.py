"""More requests than the pool can hold, and many alike: all end, all progress, and nothing is computed for nothing."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch

from tests.requests import SEEDED, finish, prompts
from voxradix import GREEDY, Engine
from voxradix.engine import Request, State, scheduler
from voxradix.engine.scheduler import Plan, Scheduler
from voxradix.voice import Voice

COUNT = 16
FRAMES = 48


@pytest.fixture
def frames_at_retraction(monkeypatch: pytest.MonkeyPatch) -> dict[Request, list[int]]:
    """How many frames each request had whenever it was retracted."""
    seen: dict[Request, list[int]] = defaultdict(list)
    retract = Scheduler.retract

    def watched(self: Scheduler, request: Request) -> None:
        seen[request].append(len(request.frames))
        retract(self, request)

    monkeypatch.setattr(Scheduler, "retract", watched)
    return seen


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Every plan that is made."""
    made: list[Plan] = []
    plan = Scheduler.plan

    def watched(self: Scheduler) -> Plan:
        made.append(plan(self))
        return made[-1]

    monkeypatch.setattr(Scheduler, "plan", watched)
    return made


def prefilled(plans: list[Plan]) -> int:
    return sum(chunk.end - chunk.start for plan in plans for chunk in plan.prefill)


PROMPTS = [prompt[: 8 + i] for i, prompt in enumerate(prompts(COUNT))]
NEEDED = sum(len(prompt) + FRAMES for prompt in PROMPTS)
"""Rows the requests of a storm need at their ends."""


def submit_all(engine: Engine) -> list[Request]:
    return [engine.submit(p, sampling=SEEDED, seed=i, max_frames=FRAMES) for i, p in enumerate(PROMPTS)]


@pytest.mark.parametrize("chunk_rows", [256, 7])
@pytest.mark.parametrize("cache", [True, False], ids=["cached", "uncached"])
def test_a_storm_of_retractions_ends_and_changes_no_code(
    endless: Voice,
    frames_at_retraction: dict[Request, list[int]],
    monkeypatch: pytest.MonkeyPatch,
    cache: bool,
    chunk_rows: int,
) -> None:
    """Requests are admitted as if nobody would grow, so that they push each other out."""
    monkeypatch.setattr(scheduler, "HEADROOM", 0)
    roomy = Engine(endless, pool_rows=NEEDED, max_batch=COUNT)
    expected = finish(roomy, submit_all(roomy))
    assert not frames_at_retraction

    engine = Engine(endless, pool_rows=NEEDED // 3, max_batch=COUNT, chunk_rows=chunk_rows, cache=cache)
    requests = submit_all(engine)
    made = finish(engine, requests)
    assert all(torch.equal(a, b) for a, b in zip(made, expected, strict=True))
    assert max(map(len, frames_at_retraction.values())) > 2
    for counts in frames_at_retraction.values():
        assert counts[0] > 0 and counts == sorted(set(counts)), "retracted twice without a frame between"

    results, totals = [request.result() for request in requests], engine.totals
    assert [result.retractions for result in results] == [len(frames_at_retraction[request]) for request in requests]
    assert totals.requests == totals.length == COUNT
    assert totals.frames == COUNT * FRAMES == sum(len(result.rows) for result in results)
    assert totals.prompt_rows == sum(result.prompt_rows for result in results)
    assert totals.reused_prompt_rows == sum(result.reused_prompt_rows for result in results)
    assert totals.reused_generated_rows == sum(result.reused_generated_rows for result in results)
    assert totals.retractions == sum(result.retractions for result in results)
    assert totals.recomputed_rows == sum(result.recomputed_rows for result in results) > 0


def test_the_cache_saves_work_in_a_storm(endless: Voice) -> None:
    recomputed = []
    for cache in (True, False):
        engine = Engine(endless, pool_rows=NEEDED // 3, max_batch=COUNT, cache=cache)
        finish(engine, submit_all(engine))
        recomputed.append(engine.totals.recomputed_rows)
    assert recomputed[0] < recomputed[1]


def test_every_row_is_computed_once_but_for_the_recomputed_ones(endless: Voice, plans: list[Plan]) -> None:
    engine = Engine(endless, pool_rows=NEEDED // 3, max_batch=COUNT)
    requests = submit_all(engine)
    finish(engine, requests)
    computed = prefilled(plans) + sum(len(plan.decode) for plan in plans)
    written = sum(request.rows - 1 for request in requests)  # the last frame's row is never needed
    totals = engine.totals
    reused = totals.reused_prompt_rows + totals.reused_generated_rows
    assert computed == written + totals.recomputed_rows - reused


@pytest.mark.parametrize("chunk_rows", [256, 7])
def test_twins_wait_for_the_first_and_share_its_rows(endless: Voice, plans: list[Plan], chunk_rows: int) -> None:
    prompt = prompts(1, rows=60)[0]
    engine = Engine(endless, pool_rows=1000, chunk_rows=chunk_rows)
    twins = [engine.submit(prompt, sampling=SEEDED, seed=i, max_frames=FRAMES) for i in range(8)]
    while not twins[0].frames:
        engine.step()
        assert all(twin.state is State.WAITING for twin in twins[1:])
    engine.step()
    assert [len(twin.frames) for twin in twins] == [2] + [1] * 7
    assert prefilled(plans) == 60
    assert len(plans[-1].decode) == 8
    now = engine.occupancy()
    assert (now.cached, now.held) == (60, 8), "the prompt once, and a row for each: its last, or the first's next"
    finish(engine, twins)
    assert prefilled(plans) == 60
    assert [twin.result().reused_rows for twin in twins] == [0] + [59] * 7


def test_different_prompts_share_nothing(endless: Voice, plans: list[Plan]) -> None:
    engine = Engine(endless, pool_rows=1000, chunk_rows=480)
    for i in range(8):
        engine.submit(prompts(8)[i][:20].repeat(3, 1), sampling=GREEDY, max_frames=FRAMES)
    engine.step()
    engine.step()
    now = engine.occupancy()
    assert (now.cached, now.held) == (8 * 60, 8)
    assert prefilled(plans) == 8 * 60


def test_a_request_with_one_row_missing_goes_straight_to_decode(endless: Voice, plans: list[Plan]) -> None:
    prompt = prompts(1)[0]
    engine = Engine(endless, pool_rows=200)
    engine.generate(prompt, sampling=GREEDY, max_frames=3)
    plans.clear()
    request = engine.submit(prompt, sampling=GREEDY, max_frames=3)
    report = engine.step()
    assert report is not None and report.gained == (request,)
    assert not plans[0].prefill and plans[0].decode == [request]
