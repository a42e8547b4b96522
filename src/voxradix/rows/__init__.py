"""Rows: what the integers of one sequence position mean, and the layouts of known models."""

from voxradix.rows.known import (
    CSM,
    FISH_S2,
    HIGGS_V3,
    LAYOUTS,
    MOSHI,
    MOSS_DELAY,
    MOSS_LOCAL,
    MOSS_NANO,
    MOSS_TTSD,
    QWEN3_TTS,
    SPACE,
    ZONOS2,
)
from voxradix.rows.layout import EndRule, Field, RowLayout

__all__ = [
    "CSM",
    "FISH_S2",
    "HIGGS_V3",
    "LAYOUTS",
    "MOSHI",
    "MOSS_DELAY",
    "MOSS_LOCAL",
    "MOSS_NANO",
    "MOSS_TTSD",
    "QWEN3_TTS",
    "SPACE",
    "ZONOS2",
    "EndRule",
    "Field",
    "RowLayout",
]
