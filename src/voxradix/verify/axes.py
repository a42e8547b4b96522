"""The axes of the matrix: what may differ between two ways to compute the same audio."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from enum import StrEnum
from itertools import combinations, product
from typing import Any, get_type_hints


class Key(StrEnum):
    """What the keys of rows are folded from; ``SEVEN`` gives every row the same one."""

    SEED = "seed"
    BLAKE2B = "blake2b"
    PACKED = "packed"
    SEVEN = "always 7"


class Step(StrEnum):
    """How a decode step runs."""

    EAGER = "eager"
    GRAPH = "graph"


class Lookahead(StrEnum):
    """Whether a step is launched before the one before it has been looked at."""

    OFF = "in turn"
    ON = "lookahead"


class Cache(StrEnum):
    """What the engine has cached: nothing yet, the same requests, some that went on from them, or never anything."""

    COLD = "cold"
    TWIN = "twin"
    CONTINUATION = "continuation"
    OFF = "no cache"


class Batch(StrEnum):
    """Who runs at the same time."""

    ALONE = "alone"
    TWO = "2"
    FIVE = "5"
    SIXTEEN = "16"
    STRANGERS = "strangers"

    @property
    def requests(self) -> int:
        """The requests that are looked at; strangers are not."""
        return 1 if self in (Batch.ALONE, Batch.STRANGERS) else int(self)


class Prefill(StrEnum):
    """How many rows of all prompts are prefilled in one step."""

    WHOLE = "whole"
    ONE = "chunks of 1"
    SEVEN = "chunks of 7"
    SIXTY_FOUR = "chunks of 64"


class Retraction(StrEnum):
    """When a request loses its slots."""

    NEVER = "stays"
    EVERY_FRAME = "retracted"


class Way(StrEnum):
    """How frames are drawn."""

    GREEDY = "greedy"
    SEEDED = "seeded"
    PENALISED = "penalised"


@dataclass(frozen=True, slots=True)
class Cell:
    """One way to compute audio: a value of each axis."""

    key: Key
    step: Step
    lookahead: Lookahead
    cache: Cache
    batch: Batch
    prefill: Prefill
    retraction: Retraction
    way: Way

    def __str__(self) -> str:
        """The values in columns, as `TITLE` names them."""
        return "  ".join(value.ljust(width) for value, width in zip(astuple(self), WIDTHS, strict=True))


AXES: dict[str, tuple[Any, ...]] = {name: tuple(axis) for name, axis in get_type_hints(Cell).items()}
"""The values of each axis, in the order of a cell's fields."""

WIDTHS = tuple(max(len(text) for text in (name, *axis)) for name, axis in AXES.items())
"""The width of each axis's column."""

TITLE = "  ".join(name.ljust(width) for name, width in zip(AXES, WIDTHS, strict=True))
"""The names of the columns of a printed cell."""


def every_cell() -> tuple[Cell, ...]:
    """The full product of all axes."""
    return tuple(Cell(*values) for values in product(*AXES.values()))


def pairwise_cells() -> tuple[Cell, ...]:
    """A few cells in which any two values of any two axes meet."""
    axes = tuple(AXES.values())
    covering = covering_array([len(axis) for axis in axes])
    return tuple(Cell(*(axis[index] for axis, index in zip(axes, row, strict=True))) for row in covering)


def covering_array(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Rows of values ``0 .. size - 1`` in which all pairs of values of all pairs of columns occur.

    Greedy: each row begins with the first pair still missing, and every other column then takes the value that meets
    the most missing ones; of equals the one used least, and of those the lowest.
    """
    missing = {
        ((a, left), (b, right)): None
        for a, b in combinations(range(len(sizes)), 2)
        for left in range(sizes[a])
        for right in range(sizes[b])
    }

    used: Counter[tuple[int, int]] = Counter()

    def worth(row: dict[int, int], item: tuple[int, int]) -> tuple[int, int]:
        return sum(tuple(sorted((item, other))) in missing for other in row.items()), -used[item]

    rows: list[tuple[int, ...]] = []
    while missing:
        row = dict(next(iter(missing)))
        for column, size in enumerate(sizes):
            if column not in row:
                row[column] = max(range(size), key=lambda value: worth(row, (column, value)))
        used.update(row.items())
        for pair in combinations(sorted(row.items()), 2):
            missing.pop(pair, None)
        rows.append(tuple(value for _, value in sorted(row.items())))
    return rows
