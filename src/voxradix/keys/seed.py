"""The seed key: a polynomial over the full row, folded below the special ids, the end id kept.

Its two constants and the fold are those of the seed document; every implementation agrees bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

MOD = 2**31 - 1
"""The Mersenne prime M31. Every step stays below 2**62, inside a signed 64-bit integer."""

BASE = 1_000_000_007
"""The polynomial's base, a prime below `MOD`."""

SPACE = 151643
"""``<|endoftext|>`` of MOSS-TTS Local v1.5: the first special id, so the first id a key must stay below."""


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
    """The raw polynomial of each row: int [B, C] to int64 [B] in ``[0, MOD)``.

    Elementwise int64 operations over a static column count: no host read, no data-dependent shape, so it may
    be captured in a graph. Any int64 value is allowed; negative ones take the floor remainder.
    """
    reduced = rows.to(torch.int64).remainder(MOD)
    acc = torch.zeros_like(reduced[:, 0])
    for column in range(rows.shape[1]):
        acc = (acc * BASE + reduced[:, column]).remainder(MOD)
    return acc


def fold_keys(raw: Tensor, text_ids: Tensor, *, end_id: int, space: int = SPACE, offset: int = 0) -> Tensor:
    """Fold raw hashes (int64 [B]) into ``[offset, space)``, keeping ``end_id`` where ``text_ids`` holds it."""
    return torch.where(text_ids == end_id, end_id, raw.remainder(space - offset) + offset)


def seed_keys(rows: Tensor, *, end_id: int, space: int = SPACE, offset: int = 0) -> Tensor:
    """The seed key of each row: int [B, C] to int64 [B].

    Args:
        rows: Rows with the text id in column 0.
        end_id: Rows that hold it in column 0 keep it as their key, so that the engine sees the end.
        space: First id that a continuing row's key must stay below.
        offset: Lowest key of a continuing row.
    """
    return fold_keys(row_hash(rows), rows[:, 0].to(torch.int64), end_id=end_id, space=space, offset=offset)
