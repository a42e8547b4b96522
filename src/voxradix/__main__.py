"""``python -m voxradix``."""

from voxradix.cli import main

main()
