"""Lines and their codes as the model's rows: ids of the text vocabulary, prompts, and the two state codes."""

from __future__ import annotations

import torch
from torch import Tensor

from training.texts import VOCABULARY

MARKS = 64
SPECIALS = [
    "<|pad|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|user_slot|>",
    "<|assistant_slot|>",
    "<|audio_start|>",
    "<|audio_end|>",
]
TOKENS = [*VOCABULARY, *(f"<w{i}>" for i in range(MARKS)), *SPECIALS]
ID = {token: i for i, token in enumerate(TOKENS)}
CODE_PAD = 256
COLUMNS = 13
CLOCK = 16  # frames a clock counts, elapsed and remaining


def prompt(words: Tensor, offset: int = 0) -> Tensor:
    """Prompt rows [2 * words + 3, 13] for a line of word ids; the first word's mark is `offset`."""
    marks = (torch.arange(len(words)) + offset) % MARKS + ID["<w0>"]
    text = torch.stack([marks, words], 1).flatten()
    ids = torch.cat(
        [
            torch.tensor([ID["<|im_start|>"]]),
            text,
            torch.tensor([ID["<|im_end|>"], ID["<|audio_start|>"]]),
        ]
    )
    rows = torch.full((len(ids), COLUMNS), CODE_PAD)
    rows[:, 0] = ids
    return rows


def state_codes(durations: Tensor, offset: int = 0) -> Tensor:
    """Pointer and clock codes [frames, 2] of words that last `durations` frames."""
    pointer = (torch.arange(len(durations)) + offset).repeat_interleave(durations) % MARKS
    elapsed = torch.cat([torch.arange(int(d)) for d in durations])
    remaining = durations.repeat_interleave(durations) - 1 - elapsed
    clock = elapsed.clamp(max=CLOCK - 1) * CLOCK + remaining.clamp(max=CLOCK - 1)
    return torch.stack([pointer, clock], 1)


def frames(codes: Tensor, durations: Tensor, offset: int = 0) -> Tensor:
    """Generated rows [frames, 13] of a line from its codec codes [frames, 12]."""
    rows = torch.full((len(codes), COLUMNS), ID["<|assistant_slot|>"])
    rows[:, 1:3] = state_codes(durations, offset)
    rows[:, 3:] = codes[:, 2:]
    return rows
