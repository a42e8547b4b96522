"""Capture: every operator and call that would break a CUDA graph is named with its line, and nothing else is."""

from __future__ import annotations

import copy
import os
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.capturing import ALL, Callable2, I, X, branch, line_of
from voxradix.capture import Kind, check


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
    "empty_like on the host": (lambda x, i: torch.empty_like(x, device="cpu").copy_(x), "aten.copy_"),
    "new_empty on the host": (lambda x, i: x.new_empty((4, 4), device="cpu").copy_(x), "aten.copy_"),
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
    "rand_like on the host": (lambda x, i: torch.rand_like(x, device="cpu").to(x.device) + x, "Tensor.to"),
    "pinned, waiting": (lambda x, i: x + torch.zeros(4).pin_memory().to(x.device), "Tensor.to"),
}

OWN_RANDOM = random.Random(3)
OWN_GENERATOR = torch.Generator().manual_seed(3)

HOST_RANDOM: dict[str, tuple[Callable2, str]] = {
    "rand on the host": (lambda x, i: x + torch.rand(4).to(x.device), "aten.rand"),
    "rand_like on the host": (lambda x, i: torch.rand_like(x, device="cpu").to(x.device) + x, "aten.rand_like"),
    "rand_like of the host": (lambda x, i: torch.rand_like(torch.zeros(4)).to(x.device) + x, "aten.rand_like"),
    "uniform_ on the host": (lambda x, i: x + torch.zeros(4).uniform_().to(x.device), "aten.uniform_"),
    "a generator of the host": (lambda x, i: x + torch.rand(4, device=x.device, generator=OWN_GENERATOR), "aten.rand"),
    "random": (lambda x, i: x * random.random(), "random.random"),
    "random.choice": (lambda x, i: x * random.choice([1, 2, 3]), "random."),
    "a Random of its own": (lambda x, i: x * OWN_RANDOM.random(), "random.random"),
    "os.urandom": (lambda x, i: x * os.urandom(1)[0], "os.urandom"),
    "numpy's global state": (lambda x, i: x * np.random.rand(), "numpy.random"),
}

MISPLACED: dict[str, tuple[Callable2, str]] = {
    "zeros": (lambda x, i: x + torch.zeros(4), "aten.add"),
    "a list": (lambda x, i: x + torch.tensor([1.0, 2, 3, 4]), "aten.add"),
    "zeros_like on the host": (lambda x, i: torch.zeros_like(x, device="cpu") + x, "aten.add"),
    "new_zeros on the host": (lambda x, i: x.new_zeros(4, device="cpu") + x, "aten.add"),
}

HAZARDS = [
    pytest.param(kind, fn, operator, id=f"{kind}: {name}")
    for kind, cases in (
        (Kind.HOST_READ, HOST_READS),
        (Kind.DYNAMIC_SHAPE, DYNAMIC_SHAPES),
        (Kind.PAGEABLE_COPY, COPIES),
        (Kind.HOST_RANDOM, HOST_RANDOM),
        (Kind.MISPLACED, MISPLACED),
        (Kind.RAISES, {"synchronize": (lambda x, i: torch.cuda.synchronize(), "AssertionError")}),
        (Kind.RAISES, {"shapes": (lambda x, i: x @ x[:, :2].T, "RuntimeError")}),
    )
    for name, (fn, operator) in cases.items()
]


@pytest.mark.parametrize(("kind", "fn", "operator"), HAZARDS)
def test_a_hazard_is_found_and_named_with_its_operator_and_line(kind: Kind, fn: Callable2, operator: str) -> None:
    found = [finding for finding in check(fn, X, I).findings if finding.kind is kind]
    assert any(operator in finding.operator for finding in found)
    start = fn.__code__.co_firstlineno
    assert all(start <= line_of(finding) < start + 4 for finding in found)


def test_a_finding_names_the_very_line() -> None:
    (finding,) = (f for f in check(branch, X, I).findings if f.kind is Kind.HOST_READ)
    line = branch.__code__.co_firstlineno + 1
    assert finding.where.endswith(f"capturing.py:{line}: return x * 2 if x.sum() > 0 else x * 3")


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
    "zeros_like on the device": lambda x, i: torch.zeros_like(torch.empty(4), device=x.device) + x,
    "new_zeros on the device": lambda x, i: torch.empty(3).new_zeros(4, device=x.device) + x,
    "rand_like on the device": lambda x, i: torch.rand_like(torch.empty(4), device=x.device) + x,
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
