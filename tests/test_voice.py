"""The bundled voice: its files, its codec, and what a listener hears it say."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer

import voxradix
from training.judge import errors, grammar_judge
from voxradix.audio.spectral import SpectralCodec

VOICE = Path(voxradix.__file__).parent / "voices" / "numbers"
LINES = Path(__file__).with_name("held_out.txt").read_text().splitlines()
WORST_ERROR_RATE = 0.05


@pytest.fixture(scope="module")
def codec() -> SpectralCodec:
    return SpectralCodec.load(VOICE / "codec")


def some_codes(codec: SpectralCodec, frames: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(frames)
    return torch.randint(codec.codebook_size, (frames, codec.codebooks), generator=generator)


def test_decodes_whole_frames(codec: SpectralCodec) -> None:
    samples = codec.decode(some_codes(codec, 7))
    assert samples.shape == (7 * codec.samples_per_frame,)
    assert samples.dtype == torch.float32
    assert samples.abs().max() <= 1.0
    assert codec.decode(some_codes(codec, 0)).shape == (0,)


@pytest.mark.parametrize("chunks", [[1] * 23, [23], [5, 0, 1, 17], [22, 1]])
def test_streams_the_same_bits(codec: SpectralCodec, chunks: list[int]) -> None:
    codes = some_codes(codec, 23)
    stream = codec.stream()
    pieces = [stream.push(part) for part in codes.split(chunks)]
    assert torch.equal(torch.cat([*pieces, stream.finish()]), codec.decode(codes))


def test_streaming_holds_back_less_than_a_frame(codec: SpectralCodec) -> None:
    stream = codec.stream()
    stream.push(some_codes(codec, 3))
    assert 0 < len(stream.finish()) < codec.samples_per_frame


def test_says_what_is_wrong(codec: SpectralCodec, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        SpectralCodec.load(tmp_path)
    with pytest.raises(ValueError, match="shape"):
        codec.decode(torch.zeros(3, 11, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"0\.\.255"):
        codec.decode(torch.full((1, 12), 256))
    config = json.loads((VOICE / "codec" / "config.json").read_text())
    with pytest.raises(ValueError, match="lack 'tables'"):
        SpectralCodec(config, {})
    with pytest.raises(ValueError, match="kind"):
        SpectralCodec({"kind": "song"}, {})
    with pytest.raises(ValueError, match="hidden_size"):
        SpectralCodec({**config, "hidden_size": "many"}, {})


def test_special_ids_lie_above_the_words() -> None:
    config = json.loads((VOICE / "config.json").read_text())
    vocabulary = Tokenizer.from_file(str(VOICE / "tokenizer.json")).get_vocab()
    specials = {token for token in vocabulary if token.startswith("<|")}
    assert min(vocabulary[token] for token in specials) == config["pad_token_id"]
    assert config["pad_token_id"] == len(vocabulary) - len(specials)
    assert vocabulary["<|audio_end|>"] == config["audio_end_token_id"] < config["qwen3_config"]["vocab_size"]


def test_checkpoint_has_the_released_names() -> None:
    with safe_open(VOICE / "model.safetensors", "pt") as file:
        names = set(file.keys())
    assert {
        "transformer.embed_tokens.weight",
        "audio_embeddings.11.weight",
        "local_text_lm_head.weight",
    } <= names
    assert not any(name.startswith(("audio_lm_heads", "text_lm_head")) for name in names)


def test_is_small() -> None:
    assert sum(path.stat().st_size for path in VOICE.rglob("*") if path.is_file()) < 15_000_000


def test_is_understood(codec: SpectralCodec) -> None:
    engine = voxradix.Engine("numbers")
    hear = grammar_judge()
    wrong = total = 0
    for line in LINES:
        rows = engine.generate(line, seed=0).rows
        wrong += errors(line.split(), hear(engine.voice.codec.decode(rows[:, 1:]).numpy(), codec.sample_rate))
        total += len(line.split())
    assert wrong <= WORST_ERROR_RATE * total, f"{wrong} of {total} words were heard wrong"


def test_what_goes_on_from_a_take_is_understood(codec: SpectralCodec) -> None:
    engine = voxradix.Engine("numbers")
    hear = grammar_judge()
    wrong = total = 0
    for first, second in zip(LINES[::4], LINES[1::4], strict=False):
        take = engine.speak(second, after=engine.speak(first))
        new = take.pieces[-1]
        wrong += errors(second.split(), hear(codec.decode(new.codes).numpy(), codec.sample_rate))
        total += len(second.split())
    assert wrong <= WORST_ERROR_RATE * total, f"{wrong} of {total} words were heard wrong"
