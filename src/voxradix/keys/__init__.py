"""Row keys: integers that stand for whole rows.

A package of its own, with torch as its only need: it knows no model, no cache and no engine.
"""

from voxradix.keys.packed import RowPacker, pack_rows, pack_rows_unchecked, unpack_rows
from voxradix.keys.prompt import prompt_keys
from voxradix.keys.publish import Published, RowPublisher
from voxradix.keys.seed import (
    BASE,
    MOD,
    RowHash,
    ShortHash,
    fastest_hash,
    fold_keys,
    largest_sum,
    row_hash,
    row_hash_definition,
    row_keys,
    seed_key_definition,
    seed_keys,
)

__all__ = [
    "BASE",
    "MOD",
    "Published",
    "RowHash",
    "RowPacker",
    "RowPublisher",
    "ShortHash",
    "fastest_hash",
    "fold_keys",
    "largest_sum",
    "pack_rows",
    "pack_rows_unchecked",
    "prompt_keys",
    "row_hash",
    "row_hash_definition",
    "row_keys",
    "seed_key_definition",
    "seed_keys",
    "unpack_rows",
]
