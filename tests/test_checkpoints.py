"""Finding a checkpoint: what its files may say, and what never happens without the user's word."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests import checkpoints
from tests.test_moss_codec import STAND_IN, weights
from voxradix import Engine, VoxradixError
from voxradix.checkpoint import find_checkpoint
from voxradix.models.moss_local import read_config
from voxradix.voice import load_voice

SIZES = checkpoints.Sizes(codebooks=4, codes=16, vocab=256)
CPU = torch.device("cpu")


def codec(directory: Path) -> Path:
    """A stand-in codec whose code leaves a mark where it runs."""
    shutil.copytree(STAND_IN, directory, ignore=shutil.ignore_patterns("__pycache__"))
    save_file(weights(), directory / "model.safetensors", metadata={"format": "pt"})
    with (directory / "modeling_stand_in.py").open("a") as code:
        code.write(f"\nfrom pathlib import Path as _P\n_P({str(directory / 'ran')!r}).touch()\n")
    return directory


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    directory = checkpoints.write(tmp_path / "moss", SIZES)
    change(directory / "config.json", audio_tokenizer_name_or_path="codec")
    codec(directory / "codec")
    return directory


def change(path: Path, **values: Any) -> None:
    held = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(held | values))


@pytest.mark.parametrize("settings", [None, {}, {"codec": None}])
def test_no_file_of_a_checkpoint_can_give_the_users_word(settings: dict[str, object] | None, directory: Path) -> None:
    if settings is not None:
        (directory / "voice.json").write_text(json.dumps(settings))
    checkpoint = find_checkpoint(directory)
    for load in (checkpoint.check_codec, lambda: checkpoint.load_codec(CPU)):
        with pytest.raises(VoxradixError, match=f"the codec {directory / 'codec'} is run by Python code"):
            load()
    assert not (directory / "codec" / "ran").exists()
    find_checkpoint(directory, trust_remote_code=True).load_codec(CPU)
    assert (directory / "codec" / "ran").exists()


def test_a_codec_in_the_current_directory_is_not_the_checkpoints(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    stray = codec(tmp_path / "elsewhere" / "codec")
    monkeypatch.chdir(tmp_path / "elsewhere")
    find_checkpoint(directory, trust_remote_code=True).load_codec(CPU)
    assert (directory / "codec" / "ran").exists() and not (stray / "ran").exists()
    find_checkpoint(directory, codec="codec", trust_remote_code=True).load_codec(CPU)
    assert (stray / "ran").exists()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"audio_tokenizer_name_or_path": None}, "names no codec"),
        ({"audio_tokenizer_name_or_path": "no/such/codec"}, "'no/such/codec' is neither a directory nor a name"),
    ],
)
def test_a_codec_that_is_nowhere_is_named(values: dict[str, object], message: str, directory: Path) -> None:
    change(directory / "config.json", **values)
    with pytest.raises(VoxradixError, match=message):
        find_checkpoint(directory, trust_remote_code=True).check_codec()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "the voice is ''"),
        ("a\0b", "cannot be looked into"),
        ("x" * 5000, "cannot be looked into: .{,200}"),
        (3, "the voice is 3"),
    ],
)
def test_a_name_that_can_be_no_path_is_refused(name: Any, message: str) -> None:
    with pytest.raises(VoxradixError, match=message):
        find_checkpoint(name)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4}}, "rope_type is 'yarn'"),
        ({"rope_scaling": {"type": "yarn"}}, "rope_scaling is"),
        ({"rope_parameters": {"rope_theta": 1e4}}, "rope_theta is .1000000.0, 10000.0.; it must be one number"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000; it must lie in 1 .. 1000"),
    ],
)
def test_what_would_be_another_model_is_refused(section: dict[str, object], message: str, directory: Path) -> None:
    held = json.loads((directory / "config.json").read_text())
    change(directory / "config.json", qwen3_config=held["qwen3_config"] | section)
    with pytest.raises(VoxradixError, match=message):
        read_config(directory)


def test_two_names_of_one_section_must_agree(directory: Path) -> None:
    held = json.loads((directory / "config.json").read_text())["qwen3_config"]
    change(directory / "config.json", language_config=held)
    assert read_config(directory).backbone.hidden == SIZES.hidden
    change(directory / "config.json", language_config=held | {"rms_norm_eps": 1e-5})
    with pytest.raises(VoxradixError, match="language_config and qwen3_config differ"):
        read_config(directory)


def test_a_config_without_a_head_dim_means_qwens(directory: Path) -> None:
    held = json.loads((directory / "config.json").read_text())["qwen3_config"]
    del held["head_dim"]
    change(directory / "config.json", qwen3_config=held)
    assert read_config(directory).backbone.head_dim == 128


@pytest.mark.parametrize("other", ["audio_assistant_slot_token_id", "audio_user_slot_token_id", "im_end_token_id"])
def test_ids_with_meanings_of_their_own_are_apart(other: str, directory: Path) -> None:
    held = json.loads((directory / "config.json").read_text())
    change(directory / "config.json", **{other: held["audio_end_token_id"]})
    with pytest.raises(VoxradixError, match="have the same id"):
        read_config(directory)


def tokenizer(directory: Path, model: dict[str, object]) -> Path:
    (directory / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model}))
    return directory


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"type": "BPE", "vocab": {}, "merges": []}, "has no ids for"),
        ({"type": "BPE", "vocab": {"a": 1}, "merges": [], "dropout": 0.5}, "has a dropout"),
        ({"type": "BPE", "vocab": {"a": 256}, "merges": []}, "has ids up to 256, and config.json a vocab_size of 256"),
        ({"type": "BPE", "vocab": {"e": 250, "u": 1, "s": 2, "r": 3}, "merges": []}, "one of the model's control ids"),
        ({"type": "WordLevel", "vocab": {"a": 1}, "unk_token": "[UNK]"}, "tokenizer.json cannot write"),
    ],
)
def test_a_tokenizer_that_would_lose_a_text_is_refused(model: dict[str, object], message: str, directory: Path) -> None:
    with pytest.raises(VoxradixError, match=message):
        load_voice(tokenizer(directory, model)).prompt("a")


def test_odd_sampling_defaults_are_named_once(directory: Path) -> None:
    (directory / "generation_config.json").write_text('{"text_temperature": NaN, "audio_top_k": null}')
    with pytest.raises(VoxradixError) as error:
        load_voice(directory)
    assert str(error.value).count("generation_config.json") == 1 and "text_temperature is nan" in str(error.value)
    (directory / "generation_config.json").write_text('{"audio_top_k": null}')
    assert load_voice(directory).sampling.codes.top_k == 25


@pytest.mark.parametrize("rows", [2**31 - 1, 10**13, 10**23])
def test_a_pool_that_no_memory_holds_is_refused(rows: int, directory: Path) -> None:
    with pytest.raises(VoxradixError, match=r"pool_rows|which cannot be had"):
        Engine(load_voice(directory), pool_rows=rows)
