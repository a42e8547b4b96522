"""What a command says to a person beside its result."""

from __future__ import annotations

import sys


def say(message: str) -> None:
    """Print one line on standard error."""
    print("voxradix:", " ".join(message.split()), file=sys.stderr)
