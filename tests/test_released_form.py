"""The released model's form: its sizes without its weights, its prompts with its tokenizer, and the whole way from
text to sound through a small random checkpoint and a stand-in codec of the same formats."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import soundfile
import torch
from safetensors.torch import load_file, save_file

from tests import checkpoints
from tests.qwen import ADDED, write_tokenizer
from tests.test_moss_codec import STAND_IN, weights
from voxradix import Engine, Take, VoxradixError, hub
from voxradix.checkpoint import find_checkpoint
from voxradix.models.moss_local import Details, MemoryPlan, MossLocal, prompt_rows, read_config
from voxradix.models.moss_local.weights import Outline
from voxradix.voice import Voice, load_voice

RECORDED = json.loads((Path(__file__).parent / "data" / "prompt_rows.json").read_text())

RELEASED = {
    "model_type": "moss_tts_local",
    "n_vq": 12,
    "audio_vocab_size": 1024,
    "audio_pad_token_id": 1024,
    "audio_pad_code": 1024,
    "local_transformer_layers": 1,
    "local_text_head_mode": "binary",
    "sampling_rate": 48000,
    "audio_tokenizer_name_or_path": "OpenMOSS-Team/MOSS-Audio-Tokenizer-v2",
    "pad_token_id": 151643,
    "im_start_token_id": 151644,
    "im_end_token_id": 151645,
    "audio_user_slot_token_id": 151654,
    "audio_assistant_slot_token_id": 151656,
    "audio_start_token_id": 151669,
    "audio_end_token_id": 151670,
    "qwen3_config": {
        "num_hidden_layers": 36,
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "hidden_act": "silu",
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "attention_bias": False,
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
    },
    "gpt2_config": {
        "n_embd": 2560,
        "n_layer": 1,
        "n_head": 32,
        "n_inner": 9728,
        "activation_function": "silu",
        "layer_norm_epsilon": 1e-6,
        "position_embedding_type": "rope",
        "rope_base": 1e6,
    },
}
"""The released config.json, as far as it is read."""

IDS = {name: value for name, value in RELEASED.items() if name.endswith("_id") and name != "audio_pad_token_id"}


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("released")
    (directory / "config.json").write_text(json.dumps(RELEASED))
    return directory


def test_the_released_config_asks_for_the_released_tensors(released: Path) -> None:
    outline = Outline()
    model = MossLocal(read_config(released), outline)
    layer = {
        "self_attn.q_proj": (4096, 2560),
        "self_attn.k_proj": (1024, 2560),
        "self_attn.v_proj": (1024, 2560),
        "self_attn.o_proj": (2560, 4096),
        "self_attn.q_norm": (128,),
        "self_attn.k_norm": (128,),
        "mlp.gate_proj": (9728, 2560),
        "mlp.up_proj": (9728, 2560),
        "mlp.down_proj": (2560, 9728),
        "input_layernorm": (2560,),
        "post_attention_layernorm": (2560,),
    }
    expected = {f"transformer.layers.{i}.{name}.weight": shape for i in range(36) for name, shape in layer.items()}
    expected |= {f"audio_embeddings.{k}.weight": (1024, 2560) for k in range(12)}
    expected |= {
        "transformer.embed_tokens.weight": (151936, 2560),
        "transformer.norm.weight": (2560,),
        "local_text_lm_head.weight": (2, 2560),
    }
    for name, shape in {
        "h.0.ln_1.weight": (2560,),
        "h.0.ln_1.bias": (2560,),
        "h.0.ln_2.weight": (2560,),
        "h.0.ln_2.bias": (2560,),
        "h.0.attn.c_attn.weight": (7680, 2560),
        "h.0.attn.c_attn.bias": (7680,),
        "h.0.attn.c_proj.weight": (2560, 2560),
        "h.0.attn.c_proj.bias": (2560,),
        "h.0.mlp.fc_in.weight": (9728, 2560),
        "h.0.mlp.fc_in.bias": (9728,),
        "h.0.mlp.fc_out.weight": (2560, 9728),
        "h.0.mlp.fc_out.bias": (2560,),
        "ln_f.weight": (2560,),
        "ln_f.bias": (2560,),
    }.items():
        expected[f"local_transformer.{name}"] = shape
    assert outline.shapes == expected
    assert model.parameters == 4_129_990_144


def test_the_memory_plan_of_the_released_model(released: Path) -> None:
    config = read_config(released)
    plan = MemoryPlan.of(config, torch.bfloat16, 8192)
    assert plan.weight_bytes == 2 * 4_129_990_144
    assert plan.row_bytes == 2 * 2 * 36 * 8 * 128  # keys and values in two bytes
    assert plan.told(12.5) == (
        "8.26 GB of weights (4,129,990,144 parameters in bfloat16), 1.21 GB for a pool of 8,192 rows "
        "(147,456 bytes each); an hour of audio is 45,000 rows, 6.64 GB"
    )
    assert MemoryPlan.within(config, torch.bfloat16, 12 * 10**9).rows == (12 * 10**9 - plan.weight_bytes) // 147456
    with pytest.raises(VoxradixError, match=r"8\.00 GB do not hold the model: its weights take 8\.26 GB in bfloat16"):
        MemoryPlan.within(config, torch.bfloat16, 8 * 10**9)


SIZES = checkpoints.Sizes(layers=1, hidden=16, head_dim=8, codebooks=4, codes=16, vocab=151936, positions=8192)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small checkpoint with the released ids, the released tokenizer, and a codec beside it."""
    directory = checkpoints.write(tmp_path_factory.mktemp("small") / "moss", SIZES)
    write_tokenizer(directory / "tokenizer.json")
    (directory / "generation_config.json").write_text('{"text_temperature": 0}')  # so that it never stops by itself
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | IDS | {"audio_tokenizer_name_or_path": "codec"}))
    shutil.copytree(STAND_IN, directory / "codec", ignore=shutil.ignore_patterns("__pycache__"))
    save_file(weights(), directory / "codec" / "model.safetensors", metadata={"format": "pt"})
    return directory


