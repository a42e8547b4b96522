"""The seed key: a polynomial over the full row, folded below the special ids, the end id kept.

Its two constants and the fold are those of the seed document; every implementation agrees bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from voxradix.errors import VoxradixError
from voxradix.rows import SPACE, RowLayout

MOD = 2**31 - 1
"""The Mersenne prime M31. Every step stays below 2**62, inside a signed 64-bit integer."""

BASE = 1_000_000_007
"""The polynomial's base, a prime below `MOD`."""

RowHash = Callable[[Tensor], Tensor]
"""A raw hash of rows: int [B, C] to int64 [B]."""


def row_hash_definition(row: Sequence[int]) -> int:
    """The raw polynomial of one row of any integers, in plain Python: what every other form must equal."""
    acc = 0
    for value in row:
        acc = (acc * BASE + value) % MOD
    return acc


def seed_key_definition(row: Sequence[int], *, end_id: int, space: int = SPACE, offset: int = 0) -> int:
    """The seed key of one row, in plain Python (see `seed_keys`)."""
    if row[0] == end_id:
        return end_id
    return offset + row_hash_definition(row) % (space - offset)


def row_hash(rows: Tensor) -> Tensor:
    """The raw polynomial of each row by Horner's rule: int [B, C] to int64 [B] in ``[0, MOD)``.

    Elementwise int64 operations over a static column count: no host read, no data-dependent shape, so it may
    be captured in a graph. Any int64 value is allowed; negative ones take the floor remainder.
    """
    if rows.is_floating_point() or rows.is_complex():
        raise VoxradixError(f"rows have dtype {rows.dtype}; they must be integers")
    reduced = rows.to(torch.int64).remainder(MOD)
    acc = reduced.new_zeros(rows.shape[0])
    for column in range(rows.shape[1]):
        acc = (acc * BASE + reduced[:, column]).remainder(MOD)
    return acc


def powers(columns: int) -> list[int]:
    """What each column of a row is multiplied with in the polynomial: ``BASE ** (columns - 1 - c) % MOD``."""
    return [pow(BASE, columns - 1 - column, MOD) for column in range(columns)]


def largest_sum(layout: RowLayout) -> int:
    """The largest sum of column times power that a row inside the layout can give."""
    return sum((bound - 1) * power for bound, power in zip(layout.bounds, powers(layout.columns), strict=True))


class ShortHash:
    """`row_hash` for rows inside a layout: one product with the powers, one sum, one remainder.

    Equal to Horner's rule bit for bit wherever the sum cannot leave int64, which the layout's bounds decide.
    """

    def __init__(self, layout: RowLayout, device: torch.device | str = "cpu") -> None:
        """Lay out the powers on a device; `VoxradixError` for a layout whose rows could overflow the sum."""
        if largest_sum(layout) >= 2**63:
            raise VoxradixError(
                f"layout {layout.name}: a row's sum can reach {largest_sum(layout)}, beyond int64; use row_hash"
            )
        self._powers = torch.tensor(powers(layout.columns), device=device)

    def __call__(self, rows: Tensor) -> Tensor:
        """The raw polynomial of rows int [B, C] inside the layout: int64 [B] in ``[0, MOD)``."""
        product = torch.mv if rows.device.type == "cpu" else _product  # torch has integer products on the CPU alone
        return product(rows.to(torch.int64), self._powers).remainder(MOD)


def _product(rows: Tensor, weights: Tensor) -> Tensor:
    """`torch.mv` of integers, on any device."""
    return (rows * weights).sum(dim=1)


def fastest_hash(layout: RowLayout, device: torch.device | str = "cpu") -> RowHash:
    """`ShortHash` where the layout proves it safe, else `row_hash`."""
    return ShortHash(layout, device) if largest_sum(layout) < 2**63 else row_hash


def fold_keys(raw: Tensor, ended: Tensor, end_key: int, space: int = SPACE, offset: int = 0) -> Tensor:
    """Fold raw hashes (int64 [B]) into ``[offset, space)``; rows that ``ended`` (bool [B]) get ``end_key``."""
    if not 0 <= offset < space:
        raise VoxradixError(f"keys cannot fold into [{offset}, {space})")
    return torch.where(ended, end_key, raw.remainder(space - offset) + offset)


def seed_keys(rows: Tensor, *, end_id: int, space: int = SPACE, offset: int = 0) -> Tensor:
    """The seed key of each row: int [B, C] to int64 [B].

    Args:
        rows: Rows of any integers with the text id in column 0.
        end_id: Rows that hold it in column 0 keep it as their key, so that the engine sees the end.
        space: First id that a continuing row's key must stay below.
        offset: Lowest key of a continuing row.
    """
    ended = rows[:, 0].to(torch.int64) == end_id  # narrower integers would wrap the id
    return fold_keys(row_hash(rows), ended, end_key=end_id, space=space, offset=offset)


def row_keys(rows: Tensor, layout: RowLayout, *, ended: Tensor | None = None, row_hash: RowHash = row_hash) -> Tensor:
    """The key of each row by its layout's fold and end rule: int [B, C] to int64 [B].

    Args:
        rows: Rows of the layout.
        layout: Says where keys fold to, how a row ends, and what its key is then.
        ended: Which rows end the audio, bool [B]; by default the layout's own rule decides.
        row_hash: The raw hash. `ShortHash` is faster; any other function gives keys of the same form.
    """
    if ended is None:
        ended = layout.ended(rows)
    return fold_keys(row_hash(rows), ended, end_key=layout.end_key, space=layout.key_space, offset=layout.key_offset)
