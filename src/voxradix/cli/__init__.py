"""The command line."""

from voxradix.cli.main import main

__all__ = ["main"]
