"""Capture: a replay gives the bits of the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests import checkpoints
from tests.capturing import SIZES, Callable2, I, X, branch, requests
from voxradix.capture import check, record
from voxradix.engine.chooser import BatchChooser
from voxradix.errors import VoxradixError
from voxradix.models.moss_local import MossLocal, Placement, load
from voxradix.models.moss_local.linear import Linear


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MossLocal:
    return load(checkpoints.write(tmp_path_factory.mktemp("capture"), SIZES))


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
    chooser = BatchChooser.of(requests(model), model)
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


def test_a_number_written_in_place_is_put_back() -> None:
    def fn(x: Tensor) -> Tensor:
        scale = torch.tensor(0.5)
        scale.add_(1)
        return x * scale

    recording = record(fn, X)
    for _ in range(3):
        assert torch.equal(recording.replay(X), X * 1.5)
    assert check(fn, X).ok


def test_constants_that_are_returned_are_made_anew() -> None:
    recording = record(lambda x: (torch.zeros(3), torch.arange(3) * 2, torch.tensor(0.5), x * 1), X)
    expected = [torch.zeros(3), torch.tensor([0, 2, 4]), torch.tensor(0.5), X]
    for _ in range(3):
        outputs = recording.replay(X)
        assert all(map(torch.equal, outputs, expected))
        for output in outputs:
            output.add_(5)


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
            r"host read, aten._local_scalar_dense.default: .*capturing.py:\d+|capturing.py:\d+: .*host read",
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
