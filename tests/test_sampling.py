"""Draws: the rules of the model card, and nothing but (seed, step, channel) in them."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from voxradix.errors import VoxradixError
from voxradix.sampling import Draw, DrawTable, Sampling, penalise, splitmix64, uniforms

CPU = torch.device("cpu")
GOLDEN = -0x61C8864680B583EB


def possible(logits: list[float], draw: Draw) -> set[int]:
    """The values a draw can give, by trying many uniforms."""
    table = DrawTable.of([draw], len(logits), CPU)
    points = torch.linspace(0, 1 - 2**-23, 2001)
    return {int(table.draw(torch.tensor([logits]), u[None])[0]) for u in points}


def test_the_generator_gives_the_published_splitmix64_values() -> None:
    states = torch.tensor(1234567) + torch.arange(1, 6) * GOLDEN
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert [value % 2**64 for value in splitmix64(states).tolist()] == expected


def test_a_uniform_depends_on_its_seed_step_and_channel_alone() -> None:
    seeds, steps = torch.tensor([3, -9, 2**62, 3]), torch.tensor([0, 5, 70, 1])
    together = uniforms(seeds, steps, 13)
    for i in range(4):
        assert torch.equal(uniforms(seeds[i : i + 1], steps[i : i + 1], 13)[0], together[i])
    flat = torch.cat([uniforms(torch.tensor([8]), torch.tensor([step]), 13)[0] for step in range(2)])
    assert torch.equal(flat[:20], torch.cat([uniforms(torch.tensor([8]), torch.tensor([k]), 1)[0] for k in range(20)]))


def test_uniforms_are_uniform_and_unrelated_across_seeds() -> None:
    values = uniforms(torch.arange(2000), torch.zeros(2000, dtype=torch.int64), 13)
    assert values.min() >= 0 and values.max() < 1
    assert abs(float(values.mean()) - 0.5) < 0.01
    assert abs(float(values.var()) - 1 / 12) < 0.003
    assert float(torch.corrcoef(values.T).triu(1).abs().max()) < 0.1
    assert abs(float((values[1:] * values[:-1]).mean()) - 0.25) < 0.01


def test_top_k_keeps_ties_with_the_last() -> None:
    assert possible([3.0, 1.0, 1.0, 1.0, 0.0], Draw(top_k=2)) == {0, 1, 2, 3}
    assert possible([3.0, 2.0, 1.0], Draw(top_k=1)) == {0}
    assert possible([0.0, 0.0, 0.0], Draw(top_k=0)) == {0, 1, 2}
    assert possible([1.0, 2.0], Draw(top_k=50)) == {0, 1}


def test_top_p_keeps_the_value_that_crosses_it() -> None:
    logits = [math.log(p) for p in (0.4, 0.3, 0.2, 0.1)]
    assert possible(logits, Draw(top_p=0.3)) == {0}
    assert possible(logits, Draw(top_p=0.5)) == {0, 1}
    assert possible(logits, Draw(top_p=0.75)) == {0, 1, 2}
    assert possible(logits, Draw(top_p=1.0)) == {0, 1, 2, 3}


def test_top_p_works_on_what_top_k_left() -> None:
    logits = [math.log(p) for p in (0.4, 0.3, 0.2, 0.1)]
    assert possible(logits, Draw(top_k=2, top_p=0.56)) == {0}  # 0.4 / 0.7 = 0.571
    assert possible(logits, Draw(top_k=2, top_p=0.58)) == {0, 1}


def test_extreme_settings_and_logits_still_take_the_most_likely_value() -> None:
    for draw in (Draw(temperature=1e-6), Draw(top_p=1e-6)):
        assert possible([1.0, 3.0, 2.0], draw) == {1}
    assert possible([3e38, 1e38, -3e38], Draw(temperature=0.5)) == {0}
    assert possible([-math.inf, 0.0, -math.inf], Draw()) == {1}


def test_temperature_comes_before_top_p() -> None:
    logits = [2.0, 1.0, 0.0]
    assert possible(logits, Draw(temperature=0.25, top_p=0.9)) == {0}
    assert possible(logits, Draw(temperature=4.0, top_p=0.9)) == {0, 1, 2}


def test_draws_follow_the_distribution() -> None:
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    count = 20_000
    table = DrawTable.of([Draw()] * count, 4, CPU)
    u = uniforms(torch.arange(count), torch.zeros(count, dtype=torch.int64), 1)[:, 0]
    drawn = table.draw(probabilities.log().expand(count, -1).contiguous(), u)
    found = torch.bincount(drawn, minlength=4) / count
    assert float((found - probabilities).abs().max()) < 0.015


def test_greedy_takes_the_most_likely_value() -> None:
    table = DrawTable.of([Draw(temperature=0.0), Draw(temperature=0.0)], 3, CPU)
    assert table.draw(torch.tensor([[0.0, 2.0, 1.0], [5.0, 2.0, 1.0]]), torch.rand(2)).tolist() == [1, 0]


draws = st.builds(Draw, st.sampled_from([0.0, 0.5, 1.7]), st.sampled_from([0.3, 0.8, 1.0]), st.integers(0, 70))


@given(st.lists(draws, min_size=1, max_size=9), st.integers(0, 2**31))
def test_a_draw_is_the_same_alone_and_in_any_batch(batch: list[Draw], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(batch), 65, generator=generator) * 3
    u = torch.rand(len(batch), generator=generator)
    together = DrawTable.of(batch, 65, CPU).draw(logits, u)
    for i, draw in enumerate(batch):
        alone: Tensor = DrawTable.of([draw], 65, CPU).draw(logits[i : i + 1], u[i : i + 1])
        assert alone[0] == together[i]


@given(st.lists(draws, min_size=1, max_size=9), st.integers(0, 2**31))
def test_a_draw_is_the_same_however_wide_its_table(batch: list[Draw], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(len(batch), 65, generator=generator) * 3).round(decimals=1)  # with ties
    u = torch.rand(len(batch), generator=generator)
    table, rows = DrawTable.of(batch, 65, CPU), torch.arange(len(batch))
    drawn = table.draw(logits, u)
    for widest in range(max(table.widest, 1), 66):
        assert torch.equal(table.at(rows, widest).draw(logits, u), drawn), widest


def test_the_repetition_penalty_divides_above_zero_and_multiplies_below() -> None:
    logits = torch.tensor([[2.0, -2.0, 2.0, -2.0]])
    seen = torch.tensor([[True, True, False, False]])
    assert penalise(logits, seen, torch.tensor([[2.0]])).tolist() == [[1.0, -4.0, 2.0, -2.0]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Draw(temperature=-1.0), "temperature, unless 0, is -1.0"),
        (lambda: Draw(temperature=1e-50), "temperature, unless 0, is 1e-50"),
        (lambda: Draw(temperature=math.nan), "temperature, unless 0, is nan"),
        (lambda: Draw(temperature="hot"), "temperature, unless 0, is 'hot'"),  # type: ignore[arg-type]
        (lambda: Draw(top_p=0.0), "top_p is 0.0; it must be a number from 1e-06 to 1.0"),
        (lambda: Draw(top_p=1.5), "top_p is 1.5"),
        (lambda: Draw(top_k=-1), "top_k is -1"),
        (lambda: Draw(top_k=2.5), "top_k is 2.5; it must be a whole number"),  # type: ignore[arg-type]
        (lambda: Sampling(codes=1.0), "codes is 1.0; it must be a Draw"),  # type: ignore[arg-type]
        (lambda: Sampling(repetition_penalty=0.0), "repetition penalty is 0.0"),
        (lambda: Sampling(repetition_penalty=math.inf), "repetition penalty is inf"),
    ],
)
def test_values_out_of_range_are_refused_by_name(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(VoxradixError, match=message):
        make()
