"""The Triton kernels and the operator around them: every implementation is equal, and cheap to launch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from voxradix import keys
from voxradix.errors import VoxradixError
from voxradix.keys import RowPublisher
from voxradix.keys.publish import publish_rows
from voxradix.rows import CSM, FISH_S2, HIGGS_V3, LAYOUTS, MOSS_LOCAL, MOSS_NANO, EndRule, RowLayout

needs_triton = pytest.mark.skipif(
    subprocess.run([sys.executable, "-c", "import triton"], capture_output=True).returncode != 0,
    reason="Triton is not installed",
)
WRITTEN = [
    layout for layout in LAYOUTS if layout.text_column == 0 and layout.pad_code and layout.end_rule is EndRule.COLUMN
]


def run_apart(module: str) -> str:
    """Run a module of the tests in a process of its own, so that Triton's mode is chosen afresh."""
    done = subprocess.run(
        [sys.executable, "-m", module], capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[1]
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_triton
def test_interpreted_kernels_equal_the_definition() -> None:
    assert run_apart("tests.kernels_interpreted").strip() == "equal"


@needs_triton
def test_compiled_kernels_spill_nothing_and_call_no_division() -> None:
    made = [json.loads(line) for line in run_apart("tests.kernels_compiled").splitlines()]
    assert {(m["kernel"], m["architecture"]) for m in made} == {
        (kernel, sm) for kernel in ("hash_rows_kernel", "publish_kernel") for sm in (80, 90, 100)
    }
    for one in made:
        assert (one["spilled"], one["divisions"], one["calls"]) == (0, 0, 0), one
        assert one["registers"] <= 64, one


def frames(layout: RowLayout, batch: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(batch)
    stop = torch.rand(batch, generator=generator) < 0.3
    return stop, torch.randint(0, 1024, (batch, layout.codebooks), generator=generator)


@pytest.mark.parametrize("layout", WRITTEN, ids=lambda layout: str(layout.name))
def test_publishing_equals_the_definitions(layout: RowLayout) -> None:
    stop, codes = frames(layout, 9)
    made = RowPublisher(layout, continue_id=layout.key_space - 1)(stop, codes)
    assert layout.pad_code is not None
    for i in range(9):
        ended = bool(stop[i])
        text = layout.end_id if ended else layout.key_space - 1
        row = [text, *([layout.pad_code] * layout.codebooks if ended else codes[i].tolist())]
        assert made.rows[i].tolist() == row
        expected = keys.seed_key_definition(row, end_id=layout.end_id, space=layout.key_space, offset=layout.key_offset)
        assert int(made.keys[i]) == expected
    assert torch.equal(made.packed, keys.pack_rows(made.rows, layout))


def operator_arguments(stop: Tensor, codes: Tensor) -> tuple[object, ...]:
    fields = MOSS_LOCAL.fields
    words, shifts = [field.word for field in fields], [field.shift for field in fields]
    return (stop, codes, torch.tensor([words, shifts]), words, shifts, 151656, 151670, 1024, 151670, 151643, 0)


@pytest.mark.parametrize("batch", [0, 1, 7])
def test_the_operator_equals_the_publisher(batch: int) -> None:
    stop, codes = frames(MOSS_LOCAL, batch)
    rows, row_keys, packed = publish_rows(*operator_arguments(stop, codes))
    made = RowPublisher(MOSS_LOCAL, 151656)(stop, codes)
    assert torch.equal(rows, made.rows) and torch.equal(row_keys, made.keys) and torch.equal(packed, made.packed)


def test_the_operator_passes_the_librarys_own_checks() -> None:
    torch.library.opcheck(publish_rows, operator_arguments(*frames(MOSS_LOCAL, 5)))


class Step(torch.nn.Module):
    """A step that ends in the operator."""

    places: Tensor

    def __init__(self) -> None:
        super().__init__()
        _, _, places, *self.rest = operator_arguments(torch.empty(0), torch.empty(0))
        assert isinstance(places, Tensor)
        self.register_buffer("places", places)

    def forward(self, stop: Tensor, codes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        made: tuple[Tensor, Tensor, Tensor] = publish_rows(stop, codes + 1, self.places, *self.rest)
        return made


def test_compilers_and_exporters_see_one_operator() -> None:
    stop, codes = frames(MOSS_LOCAL, 5)
    expected = Step()(stop, codes)
    compiled = torch.compile(Step(), fullgraph=True, backend="aot_eager")
    assert all(torch.equal(a, b) for a, b in zip(compiled(stop, codes), expected, strict=True))
    program = torch.export.export(Step(), (stop, codes))
    called = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert called.count("voxradix.publish_rows.default") == 1 and len(called) <= 5  # the addition, and taking results
    assert all(torch.equal(a, b) for a, b in zip(program.module()(stop, codes), expected, strict=True))


def test_a_publisher_refuses_layouts_and_ids_it_cannot_write() -> None:
    for layout in (HIGGS_V3, CSM):
        with pytest.raises(VoxradixError, match="begin with the text id"):
            RowPublisher(layout, continue_id=1)
    with pytest.raises(VoxradixError, match="continue_id is 151656"):
        RowPublisher(MOSS_NANO, continue_id=151656)
    with pytest.raises(VoxradixError, match="pad code None"):
        RowPublisher(FISH_S2, continue_id=1)


def test_a_frame_that_ends_has_the_end_key_which_need_not_be_its_id() -> None:
    layout = RowLayout("other", (100, 50, 50), key_space=90, end_key=95, end_id=7, pad_code=49)
    made = RowPublisher(layout, 9)(torch.tensor([True, False]), torch.zeros(2, 2, dtype=torch.int32))
    assert made.rows[0].tolist() == [7, 49, 49] and made.keys[0] == 95
    assert made.keys[1] == keys.row_hash_definition([9, 0, 0]) % 90


def test_another_hash_gives_keys_of_the_same_form() -> None:
    stop, codes = frames(MOSS_LOCAL, 20)
    made = RowPublisher(MOSS_LOCAL, 151656, row_hash=lambda rows: torch.full_like(rows[:, 0], 151643 + 7))(stop, codes)
    assert made.keys.tolist() == [151670 if ended else 7 for ended in stop.tolist()]
