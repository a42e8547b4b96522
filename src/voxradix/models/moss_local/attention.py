"""Attention over slots: the KV store, where a batch's rows stand in it, and the exact attention itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from voxradix.errors import VoxradixError
from voxradix.models.moss_local.config import BackboneConfig
from voxradix.models.moss_local.linear import LANES, padded, widened

BLOCK = 64
"""Keys are taken in blocks of this many; a context is padded to whole blocks."""

_QUERIES = 32
"""A sequence's new rows are taken so many at a time: every block of keys needs its own copy of them."""


class KVStore:
    """Keys and values of every slot and layer, [layers, kv_heads, slots + 2, head_dim widened] each.

    Two slots lie beyond the pool: ``null`` is never written and stands where a context is padded, ``waste``
    takes what padding rows write.
    """

    def __init__(self, config: BackboneConfig, slots: int, device: torch.device, dtype: torch.dtype) -> None:
        """A store of zeros."""
        width = -(-config.head_dim // LANES) * LANES
        shape = (config.layers, config.kv_heads, slots + 2, width)
        try:
            self.keys = torch.zeros(shape, dtype=dtype, device=device)
            self.values = torch.zeros(shape, dtype=dtype, device=device)
        except (RuntimeError, TypeError) as error:  # what torch raises when memory, or a size's type, has no room
            size = 2 * dtype.itemsize * math.prod(shape)
            raise VoxradixError(
                f"a pool of {slots} rows takes {size} bytes on {device}, which cannot be had ({type(error).__name__}); "
                "lower pool_rows"
            ) from None
        self.null = slots
        self.waste = slots + 1

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Write one layer's keys and values [R, kv_heads, head_dim] of the rows at slots int64 [R]."""
        for store, new in ((self.keys, keys), (self.values, values)):
            store[layer].index_copy_(1, slots, widened(new).transpose(0, 1).to(store.dtype))


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a batch of S sequences, each with T new rows, stands.

    S * T is a multiple of the padding unit (`linear.ROWS`). Padding rows have position 0 and write to the
    waste slot.

    Attributes:
        positions: int64 [S, T], each new row's index in its sequence.
        slots: int64 [S * T], the slot each new row's keys and values are written to.
        context: int64 [S, L], the slots of each sequence in order, new rows included; L a multiple of `BLOCK`,
            padded with the null slot.
    """

    positions: Tensor
    slots: Tensor
    context: Tensor

    def mask(self, queries_a_head: int) -> Tensor:
        """Additive mask [S, L / BLOCK, M, BLOCK]: 0 where a row may look, else -inf.

        M = T * queries_a_head, padded; padding rows look at key 0.
        """
        sequences, context = self.context.shape
        keys = torch.arange(context, device=self.context.device).view(1, -1, 1, BLOCK)
        rows = self.positions.repeat_interleave(queries_a_head, dim=1)
        rows = F.pad(rows, (0, padded(rows.shape[1]) - rows.shape[1])).view(sequences, 1, -1, 1)
        return torch.zeros((), dtype=torch.float32, device=keys.device).masked_fill(keys > rows, float("-inf"))


def attend(query: Tensor, keys: Tensor, values: Tensor, placement: Placement, mask: Tensor) -> Tensor:
    """Grouped-query attention of new rows over their contexts.

    Each product has one fixed shape per block of keys and blocks are joined in their order, so a row's result
    does not depend on the batch, on how a prefill was cut, or on how far its context is padded.

    Args:
        query: float32 [S * T, heads, head_dim], rotated and scaled.
        keys: One layer's keys, [kv_heads, slots, head_dim widened] in the store's type.
        values: One layer's values, likewise.
        placement: Where the rows stand.
        mask: ``placement.mask(heads // kv_heads)``.

    Returns:
        float32 [S * T, heads * head_dim].
    """
    sequences, length = placement.positions.shape
    kv_heads, group = keys.shape[0], query.shape[1] // keys.shape[0]
    slots = placement.context.flatten()
    key_blocks, value_blocks = (
        store.index_select(1, slots).to(torch.float32).view(-1, BLOCK, store.shape[2]) for store in (keys, values)
    )
    queries = widened(query).view(sequences, length, kv_heads, group, -1).split(_QUERIES, dim=1)
    starts = range(0, length * group, _QUERIES * group)
    masks = (mask[:, :, start : start + _QUERIES * group] for start in starts)
    mixed = [_mixed(part, key_blocks, value_blocks, seen) for part, seen in zip(queries, masks, strict=True)]
    return torch.cat(mixed, dim=1)[..., : query.shape[2]].reshape(sequences * length, -1)


def _mixed(query: Tensor, key_blocks: Tensor, value_blocks: Tensor, mask: Tensor) -> Tensor:
    """The values that queries [S, T, kv_heads, G, width] find in blocks [kv_heads * S * L / BLOCK, BLOCK, width]."""
    sequences, length, kv_heads, group, width = query.shape
    blocks, used = mask.shape[1], length * group

    # [S, T, kv, G, D] -> [kv, S, 1, T * G (padded), D]: the queries that share a KV head are rows of one product
    rows = query.permute(2, 0, 1, 3, 4).reshape(kv_heads, sequences, 1, used, width)
    rows = F.pad(rows, (0, 0, 0, padded(used) - used))
    tiles = rows.expand(-1, -1, blocks, -1, -1).reshape(kv_heads * sequences * blocks, -1, width)

    scores = torch.bmm(tiles, key_blocks.transpose(1, 2)).view(kv_heads, *mask.shape) + mask
    weight = (scores - scores.amax(dim=(2, 4), keepdim=True)).exp()
    parts = torch.bmm(weight.view(-1, *weight.shape[3:]), value_blocks).view(kv_heads, sequences, blocks, -1, width)
    sums = weight.sum(dim=-1, keepdim=True)
    total, norm = parts[:, :, 0], sums[:, :, 0]
    for block in range(1, blocks):
        total, norm = total + parts[:, :, block], norm + sums[:, :, block]
    mixed = (total / norm)[:, :, :used].view(kv_heads, sequences, length, group, width)
    return mixed.permute(1, 2, 0, 3, 4).flatten(2, 3)
