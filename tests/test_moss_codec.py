"""The released model's codec through a stand-in with its interface: slots, streams, recordings, and trust."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from voxradix.audio import MossCodec, load_moss_codec, wav_bytes
from voxradix.audio.reference import levelled
from voxradix.errors import VoxradixError

STAND_IN = Path(__file__).parent / "data" / "stand_in_codec"
WIDTH = 8
CODEBOOKS = 4
ROUNDING = 1e-6


def weights() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"tables": (6, 16, WIDTH), "head.weight": (160, WIDTH), "head.bias": (160,)}
    for layer in ("encoder", "decoder.0", "decoder.1"):
        shapes |= {f"{layer}.mix.weight": (WIDTH, WIDTH), f"{layer}.mix.bias": (WIDTH,)}
    return {name: 0.2 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    copy = tmp_path / "stand_in_codec"
    shutil.copytree(STAND_IN, copy, ignore=shutil.ignore_patterns("__pycache__"))
    save_file(weights(), copy / "model.safetensors", metadata={"format": "pt"})
    yield copy
    for name in [name for name in sys.modules if name.startswith("transformers_modules")]:
        del sys.modules[name]


@pytest.fixture
def codec(directory: Path) -> MossCodec:
    return load_moss_codec(directory, codebooks=CODEBOOKS, trust_remote_code=True, slots=4)


def remote(codec: MossCodec) -> Any:
    return codec._model


def some_codes(frames: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(16, (frames, CODEBOOKS), generator=generator)


def alike(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and torch.allclose(left, right, atol=ROUNDING, rtol=0)


def test_sound_is_stereo_as_soundfile_has_it(codec: MossCodec) -> None:
    samples = codec.decode(some_codes(7))
    assert samples.shape == (7 * codec.samples_per_frame, codec.channels) == (560, 2)
    assert samples.dtype == torch.float32
    assert 0 < samples.abs().max() <= 1
    assert not torch.equal(samples[:, 0], samples[:, 1])
    assert codec.decode(some_codes(0)).shape == codec.stream().push(some_codes(0)).shape == (0, 2)
    header = wav_bytes(samples, codec.sample_rate)
    assert int.from_bytes(header[22:24], "little") == 2


@pytest.mark.parametrize("chunks", [[1] * 23, [23], [5, 0, 1, 17], [22, 1]])
def test_streamed_sound_is_the_whole_sound(codec: MossCodec, chunks: list[int]) -> None:
    codes = some_codes(23)
    stream = codec.stream()
    pieces = [stream.push(part) for part in codes.split(chunks)]
    assert alike(torch.cat([*pieces, stream.finish()]), codec.decode(codes))


def test_streams_among_others_of_other_lengths_sound_as_alone(codec: MossCodec) -> None:
    texts = [some_codes(12, seed) for seed in range(3)]
    steps = [[3, 3, 3, 3], [3, 1, 0, 8], [1, 5, 3, 3]]
    streams = [codec.stream() for _ in texts]
    parts = [list(codes.split(lengths)) for codes, lengths in zip(texts, steps, strict=True)]
    pushed = [codec.push(dict(zip(streams, step, strict=True))) for step in zip(*parts, strict=True)]
    for stream, codes in zip(streams, texts, strict=True):
        assert alike(torch.cat([made[stream] for made in pushed]), codec.decode(codes))


def test_streams_with_equal_steps_share_a_pass(codec: MossCodec) -> None:
    first, second, third = (codec.stream() for _ in range(3))
    codec.push({first: some_codes(2), second: some_codes(2), third: some_codes(5)})
    assert [sum(mask) for mask in remote(codec).passes] == [3, 1]


def test_long_steps_are_cut_as_the_whole_decode_cuts_them(codec: MossCodec) -> None:
    codes = some_codes(230)
    assert alike(codec.stream().push(codes), codec.decode(codes))
    assert len(remote(codec).passes) == 3


def test_no_code_but_that_beside_the_weights_is_named(directory: Path) -> None:
    config = json.loads((directory / "config.json").read_text())
    config["auto_map"]["AutoConfig"] = "evil/repo--configuration_x.C"
    (directory / "config.json").write_text(json.dumps(config))
    with pytest.raises(VoxradixError, match=r"names the class 'evil/repo--configuration_x\.C'"):
        load_moss_codec(directory, codebooks=CODEBOOKS, trust_remote_code=True)


def test_a_paused_stream_is_not_advanced(codec: MossCodec) -> None:
    codes, others = some_codes(8), some_codes(20, seed=1)
    stream, other = codec.stream(), codec.stream()
    before = stream.push(codes[:4])
    other.push(others)
    assert alike(torch.cat([before, stream.push(codes[4:])]), codec.decode(codes))


def test_a_slot_taken_again_begins_in_silence(directory: Path) -> None:
    codec = load_moss_codec(directory, codebooks=CODEBOOKS, trust_remote_code=True, slots=1)
    first = codec.stream()
    first.push(some_codes(9, seed=1))
    first.finish()
    assert alike(codec.stream().push(some_codes(5)), codec.decode(some_codes(5)))


def test_every_end_of_a_stream_frees_its_slot(codec: MossCodec) -> None:
    streams = [codec.stream() for _ in range(4)]
    with pytest.raises(VoxradixError, match="all 4 slots"):
        codec.stream()
    streams[0].finish()
    streams[1].close()
    streams[1].close()
    del streams[2:]
    assert len({codec.stream().slot for _ in range(9)}) <= 4
    again = [codec.stream() for _ in range(4)]
    assert len({stream.slot for stream in again}) == 4


def test_an_ended_stream_says_how_it_ended(codec: MossCodec) -> None:
    finished, closed = codec.stream(), codec.stream()
    finished.finish()
    closed.close()
    with pytest.raises(VoxradixError, match="was finished"):
        finished.push(some_codes(1))
    with pytest.raises(VoxradixError, match="was closed"):
        closed.finish()


def test_whole_decodes_and_encodes_leave_open_streams_alone(codec: MossCodec) -> None:
    recording = torch.rand(800)
    fresh = codec.encode(recording, 1000)
    alone = codec.decode(some_codes(6, seed=1))
    codes = some_codes(10)
    streams = [codec.stream() for _ in range(4)]
    pieces = [streams[0].push(codes[:5])]
    assert torch.equal(codec.decode(some_codes(6, seed=1)), alone)
    assert torch.equal(codec._encoded(recording, 1000), fresh)
    pieces.append(streams[0].push(codes[5:]))
    assert alike(torch.cat(pieces), codec.decode(codes))


def test_streams_outlive_a_callers_inference_mode(codec: MossCodec) -> None:
    codes = some_codes(4)
    with torch.inference_mode():
        stream = codec.stream()
        before = stream.push(codes[:2].clone())
    codec.stream().push(codes)
    assert alike(torch.cat([before, stream.push(codes[2:])]), codec.decode(codes))


def test_a_failed_pass_ends_its_streams_and_no_others(codec: MossCodec, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = some_codes(8)
    lost, kept = codec.stream(), codec.stream()
    before = kept.push(codes[:4])
    with monkeypatch.context() as broken:
        broken.setattr(remote(codec).decoder[1], "forward", lambda frames: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            lost.push(some_codes(3))
    with pytest.raises(VoxradixError, match="failed with its pass"):
        lost.push(some_codes(3))
    anew = codec.stream()
    assert alike(torch.cat([before, kept.push(codes[4:])]), codec.decode(codes))
    assert alike(anew.push(codes), codec.decode(codes))


def test_nothing_is_decoded_unless_all_can_be(codec: MossCodec) -> None:
    codes = some_codes(6)
    stream, other = codec.stream(), codec.stream()
    for wrong in (torch.full((1, 4), 16), torch.zeros(1, 3, dtype=torch.int64), torch.zeros(1, 4)):
        with pytest.raises(VoxradixError, match="codes"):
            codec.push({stream: codes, other: wrong})
    assert alike(stream.push(codes), codec.decode(codes))


def test_a_stream_of_another_codec_is_refused(codec: MossCodec, directory: Path) -> None:
    twin = load_moss_codec(directory, codebooks=CODEBOOKS, trust_remote_code=True)
    with pytest.raises(VoxradixError, match="another codec's"):
        codec.push({twin.stream(): some_codes(1)})


def tone(rate: int, seconds: float, level: float) -> Tensor:
    return level * torch.sin(torch.arange(int(rate * seconds)) * (2 * torch.pi * 50 / rate))


def test_a_recording_is_encoded_by_whole_frames(codec: MossCodec) -> None:
    codes = codec.encode(tone(1000, 1.0, 0.1), 1000)
    assert codes.shape == (12, CODEBOOKS)
    assert codes.dtype == torch.int64
    with pytest.raises(VoxradixError, match="79 ms long; it must be at least a frame, 80 ms"):
        codec.encode(torch.ones(79), 1000)
    with pytest.raises(VoxradixError, match=r"float32 \[N\]"):
        codec.encode(torch.ones(79, dtype=torch.float64), 1000)


def test_recordings_come_to_the_codecs_channels(codec: MossCodec) -> None:
    many = torch.stack([tone(1000, 1.0, level) for level in (0.1, 0.11, 0.5)], dim=1)
    for given in (many[:, 0], many[:, :1], many[:, :2], many):
        codec.encode(given, 1000)
    mono, one, two, three = remote(codec).encoded
    assert mono.shape == two.shape == (2, 1000)
    assert torch.equal(mono[0], mono[1]) and torch.equal(mono, one)
    assert torch.equal(two, three) and not torch.equal(two[0], two[1])


def test_recordings_come_to_the_codecs_rate(codec: MossCodec) -> None:
    codec.encode(tone(4000, 1.0, 0.1), 4000)
    (heard,) = remote(codec).encoded
    assert heard.shape == (2, 1000)
    straight = levelled(tone(1000, 1.0, 0.1))
    assert (heard[0, 100:900] - straight[100:900]).abs().max() < 1e-3


@pytest.mark.parametrize(
    ("level", "gain"),
    [(0.1, 10 ** (3 / 20)), (0.5, 10 ** (-3 / 20)), (0.12, 0.1 * 2**0.5 / 0.12), (0.0, 10 ** (3 / 20))],
)
def test_loudness_goes_towards_minus_20_dbfs_by_at_most_3_db(level: float, gain: float) -> None:
    samples = tone(1000, 1.0, level)
    assert torch.allclose(levelled(samples), samples * gain, rtol=1e-4, atol=0)


def test_the_same_recording_is_encoded_once(codec: MossCodec) -> None:
    recording = tone(1000, 1.0, 0.1)
    codes = codec.encode(recording, 1000)
    expected = codes.clone()
    codes.zero_()
    assert torch.equal(codec.encode(recording.clone(), 1000), expected)
    assert len(remote(codec).encoded) == 1
    codec.encode(recording, 2000)
    codec.encode(recording.view(-1, 2), 1000)
    assert len(remote(codec).encoded) == 3


def test_the_weights_are_those_of_the_directory_in_float32(codec: MossCodec) -> None:
    for name, parameter in remote(codec).named_parameters():
        assert torch.equal(parameter, weights()[name])


REFUSED = """
import sys
from pathlib import Path
from voxradix.audio import load_moss_codec
try:
    load_moss_codec(Path(sys.argv[1]), codebooks=4)
