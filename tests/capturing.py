"""What the tests of capture share: example inputs, requests, a branch on a value, and where a finding points."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import Tensor

from tests import checkpoints
from voxradix.cache import Chain
from voxradix.capture import Finding
from voxradix.engine.request import Request
from voxradix.models.moss_local import MossLocal
from voxradix.sampling import Draw, Sampling

X = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
I = torch.tensor([0, 2, 1, 3])  # noqa: E741 - the indices
CPU = torch.device("cpu")
SIZES = checkpoints.Sizes(codebooks=4)
ALL = {"cpu", "cuda", "repeat", "rewritten"}
Callable2 = Callable[[Tensor, Tensor], object]


def branch(x: Tensor, i: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x * 3


def line_of(finding: Finding) -> int:
    found = re.search(r"\.py:(\d+):", finding.where)
    assert found is not None, finding
    return int(found[1])


def requests(model: MossLocal) -> list[Request]:
    """Four requests with draws of their own."""
    prompt = torch.zeros(1, model.layout.columns, dtype=torch.int64)
    draws = Sampling(codes=Draw(1.7, 0.8, 25))
    return [Request(k, prompt, draws, seed=k, max_frames=9, first_draw=0, chain=Chain(8)) for k in range(4)]
