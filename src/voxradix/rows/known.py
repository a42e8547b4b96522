"""The row layouts of known models, each with its public source.

A key stands in a scheduler's vocabulary. Where a model's own text ids leave a free band, keys fold into it and the
end id is kept; a model without text ids gets the band `SPACE` and the id above it as its end key.
"""

from __future__ import annotations

from voxradix.rows.layout import EndRule, RowLayout

SPACE = 151643
"""``<|endoftext|>`` of the Qwen vocabularies, the first of their special ids."""

MOSS_LOCAL = RowLayout(
    "moss_tts_local", (151936, *(1025,) * 12), key_space=SPACE, pad_code=1024, end_id=151670, end_key=151670
)
"""MOSS-TTS Local v1.5: text, 12 codebooks of 1024 and a pad; audio end 151670 (the model's config.json)."""

MOSS_DELAY = RowLayout(
    "moss_tts_delay", (155648, *(1025,) * 32), key_space=SPACE, pad_code=1024, end_id=151653, end_key=151653
)
"""MOSS-TTS Delay: text, 32 delayed codebooks of 1024 and a pad; the audio ends with text id 151653, and the request
later with 151645 (OpenMOSS/MOSS-TTS, moss_tts_delay/configuration_moss_tts.py; the vocabulary of 155648 is that of
its public ports)."""

MOSS_TTSD = RowLayout(
    "moss_ttsd", (155648, *(1025,) * 16), key_space=SPACE, pad_code=1024, end_id=151653, end_key=151653
)
"""MOSS-TTSD v1.0: as MOSS-TTS Delay with 16 codebooks (OpenMOSS/MOSS-TTS, docs/moss_ttsd_model_card.md; its ids are
taken from the class it shares with Delay)."""

MOSS_NANO = RowLayout(
    "moss_tts_nano", (16384, *(1025,) * 16), key_space=16384, key_offset=10, pad_code=1024, end_id=7, end_key=7
)
"""MOSS-TTS-Nano: text, 16 codebooks of 1024 and a pad; special ids 3-9, audio end 7 (OpenMOSS/MOSS-TTS-Nano)."""

HIGGS_V3 = RowLayout("higgs_audio_v3", (1026,) * 8, key_space=SPACE, text_column=None, end_id=1025, end_key=SPACE)
"""Higgs Audio v3 TTS: 8 delayed codebooks of 1024 with begin 1024 and end 1025, no text; 1025 in codebook 0 opens
the end, which takes some frames more (bosonai/higgs-audio-v3-tts-4b, model card)."""

ZONOS2 = RowLayout(
    "zonos2",
    (*(1026,) * 9, 520),
    key_space=SPACE,
    text_column=9,
    pad_code=1025,
    end_rule=EndRule.ANY_CODE,
    end_id=1024,
    end_key=SPACE,
)
"""ZONOS2: 9 sheared codebooks of 1024 with end 1024 and pad 1025, then a text id; 1024 in any codebook opens the end,
which takes some frames more (Zyphra/ZONOS2, docs/tts_architecture.md)."""

FISH_S2 = RowLayout("fish_s2", (155776, *(4096,) * 10), key_space=SPACE, end_id=151645, end_key=151645)
"""Fish Audio S2: text or semantic id, 10 codebooks of 4096; ends with text id 151645 (the model's config.json as read
by sgl-project/sglang-omni, models/fishaudio_s2_pro). Its semantic ids lie above `SPACE`."""

QWEN3_TTS = RowLayout(
    "qwen3_tts", (3072, *(2048,) * 15), key_space=SPACE, text_column=None, pad_code=2148, end_id=2150, end_key=SPACE
)
"""Qwen3-TTS 12 Hz: codebook 0 of 2048 codes and special ids up to 3071, 15 codebooks of 2048; ends with 2150 in
codebook 0 (QwenLM/Qwen3-TTS, qwen_tts/core/models). Its text is added as an embedding and is no part of the row."""

CSM = RowLayout(
    "csm",
    (*(2051,) * 32, 128256),
    key_space=128000,
    text_column=32,
    pad_code=2050,
    end_rule=EndRule.EVERY_CODE,
    end_key=128003,
)
"""CSM-1B: 32 codebooks of 2051, then a text id of the Llama 3 vocabulary, whose special ids begin at 128000; a frame of
zeros ends the audio (huggingface/transformers, models/csm)."""

MOSHI = RowLayout(
    "moshi",
    (32001, *(2049,) * 16),
    key_space=32000,
    key_offset=4,
    pad_code=2048,
    end_rule=EndRule.MASK,
    end_key=32000,
)
"""Moshi: text, 16 codebooks of 2048 (8 it speaks, 8 it hears), each with an initial id above; low text ids are special.
Nothing in a row ends a dialogue: the caller says when (kyutai-labs/moshi, models/loaders.py)."""

LAYOUTS = (MOSS_LOCAL, MOSS_DELAY, MOSS_TTSD, MOSS_NANO, HIGGS_V3, ZONOS2, FISH_S2, QWEN3_TTS, CSM, MOSHI)
"""All of them."""
