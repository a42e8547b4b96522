"""No false match, and one identity for prompt and generated rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.requests import SEEDED, finish, prompts, undisturbed
from voxradix import GREEDY, Engine, keys
from voxradix.voice import Voice

KEYS: dict[str, Callable[[Tensor], Tensor]] = {
    "seed": keys.row_hash,
    "blake2b": keys.prompt_keys,
    "always_seven": lambda rows: torch.full_like(rows[:, 0], 7),
}


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
