"""Writes the voice directory: the model in the released checkpoint format, tokenizer, codec, settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from training.codec import FittedCodec
from training.model import Shape, SpeechModel
from training.rows import CODE_PAD, ID, MARKS, SPECIALS

MAX_WORDS = 24  # longer lines are rare in the training text, and are not understood as well
SAMPLING = {
    "audio_temperature": 0.6,
    "audio_top_p": 0.8,
    "audio_top_k": 25,
    "audio_repetition_penalty": 1.0,
    "text_temperature": 0.0,
    "text_top_p": 1.0,
    "text_top_k": 50,
    "max_new_frames": 600,
}
VOICE = {
    "format": 1,
    "name": "numbers",
    "language": "English",
    "trained_for": (
        "digit strings, numbers to 9999, letters by name, dates in words and a few words around them, in short lines"
    ),
    "front_end": {
        "kind": "words",
        "marks": MARKS,
        "max_words": MAX_WORDS,
        "window_words": 16,
        "part_words": 10,
        "place_codebook": 0,
    },
    "prompt": ["<|im_start|>", "{text}", "<|im_end|>", "<|audio_start|>"],
    "codec": "codec",
}


def export(model: SpeechModel, codec: FittedCodec, directory: Path) -> None:
    """Write everything a voice directory holds; weights are rounded to bfloat16."""
    directory.mkdir(parents=True, exist_ok=True)
    weights = {name: weight.detach().to(torch.bfloat16) for name, weight in model.state_dict().items()}
    save_file(weights, directory / "model.safetensors")
    codec.save(directory / "codec")
    _write(directory / "config.json", model_config(model.shape))
    _write(directory / "generation_config.json", SAMPLING)
    _write(directory / "voice.json", VOICE)
    tokenizer().save(str(directory / "tokenizer.json"))


def tokenizer() -> Tokenizer:
    """Whole words split at white space; special tokens are recognised anywhere."""
    words = {token: i for token, i in ID.items() if token not in SPECIALS}
    made = Tokenizer(models.WordLevel(words, unk_token=SPECIALS[0]))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(SPECIALS)
    return made


def model_config(shape: Shape) -> dict[str, object]:
    """The config.json of a model of this shape, with the fields of the released one."""
    sizes = asdict(shape)
    backbone = {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "vocab_size": shape.vocab_size,
        **{
            name: sizes[name]
            for name in (
                "hidden_size",
                "intermediate_size",
                "num_hidden_layers",
                "num_attention_heads",
                "num_key_value_heads",
                "head_dim",
                "rope_theta",
            )
        },
        "rms_norm_eps": shape.eps,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "max_position_embeddings": 4096,
        "rope_scaling": None,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "dtype": "bfloat16",
    }
    local = {
        "model_type": "gpt2",
        "n_embd": shape.hidden_size,
        "n_layer": 1,
        "n_head": shape.n_head,
        "n_inner": shape.n_inner,
        "n_positions": 4096,
        "n_ctx": 4096,
        "vocab_size": shape.vocab_size,
        "activation_function": "silu",
        "layer_norm_epsilon": shape.eps,
        "position_embedding_type": "rope",
        "rope_base": shape.rope_theta,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "scale_attn_weights": True,
        "tie_word_embeddings": True,
    }
    return {
        "model_type": "moss_tts_local",
        "architectures": ["MossTTSLocalModel"],
        "qwen3_config": backbone,
        "language_config": backbone,
        "gpt2_config": local,
        "n_vq": shape.n_vq,
        "audio_vocab_size": shape.audio_vocab_size,
        "audio_codebook_sizes": [shape.audio_vocab_size] * shape.n_vq,
        "audio_pad_token_id": CODE_PAD,
        "audio_pad_code": CODE_PAD,
        "pad_token_id": ID["<|pad|>"],
        "im_start_token_id": ID["<|im_start|>"],
        "im_end_token_id": ID["<|im_end|>"],
        "audio_start_token_id": ID["<|audio_start|>"],
        "audio_end_token_id": ID["<|audio_end|>"],
        "audio_user_slot_token_id": ID["<|user_slot|>"],
        "audio_assistant_slot_token_id": ID["<|assistant_slot|>"],
        "audio_assistant_gen_slot_token_id": ID["<|assistant_slot|>"],
        "sampling_rate": 24000,
        "audio_tokenizer_name_or_path": "codec",
        "local_transformer_layers": 1,
        "local_text_head_mode": "binary",
        "initializer_range": 0.02,
    }


def _write(path: Path, content: Mapping[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
