"""Packed rows: the row itself in a few int64 words. Equal packed rows are equal rows."""

from __future__ import annotations

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
    values = rows.to(torch.int64)
    words: list[Tensor] = []
    for column, field in enumerate(layout.fields):
        part = values[:, column] << field.shift
        if field.word == len(words):
            words.append(part)
        else:
            words[-1] = words[-1] | part
    return torch.stack(words, dim=1)


def unpack_rows(words: Tensor, layout: RowLayout) -> Tensor:
    """The rows behind packed words: int64 [B, words] to int64 [B, C]."""
    columns = [(words[:, f.word] >> f.shift) & ((1 << f.bits) - 1) for f in layout.fields]
    return torch.stack(columns, dim=1)