except ValueError as error:
    print(error)
print("transformers" in sys.modules)
"""


def test_code_of_the_directory_is_not_run_without_trust(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "imported"
    monkeypatch.setenv("STAND_IN_MARKER", str(marker))
    told = subprocess.run([sys.executable, "-c", REFUSED, directory], capture_output=True, text=True, check=True)
    message, imported = told.stdout.splitlines()
    for part in (str(directory), "modeling_stand_in.StandInCodec", "--trust-remote-code", "trust_remote_code=True"):
        assert part in message
    assert imported == "False"
    assert not marker.exists()
    load_moss_codec(directory, codebooks=CODEBOOKS, trust_remote_code=True)
    assert marker.exists()


def test_missing_transformers_is_told(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(VoxradixError, match=r'pip install "voxradix\[moss\]"'):
        load_moss_codec(directory, codebooks=CODEBOOKS, trust_remote_code=True)


def test_missing_resampler_is_told(codec: MossCodec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soxr", None)
    assert len(codec.encode(tone(1000, 1.0, 0.1), 1000)) == 12
    with pytest.raises(VoxradixError, match=r'pip install "voxradix\[moss\]"'):
        codec.encode(tone(2000, 1.0, 0.1), 2000)


@pytest.mark.parametrize("codebooks", [0, 7])
def test_a_model_with_other_codebooks_is_refused(directory: Path, codebooks: int) -> None:
    with pytest.raises(VoxradixError, match=f"has 6 codebooks; a model with {codebooks} cannot"):
        load_moss_codec(directory, codebooks=codebooks, trust_remote_code=True)


def test_weights_that_lack_some_are_refused(directory: Path) -> None:
    tensors = load_file(directory / "model.safetensors")
    del tensors["tables"]
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(VoxradixError, match="numbers and the codec needs"):
        load_moss_codec(directory, codebooks=CODEBOOKS, trust_remote_code=True)
    (directory / "model.safetensors").unlink()
    with pytest.raises(VoxradixError, match="cannot be loaded"):
        load_moss_codec(directory, codebooks=CODEBOOKS, trust_remote_code=True)


def test_a_class_from_elsewhere_is_refused(directory: Path) -> None:
    config = directory / "config.json"
    config.write_text(config.read_text().replace("modeling_stand_in.StandInCodec", "owner/name--modeling.Codec"))
    with pytest.raises(VoxradixError, match="not in the directory"):
        load_moss_codec(directory, codebooks=CODEBOOKS, trust_remote_code=True)
    config.write_text("{}")
    with pytest.raises(VoxradixError, match=r"auto_map\.AutoModel"):
        load_moss_codec(directory, codebooks=CODEBOOKS)


def test_a_codec_that_says_less_of_itself_is_refused(directory: Path) -> None:
    config = directory / "config.json"
    config.write_text(config.read_text().replace("number_channels", "ears"))
    code = directory / "modeling_stand_in.py"
    code.write_text(code.read_text().replace("number_channels", "ears"))
    with pytest.raises(VoxradixError, match="lacks 'number_channels'"):
        load_moss_codec(directory, codebooks=CODEBOOKS, trust_remote_code=True)


def test_errors_of_the_directorys_code_are_told(directory: Path) -> None:
    code = directory / "modeling_stand_in.py"
    code.write_text(code.read_text().replace("def batch_encode", "def other_encode"))
    with pytest.raises(VoxradixError, match="lacks 'batch_encode'"):
        load_moss_codec(directory, codebooks=CODEBOOKS, trust_remote_code=True)
    code.write_text(code.read_text() + "\nraise RuntimeError('no such card')\n")
    with pytest.raises(VoxradixError, match="cannot be loaded: no such card"):
        load_moss_codec(directory, codebooks=CODEBOOKS, trust_remote_code=True)
