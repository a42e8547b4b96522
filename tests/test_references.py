"""References and details at the door: what is no codes is refused by name, and what is kept is the take's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests import checkpoints
from voxradix import Engine, Take, VoxradixError
from voxradix.models.moss_local import Details, prompt_rows
from voxradix.voice import Voice, load_voice

SIZES = checkpoints.Sizes(codebooks=4, codes=16, vocab=256, positions=4096)
GOOD = torch.arange(20).view(5, 4) % 16


@pytest.fixture(scope="module")
def voice(tmp_path_factory: pytest.TempPathFactory) -> Voice:
    directory = checkpoints.write(tmp_path_factory.mktemp("references") / "letters", SIZES)
    (directory / "generation_config.json").write_text('{"text_temperature": 0}')
    vocabulary = ",".join(f'"{chr(letter)}": {letter}' for letter in range(35, 127) if chr(letter) not in '"\\')
    (directory / "tokenizer.json").write_text(
        '{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,'
        '"pre_tokenizer":{"type":"Split","pattern":{"Regex":"."},"behavior":"Isolated","invert":false},'
        '"post_processor":null,"decoder":null,"model":{"type":"WordLevel","vocab":{'
        + vocabulary
        + ',"[UNK]":1},"unk_token":"[UNK]"}}'
    )
    return load_voice(directory)


@pytest.fixture
def engine(voice: Voice) -> Engine:
    return Engine(voice, pool_rows=2000)


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (GOOD + 0.7, "reference 1 has dtype torch.float32"),
        (GOOD > 3, "reference 1 has dtype torch.bool"),
        (GOOD.to(torch.complex64), "reference 1 has dtype torch.complex64"),
        (torch.full((5, 4), 16), r"reference 1 has code 16 in frame 0, codebook 0; codes lie in 0 \.\. 15"),
        (GOOD - 50, "reference 1 has code -50 in frame 0"),
        (GOOD[:0], "reference 1 has no frames"),
        (GOOD[:, :3], r"reference 1 has shape \[5, 3\]; it must be \[F, 4\]"),
        (GOOD[0], r"reference 1 has shape \[4\]"),
        ("voice.wav", "reference 1 is no frames of codes"),
        (Path("voice.wav"), "reference 1 is no frames of codes"),
        (None, "reference 1 is no frames of codes"),
        (GOOD.to("meta"), "reference 1 is no frames of codes"),
        (GOOD.to_sparse(), "reference 1 has shape|reference 1 is no frames"),
    ],
)
def test_what_is_no_reference_is_refused_by_name(codes: object, message: str, engine: Engine) -> None:
    with pytest.raises(VoxradixError, match=message):
        engine.speak("Hi", references=[codes], max_frames=2)  # type: ignore[list-item]
    with pytest.raises(VoxradixError, match=message):
        engine.voice.prompt("Hi", references=[codes])  # type: ignore[list-item]
    assert engine.occupancy().held == 0


@pytest.mark.parametrize("references", ["voice.wav", b"abc", 3, {"a": GOOD}])
def test_references_are_a_list(references: object, engine: Engine) -> None:
    with pytest.raises(VoxradixError, match="references must be a list of codes"):
        engine.speak("Hi", references=references, max_frames=2)  # type: ignore[call-overload]


def test_arrays_and_lists_are_references_too(engine: Engine) -> None:
    made = [
        engine.speak("Hi", references=[codes], max_frames=2).rows  # type: ignore[list-item]
        for codes in (GOOD, GOOD.numpy(), GOOD.tolist(), GOOD.to(torch.int16))
    ]
    assert all(torch.equal(rows, made[0]) for rows in made)


def test_a_take_keeps_references_of_its_own(engine: Engine) -> None:
    mine = GOOD.clone()
    take = engine.speak("Hi", references=[mine], max_frames=2)
    mine.fill_(0)
    assert torch.equal(take.references[0], GOOD)


def test_a_reference_has_no_place_behind_audio(engine: Engine) -> None:
    take = engine.speak("Hi", references=[GOOD], max_frames=4)
    place = take.at(frames=4, said="Hi")
    with pytest.raises(VoxradixError, match="references are given with audio to go on from"):
        engine.speak("More", after=place, references=[GOOD], max_frames=2)
    more = engine.speak("More", after=place, references=[], max_frames=2)
    assert more.references == ()
    assert torch.equal(engine.speak("More", after=place, max_frames=2).references[0], GOOD)


def test_references_in_a_damaged_take_file_are_refused(engine: Engine, tmp_path: Path) -> None:
    take = engine.speak("Hi", references=[GOOD], max_frames=4)
    for name, row in (("pad", [0, 16, 16, 16, 16]), ("beyond", [0, 17, 1, 1, 1])):
        path = tmp_path / f"{name}.npz"
        take.save(path)
        with np.load(path) as archive:
            held = {key: archive[key] for key in archive}
        held["references"][0] = row
        np.savez_compressed(path, **held)
        with pytest.raises(VoxradixError, match=r"code 16 in frame 0|holds 17"):
            engine.speak(after=Take.load(path).at(frames=1), max_frames=2)


def test_a_wish_for_frames_that_was_taken_over_is_dropped_where_it_does_not_apply(engine: Engine) -> None:
    first = engine.speak("one", max_frames=4)
    second = engine.speak("two", after=first.at(frames=4, said="one"), details=Details(tokens=9), max_frames=4)
    assert second.details.tokens == 9
    again = engine.speak(after=second.at(frames=2), max_frames=4)
    assert again.details.tokens is None and len(again.pieces) >= 1


@pytest.mark.parametrize("details", [{"language": "English"}, "English", False])
def test_details_are_details(details: object, engine: Engine) -> None:
    with pytest.raises(VoxradixError, match="it must be a Details"):
        engine.speak("Hi", details=details, max_frames=2)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tokens": 0}, "tokens is 0; it must be a number of frames from 1"),
        ({"tokens": True}, "tokens is True"),
        ({"tokens": 10**5000}, "tokens is too large"),
        ({"language": 3}, "language is 3; it must be text"),
        ({"quality": "a\ud800"}, "quality is .*; it must be text"),
        ({"instruction": "\udfff" * 10**6}, "instruction is .{,80}; it must be text"),
    ],
)
def test_a_detail_of_another_kind_is_refused_by_name(values: dict[str, object], message: str) -> None:
    with pytest.raises(VoxradixError, match=message):
        Details(**values)  # type: ignore[arg-type]


def test_a_branch_of_the_last_seed_goes_on_with_the_first(engine: Engine) -> None:
    take = engine.speak("Hi", seed=2**63 - 1, max_frames=3)
    assert engine.speak(after=take.at(frames=1), max_frames=2).seed == -(2**63)


def test_a_continuation_of_no_frames_is_none(voice: Voice) -> None:
    def encode(text: str) -> list[int]:
        return [ord(letter) % 200 for letter in text]

    empty: Tensor = GOOD[:0]
    made = prompt_rows("x", config=voice.model.config, encode=encode, continuation=empty)
    assert torch.equal(made, prompt_rows("x", config=voice.model.config, encode=encode))
