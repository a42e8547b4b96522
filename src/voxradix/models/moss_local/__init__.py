"""MOSS-TTS Local: rows of a text id and the codes of one audio frame."""

from voxradix.models.moss_local.attention import BLOCK, KVStore, Placement
from voxradix.models.moss_local.config import MossLocalConfig, read_config, read_json
from voxradix.models.moss_local.linear import ROWS, padded
from voxradix.models.moss_local.local import Frames
from voxradix.models.moss_local.model import MossLocal, load

__all__ = [
    "BLOCK",
    "ROWS",
    "Frames",
    "KVStore",
    "MossLocal",
    "MossLocalConfig",
    "Placement",
    "load",
    "padded",
    "read_config",
    "read_json",
]
