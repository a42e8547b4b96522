"""A run: one node of the tree as it is told to those who look at it from outside."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Run:
    """A stretch of cached rows.

    Attributes:
        id: The slot of its first row: no other run has it while this one lasts, and the upper part keeps it when the
            run is split.
        parent: The id of the run before; None for one that begins a sequence.
        depth: Rows before it.
        rows: How many rows it has.
        given: How many of them, the first ones, came as rows of a prompt; the others were generated.
        in_use: Whether a request stands on it.
        pinned: Whether a pin holds it back till last.
        hit: Whether it has been found by a request.
    """

    id: int
    parent: int | None
    depth: int
    rows: int
    given: int
    in_use: bool
    pinned: bool
    hit: bool
