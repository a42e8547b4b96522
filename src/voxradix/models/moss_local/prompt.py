"""Prompt rows: text, references and audio to go on from, in the form the model was trained on."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from voxradix.errors import VoxradixError
from voxradix.models.moss_local.config import MossLocalConfig

Encode = Callable[[str], list[int]]
"""Plain text to ids: no special tokens are added, and none are recognised in the text."""

TEMPLATE = (
    "<|im_start|>",
    "user\n",
    "<user_inst>\n- Reference(s):\n",
    "{references}",
    "\n- Instruction:\n{instruction}\n- Tokens:\n{tokens}\n- Quality:\n{quality}\n- Sound Event:\n{sound_event}\n"
    "- Ambient Sound:\n{ambient_sound}\n- Language:\n{language}\n- Text:\n",
    "{text}",
    "\n</user_inst>",
    "<|im_end|>",
    "\n",
    "<|im_start|>",
    "assistant\n",
    "<|audio_start|>",
)
"""The released model's template, segment by segment; each is tokenised alone (its public processor)."""


_MOST = 2**31

_FIELD = re.compile(r"\{(language|instruction|tokens|quality|sound_event|ambient_sound)\}")


@dataclass(frozen=True, slots=True)
class Details:
    """What a prompt may say beside its text. What is missing or blank is written ``None``.

    Attributes:
        language: Such as "English".
        instruction: How to speak.
        tokens: The wished number of frames.
        quality: Quality of the recording.
        sound_event: Sounds to be heard.
        ambient_sound: The background.
    """

    language: str | None = None
    instruction: str | None = None
    tokens: int | None = None
    quality: str | None = None
    sound_event: str | None = None
    ambient_sound: str | None = None

    def __post_init__(self) -> None:
        """Refuse a value of another type."""
        for name, value in self.given().items():
            if name == "tokens" and (isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _MOST):
                raise VoxradixError(f"tokens is {_short(value)}; it must be a number of frames from 1 to {_MOST - 1}")
            if name != "tokens" and not (isinstance(value, str) and is_unicode(value)):
                raise VoxradixError(f"{name} is {_short(value)}; it must be text")

    def given(self) -> dict[str, object]:
        """The values that are not missing, by name."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name)) is not None}

    def filled(self, segment: str) -> str:
        """A template segment with these values in its fields."""
        return _FIELD.sub(lambda field: _written(getattr(self, field[1])), segment)


NO_DETAILS = Details()


def prompt_rows(
    text: str,
    *,
    config: MossLocalConfig,
    encode: Encode,
    template: Sequence[str] = TEMPLATE,
    details: Details = NO_DETAILS,
    references: Sequence[Tensor] = (),
    continuation: Tensor | None = None,
) -> Tensor:
    """Build a prompt: int64 [T, C].

    Args:
        text: What to say; for a continuation, the transcript of the audio and then the new text.
        config: The checkpoint's configuration, for ids and codebooks.
        encode: The checkpoint's tokenizer.
        template: Segments: a special token such as ``<|im_start|>``, ``{text}``, ``{references}``, or text that
            may hold fields of `Details`.
        details: Values of those fields.
        references: Codes int64 [F, codebooks] of recordings whose voice to take.
        continuation: Codes int64 [F, codebooks] of the audio to go on from.
    """
    special = {
        "<|im_start|>": config.im_start_id,
        "<|im_end|>": config.im_end_id,
        "<|audio_start|>": config.audio_start_id,
        "<|audio_end|>": config.audio_end_id,
    }
    parts: list[Tensor] = []
    for segment in template:
        if segment in special:
            parts.append(_text_rows([special[segment]], config))
        elif segment == "{text}":
            parts.append(_text_rows(encode(text), config))
        elif segment == "{references}":
            parts += _reference_rows(references, config, encode)
        else:
            parts.append(_text_rows(encode(details.filled(segment)), config))
    if continuation is not None and len(continuation):
        parts.append(_audio_rows(own_codes(continuation, config, "the audio to go on from"), config.assistant_slot_id))
    return torch.cat(parts)


def is_unicode(text: str) -> bool:
    """Whether a text holds no half of a surrogate pair, which no tokenizer takes."""
    return not any(0xD800 <= ord(letter) <= 0xDFFF for letter in text)


def _short(value: object) -> str:
    shown = "too large" if isinstance(value, int) and abs(value) >= 2**63 else repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"


def _written(value: object) -> str:
    text = "" if value is None else str(value).strip()
    return text or "None"


def _text_rows(ids: list[int], config: MossLocalConfig) -> Tensor:
    rows = torch.full((len(ids), config.codebooks + 1), config.pad_code)
    rows[:, 0] = torch.tensor(ids, dtype=torch.int64)
    return rows


def own_codes(codes: object, config: MossLocalConfig, what: str) -> Tensor:
    """Codes that a caller gives as a tensor, an array or lists, as int64 [F, codebooks] of their own on the CPU.

    Raises `VoxradixError` that begins with ``what`` they are when they are no frames of codes.
    """
    try:
        given = torch.as_tensor(codes)
        if given.dtype is torch.bool or given.is_floating_point() or given.is_complex():
            raise VoxradixError(f"{what} has dtype {given.dtype}; codes are integers")
        own = given.to("cpu", torch.int64, copy=True)
    except VoxradixError:
        raise
    except Exception as error:  # whatever the conversion raises, the codes are at fault
        raise VoxradixError(f"{what} is no frames of codes [F, {config.codebooks}]: {error}") from None
    if own.layout is not torch.strided or own.dim() != 2 or own.shape[1] != config.codebooks:
        raise VoxradixError(f"{what} has shape {list(own.shape)}; it must be [F, {config.codebooks}]")
    if not len(own):
        raise VoxradixError(f"{what} has no frames; it needs at least one")
    wrong = (own < 0) | (own >= config.codebook_size)
    if bool(wrong.any()):
        frame, codebook = (int(i) for i in wrong.nonzero()[0])
        raise VoxradixError(
            f"{what} has code {int(own[frame, codebook])} in frame {frame}, codebook {codebook}; codes lie in "
            f"0 .. {config.codebook_size - 1}"
        )
    return own


def _audio_rows(codes: Tensor, slot_id: int) -> Tensor:
    return torch.cat((torch.full((codes.shape[0], 1), slot_id), codes), dim=1)


def _reference_rows(references: Sequence[Tensor], config: MossLocalConfig, encode: Encode) -> list[Tensor]:
    if not references:
        return [_text_rows(encode("None"), config)]
    parts: list[Tensor] = []
    for number, codes in enumerate(references, start=1):
        parts += [
            _text_rows([config.audio_start_id], config),
            _audio_rows(own_codes(codes, config, f"reference {number}"), config.user_slot_id),
            _text_rows([config.audio_end_id], config),
        ]
    return parts
