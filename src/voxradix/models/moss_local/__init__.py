"""MOSS-TTS Local: rows of a text id and the codes of one audio frame."""

from voxradix.models.moss_local.attention import BLOCK, KVStore, Placement
from voxradix.models.moss_local.config import MossLocalConfig, read_config
from voxradix.models.moss_local.linear import ROWS, padded
from voxradix.models.moss_local.local import Frames
from voxradix.models.moss_local.memory import MemoryPlan
from voxradix.models.moss_local.model import MossLocal, load
from voxradix.models.moss_local.prompt import NO_DETAILS, TEMPLATE, Details, is_unicode, own_codes, prompt_rows

__all__ = [
    "BLOCK",
    "NO_DETAILS",
    "ROWS",
    "TEMPLATE",
    "Details",
    "Frames",
    "KVStore",
    "MemoryPlan",
    "MossLocal",
    "MossLocalConfig",
    "Placement",
    "is_unicode",
    "load",
    "own_codes",
    "padded",
    "prompt_rows",
    "read_config",
]