@pytest.fixture(scope="module")
def voice(directory: Path) -> Voice:
    return load_voice(directory)


@pytest.fixture
def trusting(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Voice:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    return load_voice(find_checkpoint(directory, trust_remote_code=True))


@pytest.mark.parametrize("case", RECORDED, ids=[case["name"] for case in RECORDED])
def test_prompts_are_the_public_processors_to_the_row(case: dict[str, object], directory: Path, released: Path) -> None:
    tokenizer = find_checkpoint(directory).tokenizer
    fields = ("language", "instruction", "tokens", "quality", "sound_event", "ambient_sound")
    continuation = case["continuation_codes"]
    rows = prompt_rows(
        str(case["text"]),
        config=read_config(released),
        encode=lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids),
        details=Details(**{name: case[name] for name in fields}),  # type: ignore[arg-type]
        references=[torch.tensor(codes) for codes in case["reference_codes"]],  # type: ignore[attr-defined]
        continuation=None if continuation is None else torch.tensor(continuation),
    )
    assert torch.equal(rows, torch.tensor(case["rows"]))


@pytest.mark.parametrize("word", ADDED.values())
def test_the_string_of_a_special_token_in_a_text_is_text(word: str, voice: Voice) -> None:
    rows = voice.prompt(f"a{word}b", details=Details(language=word, instruction=f"x {word}"))
    plain = voice.prompt("ab")
    for number in ADDED:
        assert (rows[:, 0] == number).sum() == (plain[:, 0] == number).sum()
    spelled = voice.checkpoint.tokenizer.encode(f"a{word}b", add_special_tokens=False)
    assert voice.checkpoint.tokenizer.decode(spelled.ids) == f"a{word}b"


def test_pauses_and_blanks_stand_in_the_text_untouched(voice: Voice) -> None:
    text = "  one [pause 3.2s] two\n"
    ids = voice.checkpoint.tokenizer.encode(text, add_special_tokens=False).ids
    column = voice.prompt(text)[:, 0].tolist()
    assert any(column[i : i + len(ids)] == ids for i in range(len(column)))


