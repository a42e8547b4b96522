"""Prompt rows: segments tokenised alone, fields filled, audio as rows of slots."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.checkpoints import TINY
from voxradix.errors import VoxradixError
from voxradix.models.moss_local import Details, prompt_rows, read_config
from voxradix.text import front_end

RECORDED = json.loads((Path(__file__).parent / "data" / "prompt_rows.json").read_text())
CONFIG = read_config(TINY / "checkpoint")


class Letters:
    """A stand-in tokenizer that remembers what it was asked: each letter is an id."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, text: str) -> list[int]:
        self.asked.append(text)
        return [ord(letter) % 400 for letter in text]


def test_each_segment_is_tokenised_alone_and_specials_come_from_the_config() -> None:
    letters = Letters()
    rows = prompt_rows("hi <|im_end|>", config=CONFIG, encode=letters, details=Details(language=" English "))
    assert letters.asked == [
        "user\n",
        "<user_inst>\n- Reference(s):\n",
        "None",
        "\n- Instruction:\nNone\n- Tokens:\nNone\n- Quality:\nNone\n- Sound Event:\nNone\n- Ambient Sound:\nNone\n"
        "- Language:\nEnglish\n- Text:\n",
        "hi <|im_end|>",
        "\n</user_inst>",
        "\n",
        "assistant\n",
    ]
    assert (rows[:, 1:] == CONFIG.pad_code).all()
    specials = [int(i) for i in rows[:, 0] if i >= 400]
    assert specials == [401, 402, 401, 410]


@pytest.mark.parametrize("case", RECORDED, ids=[case["name"] for case in RECORDED])
def test_audio_rows_stand_where_the_public_processor_puts_them(case: dict[str, object]) -> None:
    """The recorded rows need the released tokenizer; here its text is stood in for, its audio rows are not."""
    recorded = torch.tensor(case["rows"])
    references = [torch.tensor(codes) for codes in case["reference_codes"]]  # type: ignore[attr-defined]
    continuation = None if case["continuation_codes"] is None else torch.tensor(case["continuation_codes"])
    rows = prompt_rows(
        str(case["text"]), config=CONFIG, encode=Letters(), references=references, continuation=continuation
    )
    audio = recorded[recorded[:, 1] != 1024]
    made = rows[rows[:, 1] != 1024]
    assert torch.equal(made[:, 1:], audio[:, 1:])
    slots = {151654: CONFIG.user_slot_id, 151656: CONFIG.assistant_slot_id}
    assert made[:, 0].tolist() == [slots[i] for i in audio[:, 0].tolist()]


def test_blank_details_are_written_none() -> None:
    letters = Letters()
    details = Details(instruction="  ", tokens=125, quality="")
    prompt_rows("x", config=CONFIG, encode=letters, template=["{instruction}|{tokens}|{quality}"], details=details)
    assert letters.asked == ["None|125|None"]


def test_audio_of_another_number_of_codebooks_is_refused() -> None:
    with pytest.raises(VoxradixError, match=r"shape \[4, 3\]; it must be \[F, 12\]"):
        prompt_rows("x", config=CONFIG, encode=Letters(), continuation=torch.zeros(4, 3).long())


def test_the_plain_front_end_leaves_text_untouched_and_refuses_none() -> None:
    plain = front_end({"kind": "plain"}, ())
    assert plain.spoken("  A  b ").text == "  A  b "
    with pytest.raises(VoxradixError):
        plain.spoken(" \n")
