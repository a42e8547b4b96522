"""Reading the JSON files of checkpoints, with errors a user can act on."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from voxradix.errors import VoxradixError


def is_directory(path: Path) -> bool:
    """Whether a path is a directory; `VoxradixError` when that cannot be seen, or the path can be none."""
    return stat.S_ISDIR(_mode(path))


def is_file(path: Path) -> bool:
    """Whether a path is a regular file; `VoxradixError` when that cannot be seen, or the path can be none."""
    return stat.S_ISREG(_mode(path))


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise VoxradixError(f"{str(path)[:200]!r} cannot be looked into: {reason}") from None


def read_json(path: Path) -> dict[str, object]:
    """Read a JSON object from a file; `VoxradixError` when it is missing, unreadable or no object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise VoxradixError(f"{path} does not exist; the directory needs a {path.name}") from None
    except (OSError, UnicodeError) as error:
        raise VoxradixError(f"{path} cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:
        raise VoxradixError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise VoxradixError(f"{path} holds a JSON {type(value).__name__}; it must be an object")
    return value
