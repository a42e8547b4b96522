"""Random checkpoints in the released format, of any size: for tests and benchmarks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor


@dataclass(frozen=True)
class Sizes:
    """Sizes of a random checkpoint. With ``endless`` its stop head is all zeros: greedy never stops."""

    layers: int = 2
    hidden: int = 64
    inner: int = 96
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    local_inner: int = 80
    local_heads: int = 4
    local_layers: int = 1
    codebooks: int = 12
    codes: int = 64
    vocab: int = 128
    positions: int = 1024
    stop_head: str = "binary"
    endless: bool = True


HUNDRED_MILLION = Sizes(
    layers=10,
    hidden=768,
    inner=3072,
    heads=12,
    kv_heads=4,
    head_dim=64,
    local_inner=3072,
    local_heads=12,
    codes=1024,
    vocab=1024,
    positions=4096,
)
"""About 100 million parameters: the benchmarks' stand-in for a real model."""


def tensors(sizes: Sizes, seed: int = 0) -> dict[str, Tensor]:
    """The tensors of a random checkpoint, float32, the tied heads left out."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, scale: float = 0.3) -> Tensor:
        return torch.randn(*shape, generator=generator) * scale

    hidden, width = sizes.hidden, sizes.head_dim
    made = {
        "transformer.embed_tokens.weight": normal(sizes.vocab, hidden),
        "transformer.norm.weight": 1 + normal(hidden, scale=0.1),
        "local_transformer.ln_f.weight": 1 + normal(hidden, scale=0.1),
        "local_transformer.ln_f.bias": normal(hidden, scale=0.1),
    }
    if sizes.stop_head == "binary":
        made["local_text_lm_head.weight"] = normal(2, hidden, scale=0.0 if sizes.endless else 0.3)
    for k in range(sizes.codebooks):
        made[f"audio_embeddings.{k}.weight"] = normal(sizes.codes, hidden)
    for i in range(sizes.layers):
        prefix = f"transformer.layers.{i}"
        for name, outputs, inputs in (
            ("self_attn.q_proj", sizes.heads * width, hidden),
            ("self_attn.k_proj", sizes.kv_heads * width, hidden),
            ("self_attn.v_proj", sizes.kv_heads * width, hidden),
            ("self_attn.o_proj", hidden, sizes.heads * width),
            ("mlp.gate_proj", sizes.inner, hidden),
            ("mlp.up_proj", sizes.inner, hidden),
            ("mlp.down_proj", hidden, sizes.inner),
        ):
            made[f"{prefix}.{name}.weight"] = normal(outputs, inputs)
        for name, size in (
            ("input_layernorm", hidden),
            ("post_attention_layernorm", hidden),
            ("self_attn.q_norm", width),
            ("self_attn.k_norm", width),
        ):
            made[f"{prefix}.{name}.weight"] = 1 + normal(size, scale=0.1)
    for i in range(sizes.local_layers):
        prefix = f"local_transformer.h.{i}"
        for name, outputs, inputs in (
            ("attn.c_attn", 3 * hidden, hidden),
            ("attn.c_proj", hidden, hidden),
            ("mlp.fc_in", sizes.local_inner, hidden),
            ("mlp.fc_out", hidden, sizes.local_inner),
        ):
            made[f"{prefix}.{name}.weight"] = normal(outputs, inputs)
            made[f"{prefix}.{name}.bias"] = normal(outputs, scale=0.1)
        for name in ("ln_1", "ln_2"):
            made[f"{prefix}.{name}.weight"] = 1 + normal(hidden, scale=0.1)
            made[f"{prefix}.{name}.bias"] = normal(hidden, scale=0.1)
    return made


def config(sizes: Sizes) -> dict[str, object]:
    """The config.json of a random checkpoint; its special ids are the last 12 of the vocabulary."""
    first = sizes.vocab - 12
    text = {
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.inner,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "hidden_act": "silu",
        "vocab_size": sizes.vocab,
        "max_position_embeddings": sizes.positions,
    }
    return {
        "model_type": "moss_tts_local",
        "n_vq": sizes.codebooks,
        "audio_vocab_size": sizes.codes,
        "audio_pad_code": sizes.codes,
        "local_transformer_layers": sizes.local_layers,
        "local_text_head_mode": sizes.stop_head,
        "pad_token_id": first,
        "im_start_token_id": first + 1,
        "im_end_token_id": first + 2,
        "audio_user_slot_token_id": first + 4,
        "audio_assistant_slot_token_id": first + 6,
        "audio_start_token_id": first + 10,
        "audio_end_token_id": first + 11,
        "qwen3_config": text,
        "gpt2_config": {
            "n_embd": sizes.hidden,
            "n_head": sizes.local_heads,
            "n_inner": sizes.local_inner,
            "activation_function": "silu",
            "position_embedding_type": "rope",
            "layer_norm_epsilon": 1e-6,
            "rope_base": 1e6,
        },
    }


def write(directory: Path, sizes: Sizes, seed: int = 0) -> Path:
    """Write a random checkpoint directory and return it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config(sizes)))
    save_file(tensors(sizes, seed), directory / "model.safetensors")
    return directory


def prompt(sizes: Sizes, rows: int, seed: int = 0) -> Tensor:
    """Random prompt rows int64 [rows, C]: text rows, the last third audio rows as a reference has them."""
    generator = torch.Generator().manual_seed(seed)
    made = torch.full((rows, sizes.codebooks + 1), sizes.codes)
    made[:, 0] = torch.randint(0, sizes.vocab - 12, (rows,), generator=generator)
    audio = rows - rows // 3
    made[audio:, 0] = sizes.vocab - 8
    made[audio:, 1:] = torch.randint(0, sizes.codes, (rows - audio, sizes.codebooks), generator=generator)
    return made
