"""The engine's face: prompts in, results, streams and callbacks out, and refusals at the door."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.requests import FRAMES, SEEDED, finish, patch_frames, prompts, undisturbed
from voxradix import GREEDY, Engine, VoxradixError
from voxradix.engine import Finish
from voxradix.models.moss_local import Frames
from voxradix.voice import Voice


def test_prompts_and_results_belong_to_the_caller(endless: Voice) -> None:
    prompt = prompts(1)[0]
    expected = undisturbed(endless, prompt, GREEDY, frames=5)
    for given in (prompt.clone(), prompt.to(torch.int32), prompt.numpy(), prompt.tolist(), prompt.t().contiguous().t()):
        request = (engine := Engine(endless, pool_rows=100)).submit(given, sampling=GREEDY, max_frames=5)  # type: ignore[arg-type]
        if isinstance(given, Tensor):
            given.zero_()
        rows = finish(engine, [request])[0]
        assert torch.equal(rows, expected)
        rows += 1  # not an inference tensor
        request.frames[0] += 1


def test_an_abort_frees_its_slots_and_caches_no_generated_row(endless: Voice) -> None:
    prompt = prompts(1)[0]
    engine = Engine(endless, pool_rows=300)
    request = engine.submit(prompt, sampling=SEEDED, seed=5, max_frames=30)
    waiting = engine.submit(prompt, sampling=SEEDED, seed=6, max_frames=30)
    engine.abort(waiting)
    while len(request.frames) < 7:
        engine.step()
    engine.abort(request)
    engine.abort(request)
    assert request.result().finish == "aborted" and len(request.result().rows) == 7
    assert waiting.result().finish == "aborted" and len(waiting.result().rows) == 0
    assert (engine.occupancy().held, engine.occupancy().cached) == (0, len(prompt))
    assert engine.step() is None
    engine.check()


def test_frames_stream_as_they_are_made_and_leaving_aborts(endless: Voice) -> None:
    prompt = prompts(1)[0]
    engine = Engine(endless, pool_rows=300)
    expected = undisturbed(endless, prompt, SEEDED)
    assert torch.equal(torch.stack(list(engine.stream(prompt, sampling=SEEDED, seed=5, max_frames=FRAMES))), expected)
    for index, row in enumerate(engine.stream(prompt, sampling=SEEDED, seed=5, max_frames=FRAMES)):
        assert torch.equal(row, expected[index])
        if index == 3:
            break
    assert engine.occupancy().held == 0
    assert engine.step() is None


def test_a_stream_whose_request_fails_says_so(endless: Voice, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(endless, pool_rows=300)
    stream = engine.stream(prompts(1)[0], sampling=GREEDY, max_frames=30)
    next(stream)
    patch_frames(endless, monkeypatch, lambda f: Frames(f.stop, f.codes, torch.zeros_like(f.finite)))
    with pytest.raises(RuntimeError, match=r"failed after 1 frames: .*not finite"):
        list(stream)


def test_callbacks_see_every_frame_once_and_as_their_own(endless: Voice) -> None:
    seen: list[Tensor] = []
    engine = Engine(endless, pool_rows=300)

    def keep(frame: Tensor) -> None:
        seen.append(frame.clone())
        frame.zero_()
        if len(seen) == 3:
            engine.generate(prompts(3)[2], sampling=GREEDY, max_frames=4)  # another consumer steps the engine

    results = engine.generate_batch(prompts(2), sampling=GREEDY, max_frames=5, on_frame=keep)
    expected = sorted(row.tolist() for result in results for row in result.rows)
    assert sorted(frame.tolist() for frame in seen) == expected
    assert all(result.first_frame_seconds is not None for result in results)
    for prompt, result in zip(prompts(2), results, strict=True):
        assert torch.equal(result.rows, undisturbed(endless, prompt, GREEDY, frames=5))


def test_streams_that_take_turns_lose_no_frame(endless: Voice) -> None:
    batch = prompts(2)
    engine = Engine(endless, pool_rows=300)
    streams = [engine.stream(p, sampling=SEEDED, seed=i, max_frames=8) for i, p in enumerate(batch)]
    made: list[list[Tensor]] = [[], []]
    for pair in zip_longest(*streams):
        for frames, frame in zip(made, pair, strict=True):
            frames.append(frame.clone())
            frame.zero_()
    for i, frames in enumerate(made):
        assert torch.equal(torch.stack(frames), undisturbed(endless, batch[i], SEEDED, seed=i, frames=8))


def test_a_stream_refuses_a_bad_prompt_at_once(endless: Voice) -> None:
    with pytest.raises(VoxradixError):
        Engine(endless, pool_rows=100).stream(torch.zeros(0, 13, dtype=torch.int64))


def test_an_error_in_a_callback_leaves_no_request_behind(endless: Voice) -> None:
    engine = Engine(endless, pool_rows=300)

    def fail(frame: Tensor) -> None:
        raise KeyError("caller")

    with pytest.raises(KeyError):
        engine.generate(prompts(1)[0], sampling=GREEDY, max_frames=5, on_frame=fail)
    assert engine.occupancy().held == 0 and engine.step() is None


def test_another_engines_request_is_refused(endless: Voice) -> None:
    mine, other = Engine(endless, pool_rows=100), Engine(endless, pool_rows=100)
    request = other.submit(prompts(1)[0], sampling=GREEDY, max_frames=3)
    for use in (mine.abort, lambda r: mine.run([r])):
        with pytest.raises(VoxradixError, match="another engine's"):
            use(request)
    assert other.run([request])[0].finish == "length"


def test_requests_are_served_in_order_of_arrival(endless: Voice) -> None:
    engine = Engine(endless, pool_rows=300, max_batch=1)
    requests = [engine.submit(p, sampling=GREEDY, max_frames=3) for p in prompts(3)]
    finish(engine, requests)
    ends = [request.finished for request in requests]
    assert ends == sorted(e for e in ends if e is not None)


def test_a_request_that_can_never_fit_is_refused_with_both_numbers(endless: Voice) -> None:
    engine = Engine(endless, pool_rows=50)
    with pytest.raises(VoxradixError, match=r"needs 60 rows \(20 of prompt and 40 frames\) but the pool holds 50"):
        engine.submit(prompts(1)[0], max_frames=40)
    with pytest.raises(VoxradixError, match="positions end at 1024"):
        Engine(endless, pool_rows=5000).submit(prompts(1)[0], max_frames=2000)
    assert engine.step() is None


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        (torch.zeros(0, 13, dtype=torch.int64), {}, "prompt has no rows"),
        (torch.zeros(3, 4, dtype=torch.int64), {}, r"shape \[3, 4\]"),
        (torch.full((3, 13), 65), {}, "row 0, column 1 holds 65"),
        (torch.zeros(3, 13), {}, "must be integers"),
        (torch.zeros(3, 13, dtype=torch.int64), {"max_frames": 0}, "max_frames is 0"),
        (torch.zeros(3, 13, dtype=torch.int64), {"seed": 2**63}, "64-bit"),
        (torch.zeros(3, 13, dtype=torch.int64), {"seed": 1.5}, "seed is 1.5; it must be a whole number"),
        (torch.zeros(3, 13, dtype=torch.int64), {"max_frames": 2.5}, "max_frames is 2.5"),
        (torch.zeros(3, 13, dtype=torch.int64), {"sampling": 3}, "must be a Sampling"),
        (torch.zeros(3, 13, dtype=torch.bool), {}, "must be integers"),
        (None, {}, "neither text nor rows"),
        ([[1, 2], [3]], {}, "neither text nor rows"),
        ([[2**70] * 13], {}, "neither text nor rows"),
        ("hello", {}, "no tokenizer.json"),
    ],
)
def test_a_prompt_that_cannot_be_used_is_refused(
    endless: Voice, prompt: Any, options: dict[str, Any], message: str
) -> None:
    engine = Engine(endless, pool_rows=100)
    with pytest.raises(VoxradixError, match=message):
        engine.generate(prompt, **{"max_frames": 5, **options})
    assert engine.step() is None and engine.occupancy().free == 100


def test_a_batch_with_one_bad_prompt_runs_none(endless: Voice) -> None:
    engine = Engine(endless, pool_rows=100)
    with pytest.raises(VoxradixError):
        engine.generate_batch([prompts(1)[0], torch.zeros(0, 13, dtype=torch.int64)], max_frames=3)
    assert engine.step() is None


@pytest.mark.parametrize("option", ["pool_rows", "max_batch", "chunk_rows"])
def test_an_engine_refuses_limits_below_one(endless: Voice, option: str) -> None:
    with pytest.raises(VoxradixError, match=f"{option} is 0"):
        Engine(endless, **dict[str, Any]({option: 0}))


def test_finish_values_are_the_public_strings() -> None:
    assert [finish.value for finish in Finish] == ["audio_end", "length", "aborted", "error"]