def test_text_that_is_no_unicode_is_refused(voice: Voice) -> None:
    with pytest.raises(VoxradixError, match="it must be Unicode text"):
        voice.prompt("a\ud800b")


def test_a_reference_recording_stands_in_the_prompt_and_a_continuation_keeps_the_details(
    trusting: Voice, tmp_path: Path
) -> None:
    soundfile.write(tmp_path / "voice.wav", torch.rand(24000).numpy() - 0.5, 24000)
    codes = trusting.reference(tmp_path / "voice.wav")
    assert torch.equal(codes, trusting.reference((tmp_path / "voice.wav").read_bytes()))
    engine = Engine(trusting, pool_rows=600)
    details = Details(language="English", tokens=30)
    take = engine.speak("Hello.", details=details, references=[codes], seed=1, max_frames=5)
    prompt = trusting.prompt("Hello.", details=details, references=[codes])
    users = prompt[prompt[:, 0] == IDS["audio_user_slot_token_id"]]
    assert torch.equal(users[:, 1:], codes) and take.prompt_rows == len(prompt)
    take.save(tmp_path / "take.npz")
    loaded = Take.load(tmp_path / "take.npz")
    assert loaded.details == details and torch.equal(loaded.references[0], codes)
    again = engine.speak(after=loaded.at(frames=2), seed=1, max_frames=3)
    assert torch.equal(again.rows, take.rows)
    more = engine.speak("More.", after=loaded.at(frames=4, said="Hello."), max_frames=3)
    assert more.details == Details(language="English")
    expected = trusting.prompt("More.", more.pieces[:1], details=Details(language="English"))
    assert more.prompt_rows == len(expected)
    assert IDS["audio_user_slot_token_id"] not in expected[:, 0].tolist()


def test_a_wished_length_covers_the_audio_behind_and_is_for_one_text(voice: Voice) -> None:
    engine = Engine(voice, pool_rows=3000)
    take = engine.speak("one", max_frames=7)
    wished = voice.prompt("two", take.pieces, details=Details(tokens=20))
    expected = prompt_rows(
        "one two",
        config=voice.model.config,
        encode=voice._encode,
        details=Details(tokens=27),
        continuation=take.codes,
    )
    assert torch.equal(wished, expected)
    with pytest.raises(VoxradixError, match="tokens is 20, but the text is spoken in"):
        engine.speak("A sentence of some words. " * 100, details=Details(tokens=20))


def test_sound_of_the_first_frames_is_there_before_the_last_frame(trusting: Voice) -> None:
    stream = trusting.codec.stream()
    engine = Engine(trusting, pool_rows=300)
    rows = engine.stream(trusting.prompt("Hello."), seed=3, max_frames=9)
    pieces = [stream.push(next(rows)[None, 1:])]
    assert pieces[0].shape == (trusting.codec.samples_per_frame, 2)
    pieces += [stream.push(row[None, 1:]) for row in rows]
    whole = engine.generate(trusting.prompt("Hello."), seed=3, max_frames=9)
    assert torch.allclose(torch.cat([*pieces, stream.finish()]), trusting.codec.decode(whole.codes), atol=1e-6, rtol=0)


def speak(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "voxradix", "speak", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)


