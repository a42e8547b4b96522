"""The engine's promises: one seed, one waveform; no false match; nothing lost."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import pytest
import torch
from torch import Tensor

from tests import checkpoints
from tests.conftest import SIZES
from voxradix import GREEDY, Draw, Engine, Sampling, VoxradixError, keys
from voxradix.engine import Finish, Request, State
from voxradix.models.moss_local import Frames
from voxradix.voice import Voice

FRAMES = 40
NEVER = Draw(temperature=0.0)  # greedy never stops on the endless checkpoint
SEEDED = Sampling(stop=NEVER, codes=Draw(temperature=1.7, top_p=0.8, top_k=25))
PENALISED = Sampling(stop=NEVER, codes=Draw(), repetition_penalty=1.3)
WAYS = pytest.mark.parametrize("sampling", [GREEDY, SEEDED, PENALISED], ids=["greedy", "seeded", "penalised"])
KEYS: dict[str, Callable[[Tensor], Tensor]] = {
    "seed": keys.row_hash,
    "blake2b": keys.prompt_keys,
    "always_seven": lambda rows: torch.full_like(rows[:, 0], 7),
}


def prompts(count: int, rows: int = 20) -> list[Tensor]:
    return [checkpoints.prompt(SIZES, rows + 3 * i, seed=i) for i in range(count)]


def undisturbed(voice: Voice, prompt: Tensor, sampling: Sampling, seed: int = 5, frames: int = FRAMES) -> Tensor:
    """The reference: alone, cold, in one prefill, without a cache."""
    engine = Engine(voice, pool_rows=200, cache=False)
    return engine.generate(prompt, sampling=sampling, seed=seed, max_frames=frames).rows


def finish(engine: Engine, requests: list[Request]) -> list[Tensor]:
    """Run to the end, checking after every step that no row is lost."""
    while any(request.state is not State.FINISHED for request in requests):
        assert engine.step() is not None
        engine.check()
    return [request.result().rows for request in requests]


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


@pytest.mark.parametrize("name", list(KEYS))
def test_no_false_match_whatever_the_key(endless: Voice, name: str) -> None:
    """Twenty prompts that differ in one row, one after the other in one cache; then all of them again."""
    base = prompts(1)[0]
    variants = [base.clone() for _ in range(20)]
    for i, variant in enumerate(variants):
        variant[i, 0] = (variant[i, 0] + 1) % 100
    engine = Engine(endless, pool_rows=2000, row_hash=KEYS[name])
    for variant in [*variants, *variants]:
        made = engine.generate(variant, sampling=SEEDED, seed=5, max_frames=6).rows
        assert torch.equal(made, undisturbed(endless, variant, SEEDED, frames=6))
        engine.check()


def test_a_clash_of_generated_rows_corrupts_nothing(endless: Voice) -> None:
    """The fault the seed's host has: B is retracted, A's clashing tail is cached, B resumes."""
    prompt = prompts(1)[0]
    engine = Engine(endless, pool_rows=300, row_hash=KEYS["always_seven"])
    b = engine.submit(prompt, sampling=SEEDED, seed=1, max_frames=12)
    while len(b.frames) < 6:
        engine.step()
    engine.retract(b)
    a = engine.generate(prompt, sampling=SEEDED, seed=2, max_frames=12)
    assert torch.equal(finish(engine, [b])[0], undisturbed(endless, prompt, SEEDED, seed=1, frames=12))
    assert torch.equal(a.rows, undisturbed(endless, prompt, SEEDED, seed=2, frames=12))


@pytest.mark.parametrize("column", [0, 1, 12])
def test_rows_that_differ_in_one_column_share_no_position(endless: Voice, column: int) -> None:
    prompt = prompts(1)[0]
    other = prompt.clone()
    other[-2, column] ^= 1
    engine = Engine(endless, pool_rows=300)
    engine.generate(prompt, sampling=GREEDY, max_frames=2)
    assert engine.generate(other, sampling=GREEDY, max_frames=2).reused_rows == len(prompt) - 2


def test_one_row_one_identity_generated_rows_hit_as_a_prompt(endless: Voice) -> None:
    prompt = prompts(1)[0]
    engine = Engine(endless, pool_rows=300)
    made = engine.generate(prompt, sampling=SEEDED, seed=5, max_frames=20).rows
    longer = torch.cat((prompt, made[:15]))
    again = engine.generate(longer, sampling=GREEDY, max_frames=3)
    assert again.reused_rows == len(longer) - 1
    assert torch.equal(again.rows, undisturbed(endless, longer, GREEDY, frames=3))


def test_twins_in_one_step_share_their_rows_afterwards(endless: Voice) -> None:
    prompt = prompts(1)[0]
    engine = Engine(endless, pool_rows=300)
    twins = [engine.submit(prompt, sampling=GREEDY, max_frames=10) for _ in range(2)]
    a, b = finish(engine, twins)
    assert torch.equal(a, b)
    assert engine.occupancy().held == 0 and engine.occupancy().cached == len(prompt) + 9


def test_a_later_request_hits_the_prompt_of_one_that_still_runs(endless: Voice) -> None:
    prompt = prompts(1)[0]
    engine = Engine(endless, pool_rows=300)
    first = engine.submit(prompt, sampling=SEEDED, seed=1, max_frames=30)
    engine.step()
    second = engine.submit(prompt, sampling=SEEDED, seed=2, max_frames=30)
    finish(engine, [first, second])
    assert second.result().reused_rows == len(prompt) - 1


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


def patch_frames(voice: Voice, monkeypatch: pytest.MonkeyPatch, change: Callable[[Frames], Frames]) -> None:
    decoder = voice.model.frames
    monkeypatch.setattr(voice.model, "frames", lambda hidden, chooser: change(decoder(hidden, chooser)))


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
