"""A row layout: what the columns of a row mean, and where they lie in the packed row."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import torch
from torch import Tensor

from voxradix.errors import VoxradixError

WORD_BITS = 63
"""Bits of an int64 word a packed row may use: the sign bit stays clear, so words compare as they look."""

MOST_KEYS = 2**31 - 1
"""The values of the raw row hash: a wider fold would not be filled."""


@dataclass(frozen=True)
class Field:
    """Where one column of a row lies in the packed row: ``(column value) << shift`` in word ``word``."""

    word: int
    shift: int
    bits: int


class EndRule(Enum):
    """How a row says that the audio ends."""

    COLUMN = "an id in one column"
    ANY_CODE = "an id in any codebook"
    EVERY_CODE = "an id in every codebook"
    MASK = "not by the row: the model gives a mask"


@dataclass(frozen=True)
class RowLayout:
    """The columns of a model family's rows.

    A layout is one value for a whole checkpoint; it knows no tensor and no model.

    Attributes:
        name: The family the layout belongs to, for messages.
        bounds: For each column, the first value that is too large (its values are ``0 .. bound - 1``).
        text_column: Where the text id stands; None for rows of codes alone.
        pad_code: The code that stands in a codebook that says nothing, in the codebooks that have one; None where
            there is none.
        end_rule: How a row ends the audio.
        end_id: The id that the rule looks for.
        end_column: The column that `EndRule.COLUMN` looks in.
        end_key: The key of a row that ends the audio. The released families keep their end id.
        key_space: Keys of other rows lie below this id (``key_offset <= key < key_space``).
        key_offset: The lowest key, for layouts whose special ids stand at the bottom.
    """

    name: str
    bounds: tuple[int, ...]
    key_space: int
    end_key: int
    text_column: int | None = 0
    pad_code: int | None = None
    end_rule: EndRule = EndRule.COLUMN
    end_id: int = 0
    end_column: int = 0
    key_offset: int = 0

    def __post_init__(self) -> None:
        """Refuse bounds no packed row can hold, a fold without room, and an end key among the others."""
        for column, bound in enumerate(self.bounds):
            if not 1 <= bound < 1 << WORD_BITS:
                raise VoxradixError(
                    f"layout {self.name}: column {column} has bound {bound}; it must be positive and below "
                    f"2**{WORD_BITS}"
                )
        if not self.bounds:
            raise VoxradixError(f"layout {self.name}: a row needs at least one column")
        if not 0 <= self.key_offset < self.key_space or self.key_space - self.key_offset > MOST_KEYS:
            raise VoxradixError(
                f"layout {self.name}: keys fold into [{self.key_offset}, {self.key_space}); it must hold 1 to "
                f"{MOST_KEYS} keys"
            )
        for name, place in (("text_column", self.text_column or 0), ("end_column", self.end_column)):
            if not 0 <= place < len(self.bounds):
                raise VoxradixError(
                    f"layout {self.name}: {name} is {place}; it must lie in 0 .. {len(self.bounds) - 1}"
                )
        if self.key_offset <= self.end_key < self.key_space:
            raise VoxradixError(
                f"layout {self.name}: end key {self.end_key} lies in [{self.key_offset}, {self.key_space}), where "
                "other rows' keys lie"
            )

    @property
    def columns(self) -> int:
        """The number of integers in a row (C)."""
        return len(self.bounds)

    @property
    def code_columns(self) -> tuple[int, ...]:
        """The columns that hold codes."""
        return tuple(column for column in range(self.columns) if column != self.text_column)

    @property
    def codebooks(self) -> int:
        """The number of codes in a row."""
        return len(self.code_columns)

    def ended(self, rows: Tensor) -> Tensor:
        """Which rows (int [B, C]) end the audio: bool [B], by elementwise operations without a host read.

        `VoxradixError` for a layout whose rows do not say.
        """
        if self.end_rule is EndRule.MASK:
            raise VoxradixError(f"layout {self.name}: the end is told {self.end_rule.value}; give the mask")
        hits = rows.to(torch.int64).eq(self.end_id)  # narrower integers would wrap the id
        if self.end_rule is EndRule.COLUMN:
            return hits[:, self.end_column]
        codes = torch.stack([hits[:, column] for column in self.code_columns], dim=1)
        return codes.any(dim=1) if self.end_rule is EndRule.ANY_CODE else codes.all(dim=1)

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The packed place of every column: filled in order, a column never split over two words."""
        places: list[Field] = []
        word = shift = 0
        for bound in self.bounds:
            bits = (bound - 1).bit_length()
            if shift + bits > WORD_BITS:
                word, shift = word + 1, 0
            places.append(Field(word, shift, bits))
            shift += bits
        return tuple(places)

    @property
    def words(self) -> int:
        """The int64 words of a packed row."""
        return self.fields[-1].word + 1

    def check(self, rows: Tensor) -> None:
        """Raise `VoxradixError` naming the first value of ``rows`` (int [T, C]) outside the layout.

        Reads the values on the host, so it belongs at the door, never in the decode step.
        """
        if rows.dim() != 2 or rows.shape[1] != self.columns:
            raise VoxradixError(f"rows have shape {list(rows.shape)}; layout {self.name} needs [T, {self.columns}]")
        if rows.is_floating_point() or rows.is_complex():
            raise VoxradixError(f"rows have dtype {rows.dtype}; they must be integers")
        values = rows.to(torch.int64)
        wrong = (values < 0) | (values >= torch.tensor(self.bounds, device=rows.device))
        if bool(wrong.any()):
            row, column = (int(i) for i in wrong.nonzero()[0])
            raise VoxradixError(
                f"row {row}, column {column} holds {int(rows[row, column])}; "
                f"layout {self.name} allows 0 .. {self.bounds[column] - 1} there"
            )
