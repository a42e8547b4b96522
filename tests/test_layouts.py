"""The layouts of known models: their sizes, how their rows end, and the short form of the hash."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from voxradix import keys
from voxradix.errors import VoxradixError
from voxradix.keys import seed
from voxradix.rows import (
    CSM,
    FISH_S2,
    HIGGS_V3,
    LAYOUTS,
    MOSHI,
    MOSS_DELAY,
    MOSS_LOCAL,
    MOSS_NANO,
    MOSS_TTSD,
    QWEN3_TTS,
    ZONOS2,
    RowLayout,
)

EVERY = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: str(layout.name))


def random_rows(layout: RowLayout, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    columns = [torch.randint(0, bound, (count,), generator=generator) for bound in layout.bounds]
    columns = [
        torch.where(torch.rand(count, generator=generator) < 0.1, b - 1, c)
        for b, c in zip(layout.bounds, columns, strict=True)
    ]
    return torch.stack(columns, dim=1)


@EVERY
def test_packed_rows_are_exact_in_every_layout(layout: RowLayout) -> None:
    rows = random_rows(layout, 200)
    assert torch.equal(keys.RowPacker(layout)(rows), keys.pack_rows(rows, layout))
    assert torch.equal(keys.unpack_rows(keys.pack_rows(rows, layout), layout), rows)


@EVERY
def test_the_short_form_equals_the_definition_up_to_the_bounds(layout: RowLayout) -> None:
    rows = torch.cat((random_rows(layout, 200), torch.tensor([layout.bounds]) - 1))
    short = keys.ShortHash(layout)(rows)
    assert short.tolist() == [keys.row_hash_definition(row) for row in rows.tolist()]
    assert torch.equal(keys.ShortHash(layout)(rows.to(torch.int32)), short)
    assert keys.largest_sum(layout) < 2**63


def test_the_short_form_is_refused_where_the_sum_could_overflow() -> None:
    wide = RowLayout("wide", (2**33,) * 3, key_space=10, end_key=10)
    with pytest.raises(VoxradixError, match="beyond int64"):
        keys.ShortHash(wide)
    assert keys.fastest_hash(wide) is keys.row_hash
    edge = torch.tensor([[2**33 - 1] * 3])
    assert keys.fastest_hash(wide)(edge).tolist() == [keys.row_hash_definition([2**33 - 1] * 3)]


@EVERY
def test_keys_stay_in_the_fold_and_ended_rows_have_the_end_key(layout: RowLayout) -> None:
    rows = random_rows(layout, 500)
    ended = torch.rand(500, generator=torch.Generator().manual_seed(1)) < 0.2
    made = keys.row_keys(rows, layout, ended=ended)
    assert (made[ended] == layout.end_key).all()
    free = made[~ended]
    assert free.min() >= layout.key_offset and free.max() < layout.key_space
    assert torch.equal(made, keys.row_keys(rows, layout, ended=ended, row_hash=keys.ShortHash(layout)))


PUBLISHED: dict[str, tuple[tuple[int, ...], int | None, int | None, int, int, int, int]] = {
    # name: bounds, text column, pad, end id, end key, first key, keys end before
    "moss_tts_local": ((151936, *(1025,) * 12), 0, 1024, 151670, 151670, 0, 151643),
    "moss_tts_delay": ((155648, *(1025,) * 32), 0, 1024, 151653, 151653, 0, 151643),
    "moss_ttsd": ((155648, *(1025,) * 16), 0, 1024, 151653, 151653, 0, 151643),
    "moss_tts_nano": ((16384, *(1025,) * 16), 0, 1024, 7, 7, 10, 16384),
    "higgs_audio_v3": ((1026,) * 8, None, None, 1025, 151643, 0, 151643),
    "zonos2": ((*(1026,) * 9, 520), 9, 1025, 1024, 151643, 0, 151643),
    "fish_s2": ((155776, *(4096,) * 10), 0, None, 151645, 151645, 0, 151643),
    "qwen3_tts": ((3072, *(2048,) * 15), None, 2148, 2150, 151643, 0, 151643),
    "csm": ((*(2051,) * 32, 128256), 32, 2050, 0, 128003, 0, 128000),
    "moshi": ((32001, *(2049,) * 16), 0, 2048, 0, 32000, 4, 32000),
}


@EVERY
def test_rows_have_the_published_sizes_and_ids(layout: RowLayout) -> None:
    made = (
        layout.bounds,
        layout.text_column,
        layout.pad_code,
        layout.end_id,
        layout.end_key,
        layout.key_offset,
        layout.key_space,
    )
    assert made == PUBLISHED[layout.name]
    assert layout.codebooks == layout.columns - (layout.text_column is not None)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
def test_narrow_integers_never_wrap_an_end_id(dtype: torch.dtype) -> None:
    """151670 is 118 in 8 bits and 20598 in 16; 1025 is 1 in 8."""
    rows = (
        torch.tensor([[118] + [1] * 12]).to(dtype)
        if dtype.itemsize == 1
        else torch.tensor([[20598] + [1] * 12]).to(dtype)
    )
    assert not MOSS_LOCAL.ended(rows).any()
    expected = keys.seed_key_definition(rows[0].tolist(), end_id=151670)
    assert keys.seed_keys(rows, end_id=151670).tolist() == [expected] == keys.row_keys(rows, MOSS_LOCAL).tolist()
    assert not HIGGS_V3.ended(torch.ones(2, 8).to(dtype)).any()


def test_the_product_used_off_the_cpu_equals_the_one_on_it() -> None:
    rows, weights = random_rows(MOSS_LOCAL, 50), torch.tensor(seed.powers(13))
    assert torch.equal(seed._product(rows, weights), torch.mv(rows, weights))


@pytest.mark.parametrize(
    "wrong",
    [{"text_column": 2}, {"text_column": -1}, {"end_column": 2}, {"key_space": 2**32, "end_key": 2**33}],
)
def test_a_layout_refuses_columns_it_has_not_and_folds_wider_than_the_hash(wrong: dict[str, int]) -> None:
    with pytest.raises(VoxradixError):
        RowLayout(**{"name": "bad", "bounds": (9, 9), "key_space": 8, "end_key": 8, **wrong})  # type: ignore[arg-type]


def ended(layout: RowLayout, row: list[int]) -> bool:
    return bool(layout.ended(torch.tensor([row]))[0])


def test_an_id_in_the_text_column_ends_moss_and_fish() -> None:
    for layout, end in (
        (MOSS_LOCAL, 151670),
        (MOSS_DELAY, 151653),
        (MOSS_TTSD, 151653),
        (MOSS_NANO, 7),
        (FISH_S2, 151645),
    ):
        assert ended(layout, [end] + [1] * layout.codebooks)
        assert not ended(layout, [9] + [7] * layout.codebooks)


def test_an_id_in_codebook_0_ends_higgs_and_qwen() -> None:
    assert ended(HIGGS_V3, [1025] + [3] * 7) and not ended(HIGGS_V3, [3] + [1025] * 7)
    assert ended(QWEN3_TTS, [2150] + [3] * 15) and not ended(QWEN3_TTS, [2149] + [3] * 15)


def test_an_id_in_any_codebook_ends_zonos_but_not_in_its_text() -> None:
    assert all(ended(ZONOS2, [1024 if i == k else 5 for i in range(9)] + [0]) for k in range(9))
    assert not ended(ZONOS2, [5] * 9 + [519])


def test_zeros_in_every_codebook_end_csm_whatever_its_text() -> None:
    assert ended(CSM, [0] * 32 + [77])
    assert not ended(CSM, [0] * 31 + [1, 0])


def test_moshi_needs_the_mask() -> None:
    rows = random_rows(MOSHI, 3)
    with pytest.raises(VoxradixError, match="give the mask"):
        keys.row_keys(rows, MOSHI)
    assert keys.row_keys(rows, MOSHI, ended=torch.tensor([False, True, False]))[1] == MOSHI.end_key


def test_an_end_key_among_the_others_is_refused() -> None:
    with pytest.raises(VoxradixError, match="end key 5"):
        RowLayout("bad", (9,), key_space=8, end_key=5)
