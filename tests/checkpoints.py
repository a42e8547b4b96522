"""The checkpoints that tests load: random ones of any size, and the recorded one."""

from pathlib import Path

from voxradix.models.moss_local.random_checkpoint import Sizes, prompt, write

__all__ = ["TINY", "Sizes", "prompt", "write"]

TINY = Path(__file__).parent / "data" / "moss_local_tiny"
"""The recorded checkpoint and its cases."""
