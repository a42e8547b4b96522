"""A step: what it publishes, what ends a request, and what a failure leaves behind: nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.requests import SEEDED, finish, patch_frames, prompts, undisturbed
from voxradix import GREEDY, Engine, keys
from voxradix.engine import Finish, Request
from voxradix.models.moss_local import Frames
from voxradix.voice import Voice


def test_each_step_publishes_the_seed_keys_and_appends_them_to_the_chain(endless: Voice) -> None:
    layout = endless.model.layout
    engine = Engine(endless, pool_rows=300)
    requests = [engine.submit(p, sampling=SEEDED, seed=i, max_frames=6) for i, p in enumerate(prompts(3))]
    published: dict[Request, list[int]] = {request: [] for request in requests}
    while (report := engine.step()) is not None:
        assert report.next_ids.dtype == torch.int64 and report.next_ids.shape == (len(report.requests),)
        for request, key in zip(report.requests, report.next_ids.tolist(), strict=True):
            published[request].append(key)
    for request in requests:
        rows = torch.cat((request.prompt, request.result().rows))
        expected = keys.seed_keys(rows, end_id=layout.end_id, space=layout.key_space).tolist()
        assert list(request.chain.keys) == expected
        assert published[request] == expected[len(request.prompt) :]


def test_the_end_id_ends_a_request_and_appends_no_row(endless: Voice, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(endless, pool_rows=100)
    request = engine.submit(prompts(1)[0], sampling=GREEDY, max_frames=30)
    while len(request.frames) < 4:
        engine.step()
    patch_frames(endless, monkeypatch, lambda frames: Frames(torch.ones_like(frames.stop), frames.codes, frames.finite))
    report = engine.step()
    assert report is not None and report.next_ids.tolist() == [endless.model.layout.end_id]
    result = request.result()
    assert (result.finish, len(result.rows)) == ("audio_end", 4)
    assert engine.occupancy().held == 0
    engine.check()


def test_the_budget_ends_a_request_at_its_length(endless: Voice) -> None:
    result = Engine(endless, pool_rows=100).generate(prompts(1)[0], sampling=GREEDY, max_frames=1)
    assert (result.finish, len(result.rows), result.rows.dtype) == ("length", 1, torch.int64)


def test_a_row_that_is_not_finite_ends_its_request_alone_and_caches_nothing(
    endless: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = prompts(3)
    engine = Engine(endless, pool_rows=300)
    requests = [engine.submit(p, sampling=SEEDED, seed=i, max_frames=10) for i, p in enumerate(batch)]
    hidden = endless.model.hidden

    def poisoned(rows: Tensor, place: Any, kv: Any) -> Tensor:
        out = hidden(rows, place, kv)
        if rows.shape[0] > 4 and torch.equal(rows[: len(batch[1])], batch[1]):  # the second prompt's prefill
            out[len(batch[1]) - 1] = math.nan
        return out

    monkeypatch.setattr(endless.model, "hidden", poisoned)
    made = finish(engine, [requests[0], requests[2]])
    failed = requests[1].result()
    assert failed.finish == "error" and "not finite" in str(failed.error)
    assert torch.equal(made[0], undisturbed(endless, batch[0], SEEDED, seed=0, frames=10))
    monkeypatch.undo()
    again = engine.generate(batch[1], sampling=SEEDED, seed=1, max_frames=10)
    assert again.reused_rows == 0, "nothing of the failed request was cached"


@pytest.mark.parametrize("broken", ["hidden", "frames"])
def test_a_step_that_fails_ends_the_requests_it_served_and_leaves_nothing_behind(
    endless: Voice, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    batch = prompts(3)
    engine = Engine(endless, pool_rows=300, max_batch=2)
    served = [engine.submit(p, sampling=SEEDED, seed=i, max_frames=10) for i, p in enumerate(batch[:2])]
    waits = engine.submit(batch[2], sampling=SEEDED, seed=2, max_frames=10)
    for _ in range(3):
        engine.step()
    cached = engine.occupancy().cached

    def fail(*args: object) -> Tensor:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(endless.model, broken, fail)
    report = engine.step()
    monkeypatch.undo()
    assert report is not None and set(report.finished) == set(served)
    assert all(r.result().error == "RuntimeError: the device is gone" for r in served)
    assert all(len(r.result().rows) == 3 for r in served), "frames made before are kept"
    assert engine.occupancy().held == 0 and engine.occupancy().cached == cached
    assert torch.equal(finish(engine, [waits])[0], undisturbed(endless, batch[2], SEEDED, seed=2, frames=10))


@pytest.mark.parametrize("broken", ["hidden", "frames"])
def test_a_step_that_is_interrupted_ends_what_it_served_and_corrupts_nothing(
    endless: Voice, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    batch = prompts(3)
    engine = Engine(endless, pool_rows=300, max_batch=2)
    requests = [engine.submit(p, sampling=SEEDED, seed=i, max_frames=10) for i, p in enumerate(batch)]
    for _ in range(3):
        engine.step()

    def interrupt(*args: object) -> Tensor:
        raise KeyboardInterrupt

    monkeypatch.setattr(endless.model, broken, interrupt)
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    monkeypatch.undo()
    engine.check()
    assert [request.finish for request in requests] == [Finish.ERROR, Finish.ERROR, None]
    assert engine.occupancy().held == 0
    assert torch.equal(finish(engine, requests[2:])[0], undisturbed(endless, batch[2], SEEDED, seed=2, frames=10))
    for i in range(2):
        again = engine.generate(batch[i], sampling=SEEDED, seed=i, max_frames=10).rows
        assert torch.equal(again, undisturbed(endless, batch[i], SEEDED, seed=i, frames=10))


def test_an_interrupted_plan_is_made_again_without_losing_a_slot(
    endless: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = prompts(1)[0]
    engine = Engine(endless, pool_rows=300)
    request = engine.submit(prompt, sampling=SEEDED, seed=5, max_frames=10)
    for _ in range(3):
        engine.step()

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine._scheduler, "_admit", interrupt)  # the decode slot has been taken by now
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    monkeypatch.undo()
    engine.check()
    assert torch.equal(finish(engine, [request])[0], undisturbed(endless, prompt, SEEDED, frames=10))


def test_a_chunk_that_is_not_finite_is_not_cached_even_if_its_request_is_retracted(
    endless: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = prompts(1, rows=40)[0]
    engine = Engine(endless, pool_rows=200, chunk_rows=8)
    request = engine.submit(prompt, sampling=GREEDY, max_frames=5)
    hidden = endless.model.hidden
    monkeypatch.setattr(endless.model, "hidden", lambda *args: hidden(*args) * math.nan)
    engine.step()
    monkeypatch.undo()
    engine.retract(request)
    assert request.result().finish == "error" and engine.occupancy().cached == 0
    assert engine.generate(prompt, sampling=GREEDY, max_frames=5).finish == "length"
