"""The local transformer and the frame decoder: from a row's hidden state to the next frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from voxradix.models.moss_local.backbone import RotaryTable, Rotation, silu
from voxradix.models.moss_local.config import LocalConfig, MossLocalConfig
from voxradix.models.moss_local.embedding import RowEmbedding
from voxradix.models.moss_local.linear import Linear
from voxradix.models.moss_local.weights import Source


class Chooser(Protocol):
    """Turns logits into choices: a seeded sampler in the engine, a recorder in tests."""

    def stop(self, logits: Tensor) -> Tensor:
        """Choose from stop logits float32 [R, 2]: int64 [R], 0 to go on and 1 to stop."""

    def code(self, channel: int, logits: Tensor) -> Tensor:
        """Choose a code of codebook ``channel`` from logits float32 [R, V]: int64 [R]."""


@dataclass(frozen=True, slots=True)
class Frames:
    """One decoded frame a row: bool [R] stop decisions, int64 [R, codebooks] codes, and whether all was finite.

    Codes of a row that stopped are meaningless; ``finite`` is bool [R].
    """

    stop: Tensor
    codes: Tensor
    finite: Tensor


class _LocalCache:
    """Keys and values of the positions a frame has passed, [R, heads, positions, head_dim] each."""

    def __init__(self, rows: int, positions: int, config: LocalConfig, device: torch.device) -> None:
        shape = (rows * config.heads, positions, config.head_dim)
        self.keys = torch.empty(shape, dtype=torch.float32, device=device)
        self.values = torch.empty(shape, dtype=torch.float32, device=device)


class _Block:
    def __init__(self, config: LocalConfig, weights: Source, index: int) -> None:
        prefix, hidden = f"local_transformer.h.{index}", config.hidden

        def norm(name: str) -> tuple[Tensor, Tensor]:
            return (
                weights.take(f"{prefix}.{name}.weight", hidden).to(torch.float32),
                weights.take(f"{prefix}.{name}.bias", hidden).to(torch.float32),
            )

        def linear(name: str, outputs: int, inputs: int) -> Linear:
            weight = weights.take(f"{prefix}.{name}.weight", outputs, inputs)
            return Linear(weight, weights.take(f"{prefix}.{name}.bias", outputs))

        self._config = config
        self._norm = norm("ln_1")
        self._attn = linear("attn.c_attn", 3 * hidden, hidden)
        self._out = linear("attn.c_proj", hidden, hidden)
        self._mlp_norm = norm("ln_2")
        self._fc_in = linear("mlp.fc_in", config.inner, hidden)
        self._fc_out = linear("mlp.fc_out", hidden, config.inner)

    def __call__(self, x: Tensor, position: int, rotation: Rotation, cache: _LocalCache) -> Tensor:
        rows, (heads, width) = x.shape[0], (self._config.heads, self._config.head_dim)
        qkv = self._attn(self._layer_norm(x, self._norm)).view(rows, 3 * heads, width)
        turned = rotation.interleaved(qkv[:, : 2 * heads])
        query = turned[:, :heads].reshape(rows * heads, 1, width) * width**-0.5
        cache.keys[:, position] = turned[:, heads:].reshape(rows * heads, width)
        cache.values[:, position] = qkv[:, 2 * heads :].reshape(rows * heads, width)
        scores = torch.bmm(query, cache.keys[:, : position + 1].transpose(1, 2))
        mixed = torch.bmm(scores.softmax(dim=-1), cache.values[:, : position + 1])
        x = x + self._out(mixed.view(rows, heads * width))
        return x + self._fc_out(silu(self._fc_in(self._layer_norm(x, self._mlp_norm))))

    def _layer_norm(self, x: Tensor, parameters: tuple[Tensor, Tensor]) -> Tensor:
        return F.layer_norm(x, (self._config.hidden,), *parameters, self._config.norm_eps)


class FrameDecoder:
    """Decodes one frame from a hidden state: the stop decision, then the codes one after the other."""

    def __init__(self, config: MossLocalConfig, weights: Source, embedding: RowEmbedding) -> None:
        """Take the local transformer's weights; the code heads are the embedding's own tables."""
        local = config.local
        self._config = local
        self._blocks = [_Block(local, weights, index) for index in range(local.layers)]
        self._norm_weight = weights.take("local_transformer.ln_f.weight", local.hidden).to(torch.float32)
        self._norm_bias = weights.take("local_transformer.ln_f.bias", local.hidden).to(torch.float32)
        if config.binary_stop_head:
            stop = weights.take("local_text_lm_head.weight", 2, local.hidden)
        else:
            stop = embedding.text_rows((config.assistant_slot_id, config.audio_end_id))
        self._stop_head = Linear(stop)
        self._code_heads = [Linear(embedding.code_table(k)) for k in range(config.codebooks)]
        self._embedding = embedding
        self._codebooks = config.codebooks
        table = RotaryTable(config.codebooks, local.head_dim, local.rope_base, weights.device)
        self._rotations = [table.at(torch.tensor([k], device=weights.device)) for k in range(config.codebooks)]

    def __call__(self, hidden: Tensor, chooser: Chooser) -> Frames:
        """Decode the frame that follows each hidden state, float32 [R, hidden]."""
        caches = [_LocalCache(hidden.shape[0], self._codebooks, self._config, hidden.device) for _ in self._blocks]
        x = self._step(hidden, 0, caches)
        stop_logits = self._stop_head(x)
        stop = chooser.stop(stop_logits)
        traces = (stop_logits * 0.0).sum(dim=-1)  # 0 if every logit is finite, else NaN
        codes: list[Tensor] = []
        for channel, head in enumerate(self._code_heads):
            if channel:
                x = self._step(self._embedding.code(channel - 1, codes[-1]), channel, caches)
            logits = head(x)
            traces = traces + (logits * 0.0).sum(dim=-1)
            codes.append(chooser.code(channel, logits))
        return Frames(stop == 1, torch.stack(codes, dim=1), traces == 0.0)

    def _step(self, x: Tensor, position: int, caches: list[_LocalCache]) -> Tensor:
        for block, cache in zip(self._blocks, caches, strict=True):
            x = block(x, position, self._rotations[position], cache)
        return F.layer_norm(x, (self._config.hidden,), self._norm_weight, self._norm_bias, self._config.norm_eps)
