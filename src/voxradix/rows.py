"""Rows: what the integers of one sequence position mean, column by column."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from voxradix.errors import VoxradixError

WORD_BITS = 63
"""Bits of an int64 word a packed row may use: the sign bit stays clear, so words compare as they look."""


@dataclass(frozen=True)
class Field:
    """Where one column of a row lies in the packed row: ``(column value) << shift`` in word ``word``."""

    word: int
    shift: int
    bits: int


@dataclass(frozen=True)
class RowLayout:
    """The columns of a model family's rows.

    Column 0 holds the text id, every further column one codebook's code. A layout is one value for a whole
    checkpoint; it knows no tensor and no model.

    Attributes:
        name: The family the layout belongs to, for messages.
        bounds: For each column, the first value that is too large (its values are ``0 .. bound - 1``).
        end_id: The text id that ends the audio; its row key is the id itself.
        pad_code: The code that stands in every codebook of a text row.
        key_space: Row keys of continuing frames lie below this id (``key_offset <= key < key_space``).
        key_offset: The lowest row key, for layouts whose special ids stand at the bottom.
    """

    name: str
    bounds: tuple[int, ...]
    end_id: int
    pad_code: int
    key_space: int
    key_offset: int = 0

    def __post_init__(self) -> None:
        """Refuse bounds no packed row can hold, and a fold that has no room."""
        for column, bound in enumerate(self.bounds):
            if not 1 <= bound < 1 << WORD_BITS:
                raise VoxradixError(
                    f"layout {self.name}: column {column} has bound {bound}; it must be positive and below "
                    f"2**{WORD_BITS}"
                )
        if not self.bounds:
            raise VoxradixError(f"layout {self.name}: a row needs at least one column")
        if not 0 <= self.key_offset < self.key_space:
            raise VoxradixError(
                f"layout {self.name}: keys fold into [{self.key_offset}, {self.key_space}); it must not be empty"
            )

    @property
    def columns(self) -> int:
        """The number of integers in a row (C)."""
        return len(self.bounds)

    @property
    def codebooks(self) -> int:
        """The number of codes in a row (C - 1)."""
        return len(self.bounds) - 1

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


MOSS_LOCAL = RowLayout(
    name="moss_tts_local",
    bounds=(151936, *(1025,) * 12),
    end_id=151670,
    pad_code=1024,
    key_space=151643,
)
"""MOSS-TTS Local v1.5 as released: text vocabulary 151936, 12 codebooks of 1024 codes and a pad, audio end
151670; ``<|endoftext|>`` 151643 opens the band of special ids (the model's public config.json)."""
