"""voxradix: serves multi-codebook speech language models and never computes the same audio twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from voxradix.engine import Branch, Engine, Result, Take
    from voxradix.errors import VoxradixError
    from voxradix.sampling import GREEDY, Draw, Sampling

__version__ = "0.1.0"

__all__ = ["GREEDY", "Branch", "Draw", "Engine", "Result", "Sampling", "Take", "VoxradixError", "__version__"]

_HOMES = {
    "Engine": "voxradix.engine",
    "Result": "voxradix.engine",
    "Branch": "voxradix.engine",
    "Take": "voxradix.engine",
    "VoxradixError": "voxradix.errors",
    "GREEDY": "voxradix.sampling",
    "Draw": "voxradix.sampling",
    "Sampling": "voxradix.sampling",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for, so that `voxradix.keys` alone needs torch alone."""
    if name not in _HOMES:
        raise AttributeError(f"module 'voxradix' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