def test_one_command_goes_from_a_checkpoint_directory_to_stereo_sound(directory: Path, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "voice.flac", torch.rand(4000).numpy() - 0.5, 8000)
    options = ("--model", str(directory), "--max-rows", "500", "--max-frames", "6", "--language", "English")
    refused = speak("Hello.", *options, cwd=tmp_path)
    assert refused.returncode == 2 and "allow it with --trust-remote-code" in refused.stderr
    done = speak("Hello.", *options, "--trust-remote-code", "--reference", "voice.flac", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "moss on cpu: " in done.stderr and "for a pool of 500 rows" in done.stderr
    samples, rate = soundfile.read(tmp_path / "speech.wav")
    codec = json.loads((STAND_IN / "config.json").read_text())
    assert rate == codec["sampling_rate"] and samples.shape == (6 * codec["downsample_rate"], 2)


def test_half_precision_keeps_one_seed_one_waveform(tmp_path: Path) -> None:
    sizes = checkpoints.Sizes(hidden=96, inner=320, local_inner=96, codes=100)
    prompts = [checkpoints.prompt(sizes, 9 + 3 * i, seed=i) for i in range(5)]
    source = checkpoints.write(tmp_path / "half", sizes)
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(source / "model.safetensors").items()}
    save_file(tensors, source / "model.safetensors")
    for dtype in ("bfloat16", "float16"):
        voice = load_voice(source, dtype=dtype)
        assert voice.model.kv_store(1).keys.dtype == getattr(torch, dtype)
        alone = [Engine(voice, pool_rows=100).generate(p, seed=3, max_frames=8).rows for p in prompts]
        together = Engine(voice, pool_rows=200, chunk_rows=4).generate_batch(prompts, seed=3, max_frames=8)
        assert all(torch.equal(a, b.rows) for a, b in zip(alone, together, strict=True))
    whole = Engine(load_voice(source), pool_rows=100)
    assert torch.equal(whole.generate(prompts[0], seed=3, max_frames=2).rows[:, 0], alone[0][:2, 0])


