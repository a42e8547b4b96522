"""The matrix of ways to compute the same audio, each held against the plainest one, bit for bit."""

from voxradix.verify.axes import AXES, TITLE, Cell, every_cell, pairwise_cells
from voxradix.verify.matrix import Matrix
from voxradix.verify.outcome import Difference, Outcome, Part

__all__ = ["AXES", "TITLE", "Cell", "Difference", "Matrix", "Outcome", "Part", "every_cell", "pairwise_cells"]
