"""Packed rows: the row itself in a few int64 words. Equal packed rows are equal rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from voxradix.rows import RowLayout


def pack_rows(rows: Tensor, layout: RowLayout) -> Tensor:
    """Pack rows by their layout: int [B, C] to int64 [B, words], exact and reversible.

    Rows on the CPU are checked first: a value outside the layout raises `VoxradixError` naming it. Rows on a
    device are not read (that would wait for the device); there the caller vouches for the bounds.
    """
    if rows.device.type == "cpu":
        layout.check(rows)
    return pack_rows_unchecked(rows, layout)


def pack_rows_unchecked(rows: Tensor, layout: RowLayout) -> Tensor:
    """Pack rows known to lie inside the layout, as the decode step's own rows do: shifts and ors only."""
    fields = layout.fields
    return pack_columns(rows, [field.word for field in fields], [field.shift for field in fields])


def pack_columns(rows: Tensor, words: Sequence[int], shifts: Sequence[int]) -> Tensor:
    """Or each column (int [B, C]), shifted, into its word: int64 [B, words[-1] + 1]. Words are given in order."""
    values = rows.to(torch.int64)
    packed: list[Tensor] = []
    for column, (word, shift) in enumerate(zip(words, shifts, strict=True)):
        part = values[:, column] << shift
        if word == len(packed):
            packed.append(part)
        else:
            packed[-1] = packed[-1] | part
    return torch.stack(packed, dim=1)


class RowPacker:
    """`pack_rows_unchecked` for one layout and device, in few operators: one shift, and one sum a word.

    Inside the layout a word's fields do not overlap, so their sum is their or.
    """

    def __init__(self, layout: RowLayout, device: torch.device | str = "cpu") -> None:
        """Lay out the shifts on a device."""
        self._shifts = torch.tensor([field.shift for field in layout.fields], device=device)
        self._widths = [sum(field.word == word for field in layout.fields) for word in range(layout.words)]

    def __call__(self, rows: Tensor) -> Tensor:
        """Packed words int64 [B, words] of rows int64 [B, C] inside the layout."""
        parts = (rows << self._shifts).split(self._widths, dim=1)
        return torch.stack([part.sum(dim=1) for part in parts], dim=1)


def unpack_rows(words: Tensor, layout: RowLayout) -> Tensor:
    """The rows behind packed words: int64 [B, words] to int64 [B, C]."""
    columns = [(words[:, f.word] >> f.shift) & ((1 << f.bits) - 1) for f in layout.fields]
    return torch.stack(columns, dim=1)