def test_a_name_on_the_hub_is_fetched_and_its_codec_only_with_the_users_word(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []

    def fetch(name: str, patterns: Sequence[str], *, revision: str | None = None, offline: bool = False) -> Path:
        asked.append((name, patterns, revision, offline))
        return directory / "codec" if name == "maker/codec" else directory

    monkeypatch.setattr(hub, "fetch", fetch)
    checkpoint = find_checkpoint("maker/moss", revision="v2", offline=True, codec="maker/codec")
    assert checkpoint.name == "maker/moss" and checkpoint.directory == directory
    assert asked == [("maker/moss", hub.MODEL_FILES, "v2", True)]
    with pytest.raises(VoxradixError, match=r"the codec maker/codec is run by Python code .* --trust-remote-code"):
        checkpoint.load_codec(torch.device("cpu"))
    assert len(asked) == 1
    checkpoint = find_checkpoint("maker/moss", offline=True, codec="maker/codec", trust_remote_code=True)
    assert checkpoint.load_codec(torch.device("cpu")).codebooks == 4
    assert asked[-1] == ("maker/codec", hub.CODEC_FILES, None, True)
    with pytest.raises(VoxradixError, match=r"revision is 'v2', but .* is a directory"):
        find_checkpoint(directory, revision="v2")
    with pytest.raises(VoxradixError, match=r"neither a bundled voice .* nor a name on the hub"):
        find_checkpoint("no such voice")


def test_what_a_voice_has_no_place_for_is_refused() -> None:
    engine = Engine("numbers")
    with pytest.raises(VoxradixError, match="language is 'English', but the prompt of voice numbers has no place"):
        engine.speak("one", details=Details(language="English"))
    with pytest.raises(VoxradixError, match="references is '1 recordings', but the prompt of voice numbers"):
        engine.speak("one", references=[torch.zeros(3, 12, dtype=torch.int64)])
    with pytest.raises(VoxradixError, match="voice numbers takes no recordings"):
        engine.voice.reference(b"")
    with pytest.raises(VoxradixError, match="tokens is 0; it must be a number of frames"):
        Details(tokens=0)
    with pytest.raises(VoxradixError, match="language is 3; it must be text"):
        Details(language=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_loading_takes_little_more_memory_than_the_model(dtype: str, tmp_path: Path) -> None:
    """Per byte of the model: what any model takes, such as the library's own pages, falls out of the difference.

    The allocator is told to map these tensors apart, as it does by itself with those of the released model.
    """
    peaks, sizes = [], []
    for layers in (4, 20):
        source = sharded(tmp_path / str(layers), layers)
        command = [sys.executable, "-c", PEAK, str(source), dtype]
        environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**20)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
        assert done.returncode == 0, done.stderr
        peak, parameters = (int(number) for number in done.stdout.split())
        peaks.append(peak)
        sizes.append(parameters * getattr(torch, dtype).itemsize)
    assert peaks[1] - peaks[0] < 1.1 * (sizes[1] - sizes[0])


def sharded(directory: Path, layers: int) -> Path:
    """A random checkpoint in bfloat16 and two shards, 7 million parameters a layer."""
    sizes = checkpoints.Sizes(layers, hidden=768, inner=2304, heads=6, head_dim=128, codebooks=4, local_inner=768)
    checkpoints.write(directory, sizes)
    tensors = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    names = sorted(tensors)
    for part in range(2):
        held = {name: tensors[name].to(torch.bfloat16) for name in names[part::2]}
        save_file(held, directory / f"{part}.safetensors")
    index = {"weight_map": {name: f"{i % 2}.safetensors" for i, name in enumerate(names)}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


@pytest.mark.slow
def test_a_checkpoint_of_the_full_size_loads_in_little_more_memory_and_speaks(tmp_path: Path) -> None:
    """8.3 GB of random weights in the released names and shapes, in bfloat16 and six shards."""
    told = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    if told is None or 1024 * int(told[1]) < 11e9 or shutil.disk_usage(tmp_path).free < 10e9:
        pytest.skip("needs 11 GB of free memory and 10 GB of disk")
    source = tmp_path / "full"
    source.mkdir()
    (source / "config.json").write_text(json.dumps(RELEASED))
    outline = Outline()
    MossLocal(read_config(source), outline)
    noise = 0.02 * torch.randn(1 << 24, generator=torch.Generator().manual_seed(0))
    shards: list[dict[str, torch.Tensor]] = [{}]
    index: dict[str, str] = {}
    for name, shape in outline.shapes.items():
        if sum(tensor.nbytes for tensor in shards[-1].values()) > 1.5e9:
            save_file(shards[-1], source / f"{len(shards)}.safetensors")
            shards[-1].clear()
            shards.append({})
        count = torch.Size(shape).numel()
        values = noise.repeat(-(-count // len(noise)))[:count].view(shape) + (name.endswith("norm.weight"))
        shards[-1][name] = values.to(torch.bfloat16)
        index[name] = f"{len(shards)}.safetensors"
    save_file(shards.pop(), source / f"{len(shards) + 1}.safetensors")
    (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    done = subprocess.run([sys.executable, "-c", PEAK + SPEAK, str(source), "bfloat16"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    peak, parameters, frames = (int(number) for number in done.stdout.split())
    print(f"peak {peak / (2 * parameters):.3f} of the weights")
    assert parameters == 4_129_990_144 and peak < 1.1 * 2 * parameters and frames > 0


SPEAK = """
from voxradix import Engine, GREEDY
from voxradix.checkpoint import find_checkpoint
from voxradix.voice import Voice
engine = Engine(Voice(find_checkpoint(sys.argv[1]), model), pool_rows=64)
print(len(engine.generate([[9] + [1024] * 12] * 20, sampling=GREEDY, max_frames=2).rows))
"""

PEAK = """
import sys, torch
from voxradix.models.moss_local import load
from voxradix.models.moss_local import random_checkpoint as r
import tempfile, pathlib
torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as small:
    load(r.write(pathlib.Path(small) / "small", r.Sizes()), dtype=getattr(torch, sys.argv[2]))
def status(name):
    return next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith(name))
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
model = load(sys.argv[1], dtype=getattr(torch, sys.argv[2]))
print(status("VmHWM") - before, model.parameters)
"""


def test_a_device_or_dtype_that_is_not_there_is_refused() -> None:
    with pytest.raises(VoxradixError, match="device is 'tpu'; it must be cpu"):
        load_voice("numbers", device="tpu")
    with pytest.raises(VoxradixError, match="dtype is 'int8'; it must be one of float32"):
        load_voice("numbers", dtype="int8")
    if not torch.cuda.is_available():
        with pytest.raises(VoxradixError, match=r"device is 'cuda', but torch .* sees 0 GPUs"):
            load_voice("numbers", device="cuda")
