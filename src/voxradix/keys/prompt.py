"""The prompt key: blake2b over a row's bytes, as the seed document's prompt path has it."""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct

import torch
from torch import Tensor


def prompt_keys(rows: Tensor) -> Tensor:
    """The prompt key of each row: int [T, C] to int64 [T] on the CPU.

    blake2b with an 8-byte digest over the row as little-endian int64, read back as a little-endian integer with
    the top bit cleared. It hashes on the host: right for a prompt, wrong inside a decode step.
    """
    little_endian = Struct(f"<{rows.shape[1]}q")
    digests = (blake2b(little_endian.pack(*row), digest_size=8).digest() for row in rows.tolist())
    keys = [int.from_bytes(digest, "little") & (2**63 - 1) for digest in digests]
    return torch.tensor(keys, dtype=torch.int64)
