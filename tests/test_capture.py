"""Capture: everything that would break a CUDA graph is named here, nothing else is, and a replay is the call."""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests import checkpoints
from voxradix import keys
from voxradix.cache import Chain
from voxradix.capture import Finding, Kind, Report, check, record
from voxradix.engine.request import Request
from voxradix.engine.runner import BatchChooser
from voxradix.errors import VoxradixError
from voxradix.models.moss_local import MossLocal, Placement, load
from voxradix.models.moss_local.linear import Linear
from voxradix.sampling import Draw, DrawTable, Sampling, uniforms

X = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
I = torch.tensor([0, 2, 1, 3])  # noqa: E741 - the indices
CPU = torch.device("cpu")
SIZES = checkpoints.Sizes(codebooks=4)
ALL = {"cpu", "cuda", "repeat", "rewritten"}
Callable2 = Callable[[Tensor, Tensor], object]


def branch(x: Tensor, i: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x * 3


def prints(x: Tensor, i: Tensor) -> Tensor:
    print(x)
    return x


def assigns_by_mask(x: Tensor, i: Tensor) -> Tensor:
    x[x > 0] = x[x > 0] * 2
    return x


def reads_in_inference_mode(x: Tensor, i: Tensor) -> Tensor:
    with torch.inference_mode():
        return x * x.sum().item()


def copies_to_pinned_and_waits(x: Tensor, i: Tensor) -> Tensor:
    return torch.empty(4, 4, pin_memory=True).copy_(x)


HOST_READS: dict[str, tuple[Callable2, str]] = {
    "item": (lambda x, i: x * x[0, 0].item(), "_local_scalar_dense"),
    "bool": (branch, "_local_scalar_dense"),
    "int": (lambda x, i: x * int(i[1]), "_local_scalar_dense"),
    "float": (lambda x, i: x * float(x[0, 0]), "_local_scalar_dense"),
    "index in a range": (lambda x, i: [x * k for k in range(i[1])], "_local_scalar_dense"),
    "a slice by a tensor": (lambda x, i: x[: i[1]], "_local_scalar_dense"),
    "a number as index": (lambda x, i: x[i[1]], "_local_scalar_dense"),
    "membership": (lambda x, i: x if 3 in i else x * 2, "_local_scalar_dense"),
    "is_nonzero": (lambda x, i: x if x[0, 0].is_nonzero() else i, "_local_scalar_dense"),
    "inference mode": (reads_in_inference_mode, "_local_scalar_dense"),
    "a tensor of numbers of a tensor": (lambda x, i: torch.tensor([x.sum(), 2.0], device=x.device), "torch.tensor"),
    "one_hot of unknown width": (lambda x, i: F.one_hot(i), "_local_scalar_dense"),
    "tolist": (lambda x, i: x * x.tolist()[0][0], "Tensor.tolist"),
    "numpy": (lambda x, i: x * float(x.numpy().sum()), "Tensor.numpy"),
    "asarray": (lambda x, i: x * float(np.asarray(x)[0, 0]), "Tensor.__array__"),
    "print": (prints, "Tensor.__repr__"),
    "format": (lambda x, i: (x, f"{x[0, 0]:.3f}"), "Tensor.__format__"),
    "equal": (lambda x, i: x if torch.equal(x, x * 1) else i, "aten.equal"),
    "allclose": (lambda x, i: x if torch.allclose(x, x * 1) else i, "aten.allclose"),
    "multinomial": (lambda x, i: x.softmax(-1).multinomial(1), "aten.multinomial"),
    "inverse": (lambda x, i: torch.linalg.inv(x + 9 * torch.eye(4, device=x.device)), "_linalg_check_errors"),
    "to_sparse": (lambda x, i: x.to_sparse(), "aten._to_sparse"),
    "cpu": (lambda x, i: x.cpu() * 2, "Tensor.cpu"),
    "to the host": (lambda x, i: x.to("cpu"), "Tensor.to"),
    "to the host's device": (lambda x, i: x.to(torch.device("cpu")), "Tensor.to"),
    "to the host without blocking": (lambda x, i: x.to("cpu", non_blocking=True), "Tensor.to"),
    "to pinned memory, waiting": (copies_to_pinned_and_waits, "aten.copy_"),
}

DYNAMIC_SHAPES: dict[str, tuple[Callable2, str]] = {
    "nonzero": (lambda x, i: x.nonzero(), "aten.nonzero"),
    "where of one argument": (lambda x, i: torch.where(x > 0)[0], "aten.nonzero"),
    "masked_select": (lambda x, i: x.masked_select(x > 0), "aten.masked_select"),
    "a mask as index": (lambda x, i: x[x > 0], "aten.index.Tensor"),
    "a mask as target": (assigns_by_mask, "aten.index_put_"),
    "unique": (lambda x, i: i.unique(), "aten._unique2"),
    "repeats of a tensor": (lambda x, i: x.repeat_interleave(i, dim=0), "aten.repeat_interleave"),
    "bincount": (lambda x, i: i.bincount(), "aten.bincount"),
}

COPIES: dict[str, tuple[Callable2, str]] = {
    "a list to the input's device": (lambda x, i: x + torch.tensor([1.0, 2, 3, 4]).to(x.device), "Tensor.to"),
    "a list to cuda": (lambda x, i: x + torch.tensor([1.0, 2, 3, 4]).to("cuda"), "Tensor.to"),
    "a list by cuda()": (lambda x, i: x + torch.tensor([1.0, 2, 3, 4]).cuda(), "Tensor.cuda"),
    "a list to another tensor": (lambda x, i: x + torch.tensor([1, 2, 3, 4]).to(x), "Tensor.to"),
    "a list on the device": (lambda x, i: x + torch.tensor([1.0, 2, 3, 4], device=x.device), "torch.tensor"),
    "a number on the device": (lambda x, i: x * torch.tensor(2.0, device=x.device), "torch.tensor"),
    "as_tensor": (lambda x, i: x + torch.as_tensor([1.0, 2, 3, 4], device=x.device), "torch.as_tensor"),
    "new_tensor": (lambda x, i: x + x.new_tensor([1.0, 2, 3, 4]), "torch.new_tensor"),
    "from numpy": (lambda x, i: x + torch.from_numpy(np.ones(4, dtype=np.float32)).to(x.device), "Tensor.to"),
    "zeros moved": (lambda x, i: x + torch.zeros(4).to(x.device, non_blocking=True), "Tensor.to"),
    "copy_ from the host": (lambda x, i: x.copy_(torch.zeros(4, 4)), "aten.copy_"),
    "a list as index": (lambda x, i: x[[0, 2]], "aten.lift_fresh"),
    "a host tensor as index": (lambda x, i: x[torch.tensor([0, 2])], "aten.index"),
    "pinned, waiting": (lambda x, i: x + torch.zeros(4).pin_memory().to(x.device), "Tensor.to"),
}

OWN_RANDOM = random.Random(3)
OWN_GENERATOR = torch.Generator().manual_seed(3)

HOST_RANDOM: dict[str, tuple[Callable2, str]] = {
    "rand on the host": (lambda x, i: x + torch.rand(4).to(x.device), "aten.rand"),
    "uniform_ on the host": (lambda x, i: x + torch.zeros(4).uniform_().to(x.device), "aten.uniform_"),
    "a generator of the host": (lambda x, i: x + torch.rand(4, device=x.device, generator=OWN_GENERATOR), "aten.rand"),
    "random": (lambda x, i: x * random.random(), "random.random"),
    "random.choice": (lambda x, i: x * random.choice([1, 2, 3]), "random."),
    "a Random of its own": (lambda x, i: x * OWN_RANDOM.random(), "random.random"),
    "os.urandom": (lambda x, i: x * os.urandom(1)[0], "os.urandom"),
    "numpy's global state": (lambda x, i: x * np.random.rand(), "numpy.random"),
}

HAZARDS = [
    pytest.param(kind, fn, operator, id=f"{kind}: {name}")
    for kind, cases in (
        (Kind.HOST_READ, HOST_READS),
        (Kind.DYNAMIC_SHAPE, DYNAMIC_SHAPES),
        (Kind.PAGEABLE_COPY, COPIES),
        (Kind.HOST_RANDOM, HOST_RANDOM),
        (Kind.MISPLACED, {"zeros": (lambda x, i: x + torch.zeros(4), "aten.add")}),
        (Kind.MISPLACED, {"a list": (lambda x, i: x + torch.tensor([1.0, 2, 3, 4]), "aten.add")}),
        (Kind.RAISES, {"synchronize": (lambda x, i: torch.cuda.synchronize(), "AssertionError")}),
        (Kind.RAISES, {"shapes": (lambda x, i: x @ x[:, :2].T, "RuntimeError")}),
    )
    for name, (fn, operator) in cases.items()
]


def line_of(finding: Finding) -> int:
    return int(finding.where.split("test_capture.py:")[1].split(":")[0])


@pytest.mark.parametrize(("kind", "fn", "operator"), HAZARDS)
def test_a_hazard_is_found_and_named_with_its_operator_and_line(kind: Kind, fn: Callable2, operator: str) -> None:
    found = [finding for finding in check(fn, X, I).findings if finding.kind is kind]
    assert any(operator in finding.operator for finding in found)
    start = fn.__code__.co_firstlineno
    assert all(start <= line_of(finding) < start + 4 for finding in found)


def test_a_finding_names_the_very_line() -> None:
    (finding,) = (f for f in check(branch, X, I).findings if f.kind is Kind.HOST_READ)
    line = branch.__code__.co_firstlineno + 1
    assert finding.where.endswith(f"test_capture.py:{line}: return x * 2 if x.sum() > 0 else x * 3")


def test_findings_go_on_after_the_first() -> None:
    def several(x: Tensor, i: Tensor) -> Tensor:
        first = x.tolist()[0][0]
        chosen = x[x > first - 1]
        if chosen.sum() != 0:
            chosen = chosen + torch.tensor(1.0, device=x.device)
        return chosen * random.random() * int(chosen.nonzero().shape[0])

    kinds = [finding.kind for finding in check(several, X, I).findings]
    for kind in (Kind.HOST_READ, Kind.DYNAMIC_SHAPE, Kind.PAGEABLE_COPY, Kind.HOST_RANDOM):
        assert kind in kinds
    assert kinds.count(Kind.HOST_READ) == 2


def fills_by_mask(x: Tensor, i: Tensor) -> Tensor:
    x[x > 0] = 0.0
    x[0] = 5
    x[1, 2] = 7.0
    x[2] = x[3]
    x[:, i] = x * 2
    return x


def accumulates(x: Tensor, i: Tensor) -> Tensor:
    total = torch.zeros(4, device=x.device)
    for row in x:
        total += row * 0.5
    return total


def under_a_device(x: Tensor, i: Tensor) -> Tensor:
    with torch.device(x.device):
        return x + torch.ones(4) * torch.arange(4)


def asks_about_shapes(x: Tensor, i: Tensor) -> Tensor:
    assert x.dim() == 2 and x.numel() > 0 and len(x) == x.shape[0] and x.is_contiguous() and x.device == i.device
    return x[: x.shape[0] // 2] if x.is_floating_point() else x


def branches_on_the_device(x: Tensor, i: Tensor) -> Tensor:
    if x.device.type == "cpu" and x.max() > 100:
        raise ValueError("too large")
    return x * 2


def through_pinned_memory(x: Tensor, i: Tensor) -> Tensor:
    torch.empty(4, 4, pin_memory=True).copy_(x, non_blocking=True)
    return x + torch.tensor([1.0, 2, 3, 4]).pin_memory().to(x.device, non_blocking=True)


def host_work(x: Tensor, i: Tensor) -> Tensor:
    steps = torch.tensor([2, 3]).tolist()  # made and read on the host: the device takes no part
    return x * int(steps[0]) + int(torch.tensor(4))


ORDINARY: dict[str, Callable2] = {
    "elementwise": lambda x, i: ((x + 1) * 2.5).tanh().exp() - x.clamp(-1, 1),
    "comparison": lambda x, i: (x > 0) & ~(x > 1),
    "where": lambda x, i: (torch.where(x > 0, 1.0, x), torch.where(x > 0, 1, 0)),
    "matmul": lambda x, i: x @ x.T + torch.einsum("ij,jk->ik", x, x) + torch.bmm(x[None], x[None])[0],
    "linear in inference mode": lambda x, i: torch.inference_mode()(lambda: F.linear(x, x, x[0]).relu())(),
    "attention": lambda x, i: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
    "norms": lambda x, i: F.layer_norm(x, (4,)) + x.softmax(-1) + F.silu(x),
    "views": lambda x, i: x.view(-1)[2:14].view(3, 4).t().unsqueeze(0).expand(2, -1, -1).flatten(),
    "index by tensors": lambda x, i: (x[i], x[:, i], x[i, i], x.index_select(0, i), x.gather(1, i[:, None])),
    "embedding": lambda x, i: F.embedding(i, x),
    "assignments": fills_by_mask,
    "masked_fill": lambda x, i: x.masked_fill(x > 0, float("nan")),
    "in place": lambda x, i: x.add_(1).mul_(2),
    "out": lambda x, i: torch.add(x, 1, out=torch.empty_like(x)),
    "lists of results": lambda x, i: (torch._foreach_add([x, x * 2], 1.0), x.unsafe_chunk(2), x.aminmax()),
    "sorts": lambda x, i: (x.topk(2).values, x.sort().indices, x.argmax(-1), x.cumsum(-1)),
    "cat": lambda x, i: torch.cat([torch.stack([row * 2 for row in x]), F.pad(x, (0, 0, 1, 1))]),
    "a static loop": accumulates,
    "factories on the device": lambda x, i: torch.arange(4, device=x.device) + x.new_zeros(4) + torch.full_like(x, 2),
    "factories on cuda": lambda x, i: x + torch.ones(4, device="cuda") if x.is_cuda else x + 1,
    "a device context": under_a_device,
    "one_hot": lambda x, i: (F.one_hot(i, 5), F.one_hot(i, num_classes=4)),
    "repeats": lambda x, i: (x.repeat_interleave(2, dim=0), x.repeat_interleave(i, dim=0, output_size=6)),
    "shapes": asks_about_shapes,
    "a branch on the device": branches_on_the_device,
    "casts": lambda x, i: (x.to(torch.float64), i.to(x), x.to(x.device), x.half().float(), x.long()),
    "random on the device": lambda x, i: F.dropout(x, 0.5) + torch.rand_like(x) + torch.rand(4, device=x.device),
    "a scalar tensor of the host": lambda x, i: x * torch.tensor(2.0),
    "pinned, without blocking": through_pinned_memory,
    "host work": host_work,
    "a copy": lambda x, i: copy.deepcopy(x) + x.detach().clone().contiguous(),
}


@pytest.mark.parametrize("fn", [pytest.param(fn, id=name) for name, fn in ORDINARY.items()])
def test_ordinary_code_passes_and_replays_bit_for_bit(fn: Callable2) -> None:
    report = check(fn, X, I)
    assert report.ok, str(report)
    assert set(report.passes) == ALL


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


def requests(model: MossLocal) -> list[Request]:
    prompt = torch.zeros(1, model.layout.columns, dtype=torch.int64)
    return [
        Request(k, prompt, Sampling(codes=Draw(1.7, 0.8, 25)), seed=k, max_frames=9, chain=Chain(8)) for k in range(4)
    ]


def test_the_frame_decoder_passes_with_draws_laid_out_before(model: MossLocal) -> None:
    hidden = torch.randn(4, model.config.local.hidden, generator=torch.Generator().manual_seed(3))
    chooser = BatchChooser(requests(model), model)
    report = check(lambda hidden: model.frames(hidden, chooser), hidden)
    assert report.ok, str(report)


def test_draws_laid_out_in_the_step_are_pageable_copies_and_nothing_else(model: MossLocal) -> None:
    hidden = torch.randn(4, model.config.local.hidden, generator=torch.Generator().manual_seed(3))
    batch = requests(model)
    report = check(lambda hidden: model.frames(hidden, BatchChooser(batch, model)), hidden)
    assert {finding.kind for finding in report.findings} == {Kind.PAGEABLE_COPY}
    assert {finding.operator for finding in report.findings} == {"torch.tensor"}
    sources = " ".join(finding.where for finding in report.findings)
    for source in ("torch.tensor(values", "torch.tensor([r.seed", "torch.tensor([len(r.frames)"):
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


def placed(model: MossLocal) -> tuple[Callable[..., Tensor], tuple[Tensor, ...], Tensor]:
    """The backbone over a KV store, inputs for four rows at two contexts, and the store's keys."""
    kv = model.kv_store(64)
    rows = checkpoints.prompt(SIZES, 4)
    context = torch.full((4, 64), kv.null)
    context[0, :4], context[1, :6] = torch.arange(7, 11), torch.arange(15, 21)
    slots = torch.tensor([10, 20, kv.waste, kv.waste])

    def hidden(rows: Tensor, positions: Tensor, slots: Tensor, context: Tensor) -> Tensor:
        return model.hidden(rows, Placement(positions, slots, context), kv)

    return hidden, (rows, torch.tensor([[3], [5], [0], [0]]), slots, context), kv.keys


def test_a_recorded_step_gives_the_bits_of_the_step(model: MossLocal) -> None:
    chooser = BatchChooser(requests(model), model)
    hidden, inputs, stored = placed(model)

    def step(*inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        frames = model.frames(hidden(*inputs), chooser)
        return frames.stop, frames.codes, frames.finite

    recording = record(step, *inputs)
    for seed in range(5):
        rows = checkpoints.prompt(SIZES, 4, seed)
        replayed = [tensor.clone() for tensor in recording.replay(rows, *inputs[1:])]
        written = stored.clone()
        eager = step(rows, *inputs[1:])
        assert all(map(torch.equal, replayed, eager))
        assert torch.equal(written, stored)


# the recorder


def test_a_replay_reads_the_same_inputs_and_overwrites_the_same_outputs() -> None:
    recording = record(lambda x, i: {"sum": x[i] + 1, "views": [x.t(), (x * 2)[1:]]}, X, I)
    places = [tensor.data_ptr() for tensor in (*recording.inputs, recording.outputs["sum"])]
    first = recording.outputs["sum"].clone()
    other = X + 3
    assert recording.replay(other, I.flip(0)) is recording.outputs
    assert [tensor.data_ptr() for tensor in (*recording.inputs, recording.outputs["sum"])] == places
    assert not torch.equal(recording.outputs["sum"], first)
    assert torch.equal(recording.outputs["sum"], other[I.flip(0)] + 1)
    assert torch.equal(recording.outputs["views"][0], other.t())
    assert torch.equal(recording.outputs["views"][1], (other * 2)[1:])


def test_a_replay_without_inputs_uses_what_lies_in_the_buffers() -> None:
    recording = record(lambda x: x * 2, X)
    recording.inputs[0].fill_(4.0)
    assert torch.equal(recording.replay(), torch.full((4, 4), 8.0))


def test_examples_are_copied_and_left_alone() -> None:
    example = X.clone()
    recording = record(lambda x: x.add_(1), example)
    recording.replay(X * 2)
    assert torch.equal(example, X)
    assert torch.equal(recording.outputs, X * 2 + 1)


def test_a_replay_repeats_what_is_done_to_tensors_outside() -> None:
    counter = torch.zeros(1)

    def count(x: Tensor) -> Tensor:
        counter.add_(1)
        return x * counter

    recording = record(count, X)
    assert torch.equal(recording.replay(X), X * 2)
    assert torch.equal(recording.replay(X), X * 3)
    counter.zero_()
    assert torch.equal(recording.replay(X), X)


def test_a_replay_reads_rewritten_weights_and_not_replaced_ones() -> None:
    weights = [torch.ones(4)]
    recording = record(lambda x: x * weights[0], X)
    weights[0].fill_(2.0)
    assert torch.equal(recording.replay(X), X * 2)
    weights[0] = torch.full((4,), 5.0)
    assert torch.equal(recording.replay(X), X * 2)


def test_views_and_constants_are_not_replayed() -> None:
    def fn(x: Tensor) -> Tensor:
        shift = torch.arange(4) * 2 + 1
        return x.t()[1:].unsqueeze(0) + shift

    assert len(record(fn, X)) == 1


def test_intermediates_that_are_dead_share_memory() -> None:
    def chain(x: Tensor) -> Tensor:
        for _ in range(20):
            x = (x * 1.01 + 0.5).tanh()
        return x

    written: set[int] = set()

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            written.add(result.data_ptr())
            return result

    recording = record(chain, X)
    with Seen():  # type: ignore[no-untyped-call]
        recording.replay()
    assert len(recording) == 60
    assert len(written) == 3  # two by turns, and the result


def test_a_constant_written_in_place_is_made_anew() -> None:
    def fn(x: Tensor) -> Tensor:
        total = torch.zeros(4)
        view = total[1:]
        view += x[0, 1:]
        return total + x[1]

    recording = record(fn, X)
    for scale in (2.0, 3.0):
        assert torch.equal(recording.replay(X * scale), fn(X * scale))


def test_a_replay_draws_anew_as_the_call_does() -> None:
    recording = record(lambda x: F.dropout(x, 0.5) + torch.rand_like(x), X)
    torch.manual_seed(5)
    replayed = [recording.replay(X).clone() for _ in range(2)]
    torch.manual_seed(5)
    eager = [F.dropout(X, 0.5) + torch.rand_like(X) for _ in range(2)]
    assert all(map(torch.equal, replayed, eager))
    assert not torch.equal(*replayed)


def test_a_recording_survives_what_the_callable_does_to_shapes_and_storages() -> None:
    def fn(x: Tensor) -> Tensor:
        doubled = x * 2
        total = doubled + 1
        doubled.t_()
        doubled.unsqueeze_(0)
        return total @ doubled[0]

    recording = record(fn, X)
    for scale in (2.0, 3.0):
        assert torch.equal(recording.replay(X * scale), fn(X * scale))


def test_recordings_are_made_and_replayed_under_any_gradient_mode() -> None:
    weight = torch.nn.Parameter(torch.ones(4, 4))

    def plain(x: Tensor) -> Tensor:
        return F.linear(x, weight).relu()

    def in_inference_mode(x: Tensor) -> Tensor:
        with torch.inference_mode():
            return plain(x)

    with torch.inference_mode():
        recordings = [record(plain, X)]
    recordings += [record(plain, X), record(in_inference_mode, X)]
    for recording in recordings:
        assert torch.equal(recording.replay(X * 2), plain(X * 2))


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (
            branch,
            r"host read, aten._local_scalar_dense.default: .*test_capture.py:\d+|test_capture.py:\d+: .*host read",
        ),
        (lambda x, i: x.nonzero(), "data-dependent shape, aten.nonzero"),
        (lambda x, i: x + torch.tensor([1.0, 2, 3, 4]), "host tensor beside device tensors"),
    ],
)
def test_what_no_graph_can_hold_is_refused_by_its_line(fn: Callable2, message: str) -> None:
    with pytest.raises(VoxradixError, match=message):
        record(fn, X, I)


def test_a_replay_refuses_inputs_unlike_the_buffers() -> None:
    recording = record(lambda x, i: x[i], X, I)
    for inputs in ((X,), (X[:2], I), (X.double(), I), (X, I, I)):
        with pytest.raises(VoxradixError):
            recording.replay(*inputs)


def test_weights_packed_for_the_host_replay_bit_for_bit() -> None:
    linear = Linear(torch.randn(512, 512), torch.randn(512))
    recording = record(lambda x: torch.relu(linear(x)) + 1, torch.zeros(4, 512))
    x = torch.randn(4, 512)
    assert torch.equal(recording.replay(x), torch.relu(linear(x)) + 1)
    assert check(lambda x: linear(x), x).ok


UNARY: list[Callable[[Tensor], Tensor]] = [
    lambda a: a.exp().clamp(max=10.0),
    lambda a: a.softmax(-1),
    lambda a: a.cumsum(0),
    lambda a: a.t(),
    lambda a: a.flip(0),
    lambda a: a[1:].sum(0) + a,
    lambda a: F.layer_norm(a, (4,)),
    lambda a: a.masked_fill(a > 0, -1.0),
    lambda a: a.sort(-1).values,
    lambda a: a.reshape(2, 8).view(4, 4),
    lambda a: a.clone().mul_(2),
    lambda a: a.to(torch.float64).to(torch.float32),
    lambda a: F.pad(a, (0, 1))[:, 1:],
    lambda a: torch.stack(list(a.unbind(1)), dim=0),
    lambda a: a.std(dim=0, keepdim=True) + a,
    lambda a: F.gelu(a),
    lambda a: a.gather(1, a.argsort(-1)),
]
BINARY: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda a, b: a + b,
    lambda a, b: a @ b,
    lambda a, b: torch.where(a > b, a, b * 2),
    lambda a, b: torch.addmm(a, a, b, beta=0.5),
    lambda a, b: torch.cat([a[:2], b[2:]]),
    lambda a, b: torch.bmm(a[None], b[None])[0],
    lambda a, b: a.clone().index_put_((torch.where(b > 0, 0, 1)[:, 0],), b),
    lambda a, b: torch.lerp(a, b, 0.25),
    lambda a, b: a.add_(b * 0.1),  # in place: a later step of the program sees it
]
Program = list[tuple[int, int, int | None]]
programs: st.SearchStrategy[Program] = st.lists(
    st.tuples(st.integers(0, len(UNARY) - 1), st.integers(0, 7), st.none())
    | st.tuples(st.integers(0, len(BINARY) - 1), st.integers(0, 7), st.integers(0, 7)),
    min_size=1,
    max_size=12,
)


