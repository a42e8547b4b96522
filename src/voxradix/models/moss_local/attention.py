"""Attention over slots: the KV store, where a batch's rows stand in it, and the exact attention itself."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from voxradix.models.moss_local.config import BackboneConfig
from voxradix.models.moss_local.linear import LANES, padded, widened

BLOCK = 64
"""Keys are taken in blocks of this many; a context is padded to whole blocks."""


class KVStore:
    """Keys and values of every slot and layer, float32 [layers, kv_heads, slots + 2, head_dim widened] each.

    Two slots lie beyond the pool: ``null`` is never written and stands where a context is padded, ``waste``
    takes what padding rows write.
    """

    def __init__(self, config: BackboneConfig, slots: int, device: torch.device) -> None:
        """A store of zeros."""
        width = -(-config.head_dim // LANES) * LANES
        shape = (config.layers, config.kv_heads, slots + 2, width)
        self.keys = torch.zeros(shape, dtype=torch.float32, device=device)
        self.values = torch.zeros(shape, dtype=torch.float32, device=device)
        self.null = slots
        self.waste = slots + 1


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
        keys: One layer's keys, float32 [kv_heads, slots, head_dim widened]; values likewise.
        values: One layer's values.
        placement: Where the rows stand.
        mask: ``placement.mask(heads // kv_heads)``.

    Returns:
        float32 [S * T, heads * head_dim].
    """
    sequences, length = placement.positions.shape
    kv_heads, _, width = keys.shape
    blocks = placement.context.shape[1] // BLOCK
    group = query.shape[1] // kv_heads
    used = length * group
    slots = placement.context.flatten()
    key_blocks = keys.index_select(1, slots).view(kv_heads * sequences * blocks, BLOCK, width)
    value_blocks = values.index_select(1, slots).view(kv_heads * sequences * blocks, BLOCK, width)

    # [S, T, kv, G, D] -> [kv, S, 1, T * G (padded), D]: the queries that share a KV head are rows of one product
    head_dim = query.shape[2]
    rows = widened(query).view(sequences, length, kv_heads, group, width).permute(2, 0, 1, 3, 4)
    rows = rows.reshape(kv_heads, sequences, 1, used, width)
    rows = F.pad(rows, (0, 0, 0, padded(used) - used))
    tiles = rows.expand(-1, -1, blocks, -1, -1).reshape(kv_heads * sequences * blocks, -1, width)

    scores = torch.bmm(tiles, key_blocks.transpose(1, 2)).view(kv_heads, *mask.shape) + mask
    weight = (scores - scores.amax(dim=(2, 4), keepdim=True)).exp()
    parts = torch.bmm(weight.view(-1, *weight.shape[3:]), value_blocks).view(kv_heads, sequences, blocks, -1, width)
    sums = weight.sum(dim=-1, keepdim=True)
    total, norm = parts[:, :, 0], sums[:, :, 0]
    for block in range(1, blocks):
        total, norm = total + parts[:, :, block], norm + sums[:, :, block]
    mixed = (total / norm)[:, :, :used].view(kv_heads, sequences, length, group, width)[..., :head_dim]
    return mixed.permute(1, 2, 0, 3, 4).reshape(sequences * length, -1)
