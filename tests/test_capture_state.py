"""Capture: what one call bakes into the next is found, and what a check says of the engine's own code."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests import checkpoints
from tests.capturing import ALL, CPU, SIZES, I, X, branch, line_of, requests
from voxradix import keys
from voxradix.capture import Finding, Kind, Report, check, record
from voxradix.engine.chooser import BatchChooser
from voxradix.errors import VoxradixError
from voxradix.models.moss_local import MossLocal, load
from voxradix.sampling import Draw, DrawTable, uniforms


class Holder:
    """State of a callable."""

    def __init__(self) -> None:
        self.kept: list[Tensor] = []
        self.memo: dict[str, Tensor] = {}
        self.number: float | None = None
        self.calls = 0


def counts_calls(state: Holder, x: Tensor) -> Tensor:
    state.calls += 1
    return x * state.calls


def takes_turns(state: Holder, x: Tensor) -> Tensor:
    state.calls += 1
    return x + 1 if state.calls % 2 else x * 2


def scales_by_the_first(state: Holder, x: Tensor) -> Tensor:
    return x / state.memo.setdefault("scale", x.abs().max())


def scales_by_the_first_number(state: Holder, x: Tensor) -> Tensor:
    if state.number is None:
        state.number = float(x.abs().max())
    return x / state.number


def keeps_the_first_input(state: Holder, x: Tensor) -> Tensor:
    return state.memo.setdefault("x", x) * 2


def makes_a_new_constant(state: Holder, x: Tensor) -> Tensor:
    state.calls += 1
    return x * torch.tensor(float(state.calls))


def draws_from_numpy(state: Holder, x: Tensor, generator: np.random.Generator = np.random.default_rng(3)) -> Tensor:  # noqa: B008
    return x * generator.random()


@pytest.mark.parametrize(
    "fn",
    [
        counts_calls,
        takes_turns,
        scales_by_the_first,
        scales_by_the_first_number,
        keeps_the_first_input,
        makes_a_new_constant,
        draws_from_numpy,
    ],
)
def test_state_of_an_earlier_call_is_found_where_it_is_used(fn: Callable[[Holder, Tensor], Tensor]) -> None:
    state = Holder()
    stale = [finding for finding in check(lambda x: fn(state, x), X).findings if finding.kind is Kind.STALE]
    assert stale
    start = fn.__code__.co_firstlineno
    assert all(start < line_of(finding) < start + 4 for finding in stale)


def test_an_input_shadowed_by_an_old_one_is_found() -> None:
    old = X.clone()
    (finding,) = check(lambda x: old * 2, X).findings
    assert finding.kind is Kind.STALE and "input 0 is never read" in finding.detail


def test_a_value_baked_in_by_control_flow_is_found_on_rewritten_inputs() -> None:
    stale = [f for f in check(branch, X, I, others=[-X, I]).findings if f.kind is Kind.STALE]
    assert [f.operator for f in stale] == ["aten.mul.Tensor"]
    assert "rewritten" in stale[0].detail


def appends(state: Holder, x: Tensor) -> Tensor:
    doubled = x * 2
    state.kept.append(doubled[1:])
    return doubled + 1


def remembers(state: Holder, x: Tensor) -> Tensor:
    state.memo["last"] = x * 2
    return state.memo["last"] + 1


@pytest.mark.parametrize("fn", [appends, remembers])
def test_an_allocation_that_outlives_the_call_is_found(fn: Callable[[Holder, Tensor], Tensor]) -> None:
    state = Holder()
    outlives = [f for f in check(lambda x: fn(state, x), X).findings if f.kind is Kind.OUTLIVES]
    assert [f.operator for f in outlives] == ["aten.mul.Tensor"]
    assert "x * 2" in outlives[0].where


def test_the_example_itself_behind_a_closure_is_stale_even_if_the_input_is_read_too() -> None:
    stale = [f for f in check(lambda x: X * 2 + x * 0, X).findings if f.kind is Kind.STALE]
    assert len(stale) == 1 and "the example of input 0" in stale[0].detail
    table = torch.randn(4, 8)
    assert check(lambda row: row + table.sum(0), table[0]).ok, "a table an example was cut from is no example"


HISTORY: list[Tensor] = []


def kept_whole(x: Tensor) -> Tensor:
    y = x * 3
    HISTORY.append(y)
    return y


def kept_in_part(x: Tensor) -> Tensor:
    y = x * 3
    HISTORY.append(y[0])
    return y


def kept_input(x: Tensor) -> Tensor:
    HISTORY.append(x)
    return x * 2


@pytest.mark.parametrize(
    ("fn", "operator"), [(kept_whole, "aten.mul.Tensor"), (kept_in_part, "aten.mul.Tensor"), (kept_input, "input")]
)
def test_a_result_or_input_that_is_also_kept_elsewhere_is_found(fn: Callable[[Tensor], Tensor], operator: str) -> None:
    HISTORY.clear()
    outlives = [f for f in check(fn, X).findings if f.kind is Kind.OUTLIVES]
    assert [f.operator for f in outlives] == [operator]


@pytest.mark.parametrize("fn", [lambda x: x * 3, lambda x: (x, x * 2), lambda x: {"a": [x[0], x * 2]}, lambda x: x])
def test_results_that_are_only_returned_outlive_nothing(fn: Callable[[Tensor], object]) -> None:
    assert not [f for f in check(fn, X).findings if f.kind is Kind.OUTLIVES]


def test_what_only_a_cycle_holds_or_the_result_returns_does_not_outlive() -> None:
    def cycle(x: Tensor) -> dict[str, list[Tensor]]:
        loop: list[object] = [x * 2]
        loop.append(loop)
        return {"rows": [x + 1, (x * 3)[1:]]}

    assert check(cycle, X).ok


def test_a_table_built_once_and_a_buffer_written_in_place_pass() -> None:
    state, cache, step = Holder(), torch.zeros(8, 4), torch.tensor(1.0)

    def fn(x: Tensor, i: Tensor) -> Tensor:
        table = state.memo.setdefault("table", torch.arange(4, device=x.device))
        cache[i] = x
        step.add_(1)
        return cache.sum(0) * step + table

    report = check(fn, X, I)
    assert report.ok, str(report)
    assert set(report.passes) == ALL - {"cuda"}  # where the buffers would lie, nothing says


def test_a_check_leaves_tensors_and_random_states_as_they_were() -> None:
    cache = torch.zeros(8, 4)
    before = random.getstate(), torch.get_rng_state(), str(np.random.get_state())

    def fn(x: Tensor, i: Tensor) -> Tensor:
        cache[i] = x * random.random() * np.random.rand()
        return cache * torch.rand_like(cache)

    check(fn, X, I)
    assert not cache.any()
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert str(np.random.get_state()) == before[2]


def test_a_report_reads_as_lines() -> None:
    report = Report((Finding(Kind.HOST_READ, "aten.x", "a.py:3: f(x)", "it waits"),), ("cpu",))
    assert str(report) == "1 would break capture (passes: cpu)\na.py:3: f(x)\n    host read, aten.x: it waits"
    assert str(check(lambda x: x + 1, X)).startswith("nothing would break capture (passes: ")


def test_a_check_refuses_other_inputs_of_another_shape() -> None:
    with pytest.raises(VoxradixError):
        check(lambda x: x, X, others=[X[:2]])
    with pytest.raises(VoxradixError):
        check(lambda x: x, X, others=[])
    with pytest.raises(VoxradixError):
        check(lambda x: x, torch.empty(3, device="meta"))


@pytest.mark.parametrize("value", [3, None, [X], X.to_sparse()])
def test_inputs_that_are_no_dense_tensors_are_refused(value: Any) -> None:
    for refuses in (
        lambda: check(lambda x: x, value),
        lambda: check(lambda x: x, X, others=[value]),
        lambda: record(lambda x: x, value),
        lambda: record(lambda x: x * 2, X).replay(value),
    ):
        with pytest.raises(VoxradixError, match="input 0"):
            refuses()


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16, torch.uint16, torch.complex64, torch.bool])
def test_inputs_of_any_dtype_are_varied(dtype: torch.dtype) -> None:
    report = check(lambda x: x.clone(), torch.arange(4).to(dtype))
    assert report.ok and "rewritten" in report.passes, str(report)


@pytest.mark.parametrize(
    ("fn", "example"),
    [
        (lambda a: a @ a.t(), torch.randn(8, 4).t()),
        (lambda a: a.sum(-1), torch.randn(64, 33).t()),
        (lambda a: a.sum(-1), torch.randn(33, 1).expand(33, 64)),
    ],
)
def test_other_inputs_lie_in_memory_as_the_examples_do(fn: Callable[[Tensor], Tensor], example: Tensor) -> None:
    assert check(fn, example).ok
    assert check(fn, example, others=[(example * 3).contiguous()]).ok


@pytest.mark.parametrize("ids", [[[7, 90]], [7], [0], [5, 5], 3])
def test_inputs_of_one_row_are_varied(ids: Any) -> None:
    report = check(lambda ids: ids * 2, torch.tensor(ids))
    assert report.ok and "rewritten" in report.passes, str(report)


def test_a_check_that_could_not_rewrite_its_inputs_is_not_ok() -> None:
    ids = torch.tensor([[7, 90]])

    def looks_up(ids: Tensor) -> Tensor:
        return ids.new_zeros(8)[ids[:, 0]] + ids.new_zeros(100)[ids[:, 1]]

    report = check(looks_up, ids)
    assert not report.findings and not report.ok
    assert "no rewritten pass: on other values it raises IndexError" in str(report)
    assert check(looks_up, ids, others=[torch.tensor([[3, 20]])]).ok
    assert check(lambda ids, x: looks_up(ids) * x[:, 0], ids, X[:1]).ok  # x alone is varied then
    report = check(looks_up, ids, others=[ids])
    assert not report.ok and "could not be given other values" in str(report)


# the engine's own code

ROWS = checkpoints.prompt(SIZES, 4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MossLocal:
    return load(checkpoints.write(tmp_path_factory.mktemp("capture"), SIZES))


def test_the_host_path_of_the_prompt_key_fails_at_its_line() -> None:
    report = check(keys.prompt_keys, ROWS)
    read = report.findings[0]
    assert (read.kind, read.operator) == (Kind.HOST_READ, "Tensor.tolist")
    assert "keys/prompt.py" in read.where and "rows.tolist()" in read.where
    assert any(f.kind is Kind.STALE and "torch.tensor(keys" in f.where for f in report.findings)


def test_the_step_path_of_keys_and_packed_rows_passes(model: MossLocal) -> None:
    layout = model.layout

    def step(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        packed = keys.pack_rows_unchecked(rows, layout)
        return keys.seed_keys(rows, end_id=layout.end_id), packed, keys.unpack_rows(packed, layout)

    report = check(step, ROWS)
    assert report.ok, str(report)
    assert set(report.passes) == ALL
    assert check(lambda rows: keys.pack_rows(rows, layout), ROWS).ok  # it reads rows on the CPU alone


def test_seeded_draws_pass() -> None:
    seeds, steps = torch.arange(4), torch.arange(4) * 7
    assert check(lambda seeds, steps: uniforms(seeds, steps, 13), seeds, steps).ok
    draws = [Draw(), Draw(temperature=0.0), Draw(1.7, 0.8, 25), Draw(top_k=3)]
    table = DrawTable.of(draws, 64, CPU)
    logits = torch.randn(4, 64, generator=torch.Generator().manual_seed(2))
    report = check(table.draw, logits, uniforms(seeds, steps, 1)[:, 0])
    assert report.ok, str(report)


def test_the_frame_decoder_passes_with_draws_laid_out_before(model: MossLocal) -> None:
    hidden = torch.randn(4, model.config.local.hidden, generator=torch.Generator().manual_seed(3))
    chooser = BatchChooser.of(requests(model), model)
    report = check(lambda hidden: model.frames(hidden, chooser), hidden)
    assert report.ok, str(report)


def test_draws_laid_out_in_the_step_are_pageable_copies_and_nothing_else(model: MossLocal) -> None:
    hidden = torch.randn(4, model.config.local.hidden, generator=torch.Generator().manual_seed(3))
    batch = requests(model)
    report = check(lambda hidden: model.frames(hidden, BatchChooser.of(batch, model)), hidden)
    assert {finding.kind for finding in report.findings} == {Kind.PAGEABLE_COPY}
    assert {finding.operator for finding in report.findings} == {"torch.tensor"}
    sources = " ".join(finding.where for finding in report.findings)
    for source in ("torch.tensor(values", "torch.tensor([r.seed", "torch.tensor([r.next_draw"):
        assert source in sources


def test_a_step_over_tensors_of_its_own_is_judged_by_the_cpu_pass() -> None:
    weight, device = torch.ones(4), CPU

    def fn(x: Tensor) -> Tensor:  # x takes no part: nothing here is known to lie on cuda
        return (weight + torch.tensor([1.0, 2, 3, 4], device=device)).cpu()

    report = check(fn, torch.zeros(1))
    assert [finding.kind for finding in report.findings] == [Kind.PAGEABLE_COPY, Kind.HOST_READ]
    assert "cuda" not in report.passes
    table = torch.arange(4.0)
    (finding,) = check(lambda x: x + table.to(x.device), X).findings
    assert (finding.kind, finding.operator) == (Kind.PAGEABLE_COPY, "Tensor.to")