def run(program: Program, x: Tensor, y: Tensor) -> list[Tensor]:
    """All values of a program: each step takes earlier values."""
    values = [x, y]
    for operator, a, b in program:
        first = values[a % len(values)]
        values.append(UNARY[operator](first) if b is None else BINARY[operator](first, values[b % len(values)]))
    return values


@settings(deadline=None, max_examples=60)
@given(programs, st.integers(0, 2**20))
def test_any_program_replays_bit_for_bit(program: Program, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    draws = torch.randn(3, 2, 4, 4, generator=generator)
    recording = record(lambda x, y: run(program, x, y), *draws[0])
    for x, y in draws[1:]:
        replayed = recording.replay(x, y)
        eager = run(program, x.clone(), y.clone())
        for ours, theirs in zip(replayed, eager, strict=True):
            assert torch.equal(ours.view(torch.int32), theirs.view(torch.int32))


@settings(deadline=None, max_examples=60)
@given(programs, st.integers(0, 2**20))
def test_any_program_replays_bit_for_bit_when_its_intermediates_share_memory(program: Program, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    draws = torch.randn(3, 2, 4, 4, generator=generator)
    recording = record(lambda x, y: run(program, x, y)[-1], *draws[0])
    for x, y in draws[1:]:
        eager = run(program, x.clone(), y.clone())[-1]
        assert torch.equal(recording.replay(x, y).view(torch.int32), eager.view(torch.int32))


@settings(deadline=None, max_examples=10)
@given(programs)
def test_any_such_program_passes_the_check(program: Program) -> None:
    report = check(lambda x, y: run(program, x, y)[-1] + x + y, X, X.flip(1))
    assert report.ok, str(report)
