"""Run by test_kernels.py in a process of its own, where Triton interprets its kernels: they equal the definition."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import torch
from torch import Tensor

from voxradix.errors import VoxradixError
from voxradix.keys import RowPublisher, kernels, row_hash, row_hash_definition
from voxradix.rows import MOSS_DELAY, MOSS_LOCAL, MOSS_NANO, RowLayout

EDGES = [-(2**63), -(2**31 - 1), -1, 0, 1, 2**31 - 2, 2**31 - 1, 2**63 - 1]
SHAPES = [(0, 13), (1, 1), (4, 0), (3, 7), (16, 13), (129, 33)]


def edge_rows(batch: int, columns: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.tensor(EDGES)[torch.randint(len(EDGES), (batch, columns), generator=generator)]
    plain = torch.randint(-(2**40), 2**40, (batch, columns), generator=generator)
    return torch.where(torch.rand(batch, columns, generator=generator) < 0.5, edges, plain)


def hash_equals_the_definition() -> None:
    for batch, columns in SHAPES:
        rows = edge_rows(batch, columns, seed=batch)
        views = [rows, rows.t().contiguous().t(), edge_rows(2 * batch, 3 * columns, 1)[::2, ::3]]
        for view in [*views, (rows % 2**31).to(torch.int32)]:
            made = kernels.hash_rows(view)
            assert made.tolist() == [row_hash_definition(row) for row in view.tolist()], (batch, columns)
            assert torch.equal(made, row_hash(view))


OTHER_END = RowLayout("other", (100, 50, 50), key_space=90, key_offset=4, end_key=95, end_id=7, pad_code=49)


def publishing_equals_the_torch_path() -> None:
    for layout in (MOSS_LOCAL, MOSS_DELAY, MOSS_NANO, OTHER_END):
        torch_path = RowPublisher(layout, continue_id=9)
        places = torch.tensor([[field.word for field in layout.fields], [field.shift for field in layout.fields]])
        assert layout.pad_code is not None
        ids = (9, layout.end_id, layout.pad_code)
        fold = (layout.end_key, layout.key_space, layout.key_offset)
        for batch in (0, 1, 5, 33, 70):
            generator = torch.Generator().manual_seed(batch)
            stop = torch.rand(2 * batch, generator=generator)[::2] < 0.3
            codes = torch.randint(0, layout.bounds[1], (layout.codebooks, batch), generator=generator).t()
            for given in (codes, codes.to(torch.int32)):
                rows, keys, packed = kernels.publish(stop, given, places, layout.words, ids, *fold)
                expected = torch_path(stop, given)
                assert torch.equal(rows, expected.rows)
                assert torch.equal(keys, expected.keys)
                assert torch.equal(packed, expected.packed)


def shapes_that_do_not_fit_are_refused() -> None:
    places = torch.zeros(2, 13, dtype=torch.int64)
    codes = torch.zeros(3, 12, dtype=torch.int64)
    for stop in (torch.zeros(1, dtype=torch.bool), torch.zeros(3, dtype=torch.int64)):
        try:
            kernels.publish(stop, codes, places, 3, (9, 151670, 1024), 151670, 151643, 0)
        except VoxradixError:
            continue
        raise AssertionError("a stop decision of another shape or dtype was taken")


hash_equals_the_definition()
publishing_equals_the_torch_path()
shapes_that_do_not_fit_are_refused()
print("equal")
