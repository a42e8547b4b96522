"""Checkpoints as they come: layouts, shards, types, sizes, damage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests import checkpoints
from tests.checkpoints import TINY
from voxradix import GREEDY, Engine
from voxradix.errors import VoxradixError
from voxradix.models.moss_local import load
from voxradix.voice import load_voice


def frames(directory: Path, prompt: Tensor) -> Tensor:
    return Engine(directory, pool_rows=100).generate(prompt, sampling=GREEDY, max_frames=6).rows


@pytest.fixture
def prompt() -> Tensor:
    return checkpoints.prompt(checkpoints.Sizes(), 20)


def test_both_config_layouts_read_alike(tmp_path: Path) -> None:
    old = load(TINY / "checkpoint").config
    newer = tmp_path / "newer"
    shutil.copytree(TINY / "checkpoint", newer)
    (newer / "config_v5_style.json").replace(newer / "config.json")
    assert load(newer).config == old


def test_shards_with_an_index_load_like_one_file(checkpoint: Path, prompt: Tensor) -> None:
    expected = frames(checkpoint, prompt)
    tensors = load_file(checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    weight_map = {name: f"model-{i % 3}.safetensors" for i, name in enumerate(tensors)}
    for shard in set(weight_map.values()):
        save_file({n: t for n, t in tensors.items() if weight_map[n] == shard}, checkpoint / shard)
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert torch.equal(frames(checkpoint, prompt), expected)


def test_tied_heads_in_the_file_change_nothing(checkpoint: Path, prompt: Tensor) -> None:
    expected = frames(checkpoint, prompt)
    tensors = load_file(checkpoint / "model.safetensors")
    tensors["text_lm_head.weight"] = tensors["transformer.embed_tokens.weight"].clone()
    for k in range(12):
        tensors[f"audio_lm_heads.{k}.weight"] = tensors[f"audio_embeddings.{k}.weight"].clone()
    save_file(tensors, checkpoint / "model.safetensors")
    assert torch.equal(frames(checkpoint, prompt), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_files_load_as_their_float32_values(
    dtype: torch.dtype, checkpoint: Path, prompt: Tensor
) -> None:
    half = {name: tensor.to(dtype) for name, tensor in load_file(checkpoint / "model.safetensors").items()}
    save_file({name: tensor.float() for name, tensor in half.items()}, checkpoint / "model.safetensors")
    expected = frames(checkpoint, prompt)
    save_file(half, checkpoint / "model.safetensors")
    assert torch.equal(frames(checkpoint, prompt), expected)


def test_a_full_vocabulary_stop_head_reads_the_two_ids_of_the_text_table(tmp_path: Path) -> None:
    sizes = checkpoints.Sizes(stop_head="full_vocab")
    directory = checkpoints.write(tmp_path / "full", sizes)
    ids = load(directory).config
    tensors = load_file(directory / "model.safetensors")
    table = tensors["transformer.embed_tokens.weight"]
    tensors["local_text_lm_head.weight"] = table[[ids.assistant_slot_id, ids.audio_end_id]].clone()
    binary = checkpoints.write(tmp_path / "binary", checkpoints.Sizes())
    save_file(tensors, binary / "model.safetensors")
    prompt = checkpoints.prompt(sizes, 12)
    assert torch.equal(frames(directory, prompt), frames(binary, prompt))


@pytest.mark.parametrize(
    "sizes",
    [
        checkpoints.Sizes(codebooks=5, codes=10, layers=1),
        checkpoints.Sizes(codebooks=16, local_layers=2, heads=6, kv_heads=2, head_dim=16),
        checkpoints.Sizes(hidden=48, heads=3, kv_heads=1, inner=100, local_inner=52, local_heads=2),
        checkpoints.Sizes(hidden=50, heads=5, kv_heads=1, head_dim=10, inner=33, local_inner=9, local_heads=5),
    ],
)
def test_other_sizes_keep_one_seed_one_waveform(sizes: checkpoints.Sizes, tmp_path: Path) -> None:
    voice = load_voice(checkpoints.write(tmp_path / "sizes", sizes))
    prompts = [checkpoints.prompt(sizes, 9 + i, seed=i) for i in range(5)]
    alone = [Engine(voice, pool_rows=100).generate(p, seed=3, max_frames=8).rows for p in prompts]
    together = Engine(voice, pool_rows=200, chunk_rows=4).generate_batch(prompts, seed=3, max_frames=8)
    assert all(torch.equal(a, b.rows) for a, b in zip(alone, together, strict=True))


def damaged(checkpoint: Path, **changes: object) -> Path:
    values = json.loads((checkpoint / "config.json").read_text())
    for name, value in changes.items():
        section, _, field = name.rpartition("__")
        target = values[section] if section else values
        if value is None:
            target.pop(field)
        else:
            target[field] = value
    (checkpoint / "config.json").write_text(json.dumps(values))
    return checkpoint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "qwen3"}, "model_type is 'qwen3'; this model family needs 'moss_tts_local'"),
        ({"n_vq": None}, "has no field n_vq"),
        ({"n_vq": "12"}, "n_vq is '12'; it must be of type int"),
        ({"n_vq": 0}, "n_vq is 0; it must lie in 1"),
        ({"qwen3_config": None}, "no section language_config or qwen3_config"),
        ({"qwen3_config__rope_theta": None}, "rope_theta is nowhere"),
        ({"qwen3_config__num_key_value_heads": 3}, "4 heads do not share 3 KV heads"),
        ({"qwen3_config__hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"gpt2_config__n_embd": 32}, "n_embd is 32 and hidden_size 64"),
        ({"gpt2_config__position_embedding_type": "learned"}, "position_embedding_type is 'learned'"),
        ({"audio_end_token_id": 4000}, "the audio_end id is 4000"),
        ({"audio_end_token_id": -1}, "audio_end_token_id is -1; it must lie in 0"),
        ({"n_vq": 10**12}, "n_vq is 1000000000000; it must lie in 1"),
        ({"qwen3_config__rms_norm_eps": 0}, "rms_norm_eps is 0; it must lie in"),
        ({"qwen3_config__rope_theta": 10**400}, "rope_theta is 1000"),
        ({"gpt2_config__rope_base": float("nan")}, "rope_base is nan"),
        ({"audio_pad_code": 3}, "audio_pad_code is 3"),
        ({"local_text_head_mode": "other"}, "local_text_head_mode is 'other'"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_by_field(
    changes: dict[str, object], message: str, checkpoint: Path
) -> None:
    with pytest.raises(VoxradixError, match=message):
        load(damaged(checkpoint, **changes))


def test_a_missing_or_misshapen_tensor_is_named(checkpoint: Path) -> None:
    path, name = checkpoint / "model.safetensors", "transformer.layers.1.self_attn.k_norm.weight"
    tensors = load_file(path)
    save_file({**tensors, name: torch.zeros(16)}, path)
    with pytest.raises(VoxradixError, match=rf"{name} has shape \[16\]; config.json asks for \[32\]"):
        load(checkpoint)
    del tensors[name]
    save_file(tensors, path)
    with pytest.raises(VoxradixError, match=f"no tensor {name}"):
        load(checkpoint)


def test_a_surplus_tensor_is_named_in_a_warning(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    save_file({**load_file(path), "odd.weight": torch.zeros(1)}, path)
    with pytest.warns(UserWarning, match=r"odd\.weight"):
        load(checkpoint)


def test_an_integer_tensor_is_refused(checkpoint: Path) -> None:
    path, name = checkpoint / "model.safetensors", "transformer.norm.weight"
    save_file({**load_file(path), name: torch.zeros(64, dtype=torch.int64)}, path)
    with pytest.raises(VoxradixError, match=f"{name} is torch.int64"):
        load(checkpoint)


@pytest.mark.parametrize("keep", [0, 5, 2000, -1])
def test_a_truncated_file_is_named(keep: int, checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(VoxradixError, match=r"model\.safetensors is not a readable safetensors file"):
        load(checkpoint)


@pytest.mark.parametrize(
    "index", ["{}", '{"weight_map": {"a": 3}}', '{"weight_map": {"a": "../x.safetensors"}}', "[]", "{"]
)
def test_a_bad_index_is_refused(index: str, checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    (checkpoint / "model.safetensors.index.json").write_text(index)
    with pytest.raises(VoxradixError, match=r"index\.json"):
        load(checkpoint)


def test_a_shard_that_is_missing_or_lacks_its_tensor_is_named(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").replace(checkpoint / "a.safetensors")
    index = checkpoint / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"x": "b.safetensors"}}')
    with pytest.raises(VoxradixError, match=r"b\.safetensors does not exist"):
        load(checkpoint)
    index.write_text('{"weight_map": {"x": "a.safetensors"}}')
    with pytest.raises(VoxradixError, match="lacks tensor x"):
        load(checkpoint)


def test_a_directory_without_weights_or_config_is_refused(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(VoxradixError, match=r"holds neither model\.safetensors nor"):
        load(checkpoint)
    (checkpoint / "config.json").unlink()
    with pytest.raises(VoxradixError, match=r"config\.json does not exist"):
        load(checkpoint)
    with pytest.raises(VoxradixError, match="is not a directory"):
        load(checkpoint / "nowhere")
