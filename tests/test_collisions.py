"""The collision laboratory: what it counts, finds and forges is really so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from voxradix.cli.collisions import run_collisions
from voxradix.errors import VoxradixError
from voxradix.keys import pack_rows, row_hash
from voxradix.keys.collisions import (
    LATTICE_STEP,
    clashing_differences,
    clashing_pairs,
    expected_pairs,
    forge_folded,
    forge_raw,
)
from voxradix.rows import MOSS_LOCAL, RowLayout


def random_rows(count: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 1024, (count, 12), generator=generator)
    return torch.cat((torch.full((count, 1), 151656), codes), dim=1)


def test_pairs_of_equal_keys_are_counted() -> None:
    assert clashing_pairs(torch.tensor([5, 1, 5, 5, 2, 1])) == 3 + 1
    assert clashing_pairs(torch.tensor([[1, 2], [1, 3], [1, 2]])) == 1
    assert clashing_pairs(torch.tensor([], dtype=torch.int64)) == 0


def test_folded_keys_clash_at_the_rate_of_chance_and_packed_rows_never() -> None:
    rows = random_rows(20_000)
    measured = clashing_pairs(row_hash(rows).remainder(151643))
    expected = expected_pairs(20_000, 151643)
    assert abs(measured - expected) < 5 * expected**0.5
    assert clashing_pairs(pack_rows(rows, MOSS_LOCAL)) == 0


def test_the_lattice_step_never_changes_the_raw_hash() -> None:
    rows = random_rows(50)
    assert torch.equal(row_hash(rows + torch.tensor(LATTICE_STEP)), row_hash(rows))


def test_named_differences_clash_for_the_share_of_rows_they_say() -> None:
    small = RowLayout("small", (151936, 1025, 1025, 1025, 1025), key_space=151643, end_id=151670, end_key=151670)
    found = clashing_differences(small, at_least=0.3)
    assert found and found == sorted(found, key=lambda d: -d.probability)
    rows = torch.randint(0, 2**30, (20_000, 5), generator=torch.Generator().manual_seed(3))
    for difference in (found[0], found[len(found) // 2], found[-1]):
        other = rows.clone()
        other[:, difference.columns[0]] += difference.steps[0]
        other[:, difference.columns[1]] += difference.steps[1]
        share = (row_hash(rows).remainder(151643) == row_hash(other).remainder(151643)).double().mean()
        assert abs(float(share) - difference.probability) < 0.02, difference


def test_the_structured_clashes_of_moss_local_are_the_ones_the_page_tells() -> None:
    found = clashing_differences(MOSS_LOCAL, at_least=0.9)
    assert len(found) == 177
    assert (found[0].columns, found[0].steps, round(found[0].probability, 4)) == ((7, 9), (119, 615), 0.9996)


def test_forging_says_when_there_is_nothing_to_forge() -> None:
    few = RowLayout("few", (9, 2), key_space=7, end_key=7)
    with pytest.raises(VoxradixError, match="takes 4"):
        forge_raw(torch.tensor([1, 1]), few)
    with pytest.raises(VoxradixError, match="too small"):
        forge_raw(torch.tensor([1, 1, 1, 1, 1]), RowLayout("small", (9, 3, 3, 3, 3), key_space=7, end_key=7))
    with pytest.raises(VoxradixError, match="no second row"):
        forge_folded(torch.tensor([1, 1]), RowLayout("one", (9, 2), key_space=100, end_key=100))
    for chosen in range(20):
        forged, _ = forge_folded(torch.tensor([1, 1, 1]), RowLayout("tiny", (7, 4, 4), key_space=5, end_key=5), chosen)
        assert forged.tolist() != [1, 1, 1]


def test_forged_rows_have_the_key_of_another_row() -> None:
    row = random_rows(1, seed=9)[0]
    folded, tried = forge_folded(row, MOSS_LOCAL)
    assert tried > 0 and not torch.equal(folded, row)
    assert row_hash(folded[None]).remainder(151643) == row_hash(row[None]).remainder(151643)
    raw = forge_raw(row, MOSS_LOCAL)
    assert not torch.equal(raw, row) and torch.equal(row_hash(raw[None]), row_hash(row[None]))
    for forged in (folded, raw):
        MOSS_LOCAL.check(forged[None])


def test_the_command_prints_figures_and_draws_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_collisions(tmp_path / "plots", frames=200, seed=0)
    out = capsys.readouterr().out
    for part in ("spoken frames", "clashing pairs", "share of rows that clash", "second row", "equal"):
        assert part in " ".join(out.split())
    for name in ("clashes.png", "differences.png"):
        assert (tmp_path / "plots" / name).read_bytes().startswith(b"\x89PNG")


def test_a_place_for_plots_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(VoxradixError, match="cannot be made a directory"):
        run_collisions(tmp_path / "file", frames=10, seed=0)
