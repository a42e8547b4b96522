"""What row keys are worth: counting clashes, finding the structured ones, and forging a key.

The seed key's raw hash is linear: rows that differ by d have hashes that differ by the same D = sum(d_c * power_c)
modulo M31, whatever the rows are. Under the fold they clash if D is a multiple of the fold and the sum does not
wrap around M31, or D - M31 is one and it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from voxradix.errors import VoxradixError
from voxradix.keys.seed import MOD, powers, row_hash
from voxradix.rows import RowLayout

LATTICE_STEP = (0, 1, 1, 2, -2, 1, -1, -3, 1, 2, -1, 3, -2)
"""A difference of MOSS Local rows whose hashes are always equal: a short vector of the polynomial's lattice."""


def clashing_pairs(keys: Tensor) -> int:
    """Pairs of equal keys among int64 [n] keys or [n, words] packed rows of different rows."""
    counts = keys.unique(dim=0, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())


def expected_pairs(count: int, space: int) -> float:
    """The pairs that ``count`` keys spread evenly over ``space`` values give on average."""
    return count * (count - 1) / 2 / space


@dataclass(frozen=True, slots=True)
class Count:
    """Clashing pairs among ``rows`` different rows: measured, and expected of keys spread evenly."""

    source: str
    space: str
    rows: int
    measured: int
    expected: float


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference in two columns under which rows clash, and the share of rows that do."""

    columns: tuple[int, int]
    steps: tuple[int, int]
    probability: float


def clashing_differences(layout: RowLayout, *, at_least: float) -> list[Difference]:
    """Differences in two codebooks under which at least a share of all rows clash in the folded key.

    All of them, the likeliest first; of a difference and its opposite, one is named.
    """
    space = layout.key_space - layout.key_offset
    weight = powers(layout.columns)
    found: list[Difference] = []
    for a, b in combinations(layout.code_columns, 2):
        first = torch.arange(codes_in(layout, a))
        second = torch.arange(1 - codes_in(layout, b), codes_in(layout, b))
        shift = (first[:, None] * weight[a] + second * weight[b]).remainder(MOD)
        stays = (shift.remainder(space) == 0) & (shift <= (1 - at_least) * MOD)
        wraps = ((MOD - shift).remainder(space) == 0) & (shift >= at_least * MOD)
        for hits, share in ((stays, 1 - shift.double() / MOD), (wraps, shift.double() / MOD)):
            for i, j in hits.nonzero().tolist():
                step = (int(first[i]), int(second[j]))
                if step > (0, 0):
                    found.append(Difference((a, b), step, float(share[i, j])))
    return sorted(found, key=lambda difference: -difference.probability)


def codes_in(layout: RowLayout, column: int) -> int:
    """The codes that stand for sound in a column: those below its pad."""
    bound = layout.bounds[column]
    return bound - 1 if layout.pad_code == bound - 1 else bound


def forge_folded(row: Tensor, layout: RowLayout, seed: int = 0) -> tuple[Tensor, int]:
    """Another row with the folded key of ``row`` (int64 [C]), by trying random codes; and how many were tried.

    `VoxradixError` when a hundred times the expected tries find none, as in a layout of few rows.
    """
    space = layout.key_space - layout.key_offset
    target = row_hash(row[None]).remainder(space)
    generator = torch.Generator().manual_seed(seed)
    tried = 0
    while tried < 100 * space + 100_000:
        rows = row.repeat(16384, 1)
        for column in layout.code_columns:
            rows[:, column] = torch.randint(codes_in(layout, column), (len(rows),), generator=generator)
        same = (row_hash(rows).remainder(space) == target) & (rows != row).any(dim=1)
        hits = same.nonzero()[:, 0]
        if len(hits):
            return rows[hits[0]], tried + int(hits[0]) + 1
        tried += len(rows)
    raise VoxradixError(f"layout {layout.name}: no second row with this key in {tried} tries")


def forge_raw(row: Tensor, layout: RowLayout) -> Tensor:
    """Another row with the raw hash of ``row`` (int64 [C]): sums of two columns are met with sums of two others.

    `VoxradixError` for a layout whose first four codebooks are too few or too small to meet the hash.
    """
    if layout.codebooks < 4:
        raise VoxradixError(f"layout {layout.name} has {layout.codebooks} codebooks; it takes 4 to forge a hash")
    a, b, c, d = layout.code_columns[:4]
    weight = powers(layout.columns)
    size = min(1024, *(codes_in(layout, column) for column in (a, b, c, d)))
    codes = torch.arange(size)

    def sums(first: int, second: int) -> Tensor:
        return (codes[:, None] * weight[first] + codes * weight[second]).remainder(MOD).flatten()

    kept = row.clone()
    kept[[a, b, c, d]] = 0
    needed = (row_hash(row[None]) - row_hash(kept[None]) - sums(a, b)).remainder(MOD)
    offered, order = sums(c, d).sort()
    place = torch.searchsorted(offered, needed).clamp(max=len(offered) - 1)
    for left in (offered[place] == needed).nonzero()[:, 0].tolist():
        right = int(order[place[left]])
        forged = kept.clone()
        forged[[a, b, c, d]] = torch.tensor([left // size, left % size, right // size, right % size])
        if not torch.equal(forged, row):
            return forged
    raise VoxradixError(f"layout {layout.name}: four codebooks of {size} codes are too small to meet this hash")
