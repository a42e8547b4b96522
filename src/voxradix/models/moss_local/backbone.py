"""The Qwen3 backbone: rows in, the hidden state behind each row out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from voxradix.models.moss_local.attention import KVStore, Placement, attend
from voxradix.models.moss_local.config import BackboneConfig
from voxradix.models.moss_local.linear import Linear
from voxradix.models.moss_local.weights import Source


def silu(x: Tensor) -> Tensor:
    """``x * sigmoid(x)`` from operations that round alike in vector and scalar code.

    torch's own silu computes a tensor's last elements by another routine, so its bits depend on the batch.
    """
    return x / (1.0 + (-x).exp())


class RMSNorm:
    """Root-mean-square norm over the last dimension, in float32."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        """A norm with a weight [width]."""
        self._weight = weight.to(torch.float32)
        self._eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise x [..., width]."""
        return x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + self._eps) * self._weight


@dataclass(frozen=True, slots=True)
class Rotation:
    """Cosines and sines of a batch's positions, float32 [R, 1, head_dim / 2] each."""

    cos: Tensor
    sin: Tensor

    def half_split(self, x: Tensor) -> Tensor:
        """Rotate x [R, heads, head_dim], pairing column i with i + head_dim / 2."""
        left, right = x.chunk(2, dim=-1)
        return torch.cat((left * self.cos - right * self.sin, right * self.cos + left * self.sin), dim=-1)

    def interleaved(self, x: Tensor) -> Tensor:
        """Rotate x [R, heads, head_dim], pairing column 2i with 2i + 1."""
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = torch.stack((even * self.cos - odd * self.sin, odd * self.cos + even * self.sin), dim=-1)
        return turned.flatten(-2)


class RotaryTable:
    """Rotations of positions ``0 .. positions - 1``, computed once so that equal positions have equal bits."""

    def __init__(self, positions: int, width: int, base: float, device: torch.device) -> None:
        """A table for heads of ``width`` columns and a rotary base."""
        rates = 1.0 / base ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
        angles = torch.outer(torch.arange(positions, dtype=torch.float32), rates)
        self._cos = angles.cos().unsqueeze(1).to(device)
        self._sin = angles.sin().unsqueeze(1).to(device)

    def at(self, positions: Tensor) -> Rotation:
        """The rotation of int64 positions [R]."""
        return Rotation(self._cos.index_select(0, positions), self._sin.index_select(0, positions))


class _Layer:
    def __init__(self, config: BackboneConfig, weights: Source, index: int) -> None:
        prefix = f"transformer.layers.{index}"
        hidden, width = config.hidden, config.head_dim
        self._config = config
        self._index = index
        self._norm = RMSNorm(weights.take(f"{prefix}.input_layernorm.weight", hidden), config.rms_eps)
        self._mlp_norm = RMSNorm(weights.take(f"{prefix}.post_attention_layernorm.weight", hidden), config.rms_eps)
        self._query_norm = RMSNorm(weights.take(f"{prefix}.self_attn.q_norm.weight", width), config.rms_eps)
        self._key_norm = RMSNorm(weights.take(f"{prefix}.self_attn.k_norm.weight", width), config.rms_eps)
        heads = {"q": config.heads, "k": config.kv_heads, "v": config.kv_heads}
        qkv = {f"{prefix}.self_attn.{name}_proj.weight": count * width for name, count in heads.items()}
        self._qkv = Linear(weights.stacked(qkv, hidden))
        self._out = Linear(weights.take(f"{prefix}.self_attn.o_proj.weight", hidden, config.heads * width))
        gate_up = {f"{prefix}.mlp.{name}_proj.weight": config.inner for name in ("gate", "up")}
        self._gate_up = Linear(weights.stacked(gate_up, hidden))
        self._down = Linear(weights.take(f"{prefix}.mlp.down_proj.weight", hidden, config.inner))

    def __call__(self, x: Tensor, place: Placement, mask: Tensor, rotation: Rotation, kv: KVStore) -> Tensor:
        heads, kv_heads, width = self._config.heads, self._config.kv_heads, self._config.head_dim
        qkv = self._qkv(self._norm(x)).view(x.shape[0], heads + 2 * kv_heads, width)
        query, key, value = qkv.split((heads, kv_heads, kv_heads), dim=1)
        query = rotation.half_split(self._query_norm(query)) * width**-0.5
        key = rotation.half_split(self._key_norm(key))
        kv.write(self._index, place.slots, key, value)
        x = x + self._out(attend(query, kv.keys[self._index], kv.values[self._index], place, mask))
        gate, up = self._gate_up(self._mlp_norm(x)).chunk(2, dim=-1)
        return x + self._down(silu(gate) * up)


class Backbone:
    """The transformer over a sequence's rows."""

    def __init__(self, config: BackboneConfig, weights: Source) -> None:
        """Take the backbone's weights."""
        self._layers = [_Layer(config, weights, index) for index in range(config.layers)]
        self._norm = RMSNorm(weights.take("transformer.norm.weight", config.hidden), config.rms_eps)
        self._rotary = RotaryTable(config.positions, config.head_dim, config.rope_theta, weights.device)
        self._group = config.heads // config.kv_heads

    def __call__(self, x: Tensor, place: Placement, kv: KVStore) -> Tensor:
        """Run new rows' embeddings float32 [R, hidden] through all layers, writing their slots.

        Returns:
            float32 [R, hidden] after the final norm.
        """
        mask = place.mask(self._group)
        rotation = self._rotary.at(place.positions.flatten())
        for layer in self._layers:
            x = layer(x, place, mask, rotation, kv)
        return self._norm(x)
