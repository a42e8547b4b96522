"""The row keys: seed parity with the recorded vectors, and packed rows that are the rows themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from voxradix import keys
from voxradix.errors import VoxradixError
from voxradix.rows import MOSS_LOCAL, RowLayout

DATA = Path(__file__).parent / "data" / "keys"
VECTORS = json.loads((DATA / "row_keys.json").read_text())
CLASHES = json.loads((DATA / "clashing_rows.json").read_text())
INT64 = st.integers(-(2**63), 2**63 - 1)
END = 151670


def test_seed_parity_with_the_recorded_vectors() -> None:
    rows = torch.tensor([v["row"] for v in VECTORS])
    assert keys.row_hash(rows).tolist() == [v["raw"] for v in VECTORS]
    assert keys.seed_keys(rows, end_id=END).tolist() == [v["key"] for v in VECTORS]
    folded = keys.seed_keys(rows, end_id=END, offset=10, space=16384).tolist()
    assert folded == [v["key_offset_10_space_16384"] for v in VECTORS]


def test_prompt_key_parity_with_the_recorded_vectors() -> None:
    rows = torch.tensor([v["row"] for v in VECTORS])
    assert keys.prompt_keys(rows).tolist() == [v["prompt_key"] for v in VECTORS]


def test_recorded_clashes_share_a_key_and_differ_as_packed_rows() -> None:
    for clash in CLASHES:
        rows = torch.tensor(clash["rows"])
        assert keys.seed_keys(rows, end_id=END).tolist() == [clash["key"]] * 2
        packed = keys.pack_rows(rows, MOSS_LOCAL)
        assert not torch.equal(packed[0], packed[1])


@given(st.integers(1, 20).flatmap(lambda c: st.lists(st.lists(INT64, min_size=c, max_size=c), min_size=1)))
def test_seed_parity_of_torch_and_definition_for_any_int64(rows: list[list[int]]) -> None:
    tensor = torch.tensor(rows)
    assert keys.row_hash(tensor).tolist() == [keys.row_hash_definition(row) for row in rows]
    for space, offset in ((151643, 0), (16384, 10)):
        made = keys.seed_keys(tensor, end_id=END, space=space, offset=offset).tolist()
        assert made == [keys.seed_key_definition(row, end_id=END, space=space, offset=offset) for row in rows]


def test_hashes_refuse_what_is_no_row_and_no_fold() -> None:
    with pytest.raises(VoxradixError, match="must be integers"):
        keys.row_hash(torch.zeros(2, 3))
    with pytest.raises(VoxradixError, match=r"fold into \[9, 5\)"):
        keys.seed_keys(torch.zeros(2, 3, dtype=torch.int64), end_id=1, space=5, offset=9)


def test_seed_key_takes_int32_views_and_empty_batches() -> None:
    rows = torch.randint(0, 1024, (13, 7), dtype=torch.int32)
    assert torch.equal(keys.row_hash(rows.t()), keys.row_hash(rows.t().contiguous().long()))
    assert keys.seed_keys(rows[:0], end_id=END).shape == (0,)


@st.composite
def layouts_and_rows(draw: st.DrawFn) -> tuple[RowLayout, list[list[int]]]:
    bounds = draw(st.lists(st.integers(1, 2**63 - 1) | st.integers(1, 4096), min_size=1, max_size=40))
    layout = RowLayout("any", tuple(bounds), key_space=10, end_key=10, end_id=0)
    row = st.tuples(*(st.integers(0, bound - 1) for bound in bounds)).map(list)
    return layout, draw(st.lists(row, min_size=1, max_size=5))


@given(layouts_and_rows())
def test_packed_rows_are_exact_for_any_layout(case: tuple[RowLayout, list[list[int]]]) -> None:
    layout, rows = case
    packed = keys.pack_rows(torch.tensor(rows), layout)
    assert packed.shape == (len(rows), layout.words)
    assert (packed >= 0).all()
    assert keys.unpack_rows(packed, layout).tolist() == rows


def test_a_moss_local_row_packs_into_three_words() -> None:
    assert MOSS_LOCAL.words == 3


@pytest.mark.parametrize(("column", "value", "limit"), [(0, 151936, 151935), (12, 1025, 1024), (3, -1, 1024)])
def test_packing_refuses_values_outside_the_layout_by_name(column: int, value: int, limit: int) -> None:
    rows = torch.zeros(2, 13, dtype=torch.int64)
    rows[1, column] = value
    with pytest.raises(VoxradixError, match=rf"row 1, column {column} holds {value}; .* 0 \.\. {limit}"):
        keys.pack_rows(rows, MOSS_LOCAL)


@pytest.mark.parametrize("rows", [torch.zeros(2, 12).long(), torch.zeros(13).long(), torch.zeros(2, 13)])
def test_packing_refuses_other_shapes_and_dtypes(rows: torch.Tensor) -> None:
    with pytest.raises(VoxradixError):
        keys.pack_rows(rows, MOSS_LOCAL)


def test_keys_on_a_device_read_nothing_on_the_host() -> None:
    rows = torch.empty(4, 13, dtype=torch.int64, device="meta")  # a meta tensor cannot be read at all
    assert keys.seed_keys(rows, end_id=END).shape == (4,)
    assert keys.pack_rows(rows, MOSS_LOCAL).shape == (4, 3)


@pytest.mark.parametrize("bounds", [(), (0,), (2**63,)])
def test_a_layout_refuses_bounds_no_word_can_hold(bounds: tuple[int, ...]) -> None:
    with pytest.raises(VoxradixError):
        RowLayout("bad", bounds, key_space=1, end_key=1, end_id=0)


def test_a_layout_refuses_a_fold_without_room() -> None:
    with pytest.raises(VoxradixError):
        RowLayout("bad", (5,), key_space=4, key_offset=4, end_key=9, end_id=0)


def test_the_keys_need_torch_alone() -> None:
    """Imported where nothing else this package depends on can be."""
    blocked = ["safetensors", "tokenizers", "soundfile", "typer", "rich", "matplotlib", "triton"]
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({blocked!r}))\n"
        "import torch, voxradix.keys as keys\n"
        "from voxradix.rows import MOSS_LOCAL\n"
        "rows = torch.tensor([[151656, *range(12)]])\n"
        "packed = keys.pack_rows(rows, MOSS_LOCAL)\n"
        "print(keys.seed_keys(rows, end_id=151670).tolist(), keys.unpack_rows(packed, MOSS_LOCAL).tolist())\n"
        "rest = ('voxradix.engine', 'voxradix.models', 'voxradix.cache')\n"
        "assert not [name for name in sys.modules if name.startswith(rest)]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == f"[40976] [[151656, {', '.join(map(str, range(12)))}]]"
