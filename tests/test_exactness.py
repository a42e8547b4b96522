"""The operations the model is made of: a row's bits do not depend on the rows beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from voxradix.models.moss_local import BLOCK, Placement, padded
from voxradix.models.moss_local.attention import attend
from voxradix.models.moss_local.backbone import RMSNorm, silu
from voxradix.models.moss_local.linear import Linear, widened

SHAPES = [(64, 64), (192, 576), (192, 2), (10, 2), (50, 9), (64, 33), (100, 257), (256, 1024), (768, 2304), (2560, 128)]


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def assert_row_by_row(function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    whole = function(x)
    for rows in (4, 8, 12, 20, 32):
        for first in range(8):
            assert torch.equal(function(x[first : first + rows].clone()), whole[first : first + rows])


@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_a_product_treats_rows_alike(inputs: int, outputs: int, threads: int) -> None:
    generator = torch.Generator().manual_seed(1)
    linear = Linear(torch.randn(outputs, inputs, generator=generator), torch.randn(outputs, generator=generator))
    assert_row_by_row(linear, torch.randn(40, inputs, generator=generator))


def test_large_weights_are_packed_and_agree_with_the_plain_product() -> None:
    weight, x = torch.randn(768, 512), torch.randn(8, 512)
    packed = Linear(weight)
    assert packed._weight is None, "oneDNN's packed product is missing in this torch"
    assert torch.allclose(packed(x), F.linear(x, weight), atol=1e-3)


@pytest.mark.parametrize("width", [48, 64, 100, 192, 2560])
def test_norms_and_activations_treat_rows_alike(width: int, threads: int) -> None:
    x = torch.randn(40, width, generator=torch.Generator().manual_seed(2)) * 3
    assert_row_by_row(RMSNorm(torch.rand(width), 1e-6), x)
    assert_row_by_row(silu, x)
    assert_row_by_row(lambda rows: F.layer_norm(rows, (width,), eps=1e-6), x)
    assert torch.allclose(silu(x), F.silu(x), atol=1e-6)


class Sequences:
    """Random keys, values and queries of one sequence, to be attended in any pieces."""

    def __init__(self, heads: int, kv_heads: int, width: int, rows: int) -> None:
        generator = torch.Generator().manual_seed(3)
        self.rows = rows
        self.null = rows * 2
        self.order = torch.randperm(self.null, generator=generator)[:rows]
        self.query = torch.randn(rows, heads, width, generator=generator) * width**-0.5
        self.keys = torch.randn(kv_heads, self.null + 1, width, generator=generator)
        self.values = torch.randn(kv_heads, self.null + 1, width, generator=generator)
        self.keys, self.values = widened(self.keys), widened(self.values)
        self.keys[:, self.null] = self.values[:, self.null] = 0

    def chunk(self, start: int, end: int, spare_blocks: int = 0) -> Tensor:
        """Rows start .. end - 1 in one call, their context padded by some blocks too many."""
        missing = padded(end - start) - (end - start)
        length = (-(-end // BLOCK) + spare_blocks) * BLOCK
        place = Placement(
            positions=F.pad(torch.arange(start, end), (0, missing))[None],
            slots=torch.empty(0, dtype=torch.int64),
            context=F.pad(self.order[:end], (0, length - end), value=self.null)[None],
        )
        query = F.pad(self.query[start:end], (0, 0, 0, 0, 0, missing))
        mask = place.mask(self.query.shape[1] // self.keys.shape[0])
        return attend(query, self.keys, self.values, place, mask)[: end - start]

    def decode(self, ends: list[int]) -> Tensor:
        """The last row of each of several prefixes, as one batch of single rows."""
        missing = padded(len(ends)) - len(ends)
        length = -(-max(ends) // BLOCK) * BLOCK
        context = torch.stack([F.pad(self.order[:end], (0, length - end), value=self.null) for end in ends])
        place = Placement(
            positions=F.pad(torch.tensor(ends)[:, None] - 1, (0, 0, 0, missing)),
            slots=torch.empty(0, dtype=torch.int64),
            context=F.pad(context, (0, 0, 0, missing), value=self.null),
        )
        query = F.pad(self.query[torch.tensor(ends) - 1], (0, 0, 0, 0, 0, missing))
        mask = place.mask(self.query.shape[1] // self.keys.shape[0])
        return attend(query, self.keys, self.values, place, mask)[: len(ends)]


@pytest.mark.parametrize(
    ("heads", "kv_heads", "width"), [(4, 2, 32), (8, 8, 16), (6, 2, 64), (5, 1, 80), (8, 4, 128), (5, 1, 10), (4, 2, 6)]
)
def test_attention_gives_a_row_the_same_bits_however_it_is_reached(
    heads: int, kv_heads: int, width: int, threads: int
) -> None:
    sequence = Sequences(heads, kv_heads, width, rows=150)
    whole = sequence.chunk(0, 150)
    for size in (1, 7, 64):
        pieces = [sequence.chunk(i, min(i + size, 150)) for i in range(0, 150, size)]
        assert torch.equal(torch.cat(pieces), whole)
    assert torch.equal(sequence.chunk(60, 70, spare_blocks=3), whole[60:70])
    ends = [1, 64, 65, 150, 3, 128]
    assert torch.equal(sequence.decode(ends), whole[torch.tensor(ends) - 1])
    assert torch.equal(sequence.decode([65]), whole[64:65])


def test_attention_agrees_with_the_library() -> None:
    sequence = Sequences(heads=4, kv_heads=2, width=32, rows=100)
    query = sequence.query.transpose(0, 1)
    keys, values = (t[:, sequence.order].repeat_interleave(2, dim=0) for t in (sequence.keys, sequence.values))
    expected = F.scaled_dot_product_attention(query, keys, values, is_causal=True, scale=1.0)
    assert torch.allclose(sequence.chunk(0, 100), expected.transpose(0, 1).reshape(100, -1), atol=1e-5)
