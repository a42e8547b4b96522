"""What a decode step publishes of a frame: its row, its key, its packed words, in one operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import torch
from torch import Tensor

from voxradix.errors import VoxradixError
from voxradix.keys.packed import RowPacker, pack_columns
from voxradix.keys.seed import RowHash, fastest_hash, fold_keys, row_hash
from voxradix.rows import EndRule, RowLayout


@dataclass(frozen=True, slots=True)
class Published:
    """The rows of a batch of frames (int64 [B, C]), their keys (int64 [B]) and packed words (int64 [B, words])."""

    rows: Tensor
    keys: Tensor
    packed: Tensor


class RowPublisher:
    """Turns stop decisions and codes into rows, keys and packed words, on the device and without a host read.

    On CUDA with Triton it is one launch, behind the operator ``voxradix::publish_rows``; elsewhere, and for another
    row hash, the same values by torch operations. For layouts whose text id stands first and ends the audio.

    Attributes:
        fused: Whether it is the one launch.
    """

    def __init__(
        self,
        layout: RowLayout,
        continue_id: int,
        *,
        device: torch.device | str = "cpu",
        row_hash: RowHash | None = None,
    ) -> None:
        """Lay out what the layout says on a device.

        Args:
            layout: The rows to write.
            continue_id: The text id of a frame after which the audio goes on.
            device: Where stop decisions and codes will lie.
            row_hash: Another raw hash than the seed's.
        """
        if layout.text_column != 0 or layout.end_rule is not EndRule.COLUMN or layout.end_column != 0:
            raise VoxradixError(
                f"layout {layout.name}: only rows that begin with the text id that ends them are written"
            )
        if layout.pad_code is None or not 0 <= layout.pad_code < min(layout.bounds[1:], default=0):
            raise VoxradixError(
                f"layout {layout.name}: pad code {layout.pad_code} does not fit every codebook of a row that ends"
            )
        for name, value in (("continue_id", continue_id), ("end_id", layout.end_id)):
            if not 0 <= value < layout.bounds[0]:
                raise VoxradixError(
                    f"layout {layout.name}: {name} is {value}; text ids are 0 .. {layout.bounds[0] - 1}"
                )
        self._layout = layout
        self._ids = (continue_id, layout.end_id, layout.pad_code)
        self._row_hash = row_hash or fastest_hash(layout, device)
        self._pack = RowPacker(layout, device)
        self.fused = row_hash is None and torch.device(device).type == "cuda" and _kernels() is not None
        self._words = [field.word for field in layout.fields]
        self._shifts = [field.shift for field in layout.fields]
        self._places = torch.tensor([self._words, self._shifts], device=device)

    def __call__(self, stop: Tensor, codes: Tensor) -> Published:
        """Publish frames: stop decisions bool [B] and codes int [B, codebooks]; a frame that stops has pads instead."""
        layout = self._layout
        fold = (layout.end_key, layout.key_space, layout.key_offset)
        if self.fused:
            return Published(*publish_rows(stop, codes, self._places, self._words, self._shifts, *self._ids, *fold))
        rows = written_rows(stop, codes, *self._ids)
        return Published(rows, fold_keys(self._row_hash(rows), stop, *fold), self._pack(rows))


def written_rows(stop: Tensor, codes: Tensor, continue_id: int, end_id: int, pad_code: int) -> Tensor:
    """Rows of frames, int64 [B, 1 + codebooks]: the text id, and the codes or pads."""
    text = torch.where(stop, end_id, continue_id)
    return torch.cat((text[:, None], torch.where(stop[:, None], pad_code, codes.to(torch.int64))), dim=1)


@cache
def _kernels() -> ModuleType | None:
    """The Triton kernels, or None where Triton is not installed."""
    try:
        import voxradix.keys.kernels as kernels
    except ImportError:
        return None
    return kernels


def published_rows(
    stop: Tensor,
    codes: Tensor,
    places: Tensor,
    words: list[int],
    shifts: list[int],
    continue_id: int,
    end_id: int,
    pad_code: int,
    end_key: int,
    space: int,
    offset: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, keys and packed words of frames; the body of the operator `publish_rows`.

    Args:
        stop: bool [B].
        codes: int [B, codebooks].
        places: int64 [2, 1 + codebooks], ``words`` and ``shifts`` on the device of the codes.
        words: The word of the packed row that each column lies in.
        shifts: Its shift there.
        continue_id: Text id of a frame that goes on.
        end_id: Text id of a frame that ends the audio.
        pad_code: Code of every codebook of such a frame.
        end_key: Its key.
        space: Keys of other frames lie in ``[offset, space)``.
        offset: The lowest of them.
    """
    kernels = _kernels() if codes.is_cuda else None
    if kernels is not None:
        ids = (continue_id, end_id, pad_code)
        made: tuple[Tensor, Tensor, Tensor] = kernels.publish(
            stop, codes, places, words[-1] + 1, ids, end_key, space, offset
        )
        return made
    return published_by_torch(stop, codes, words, shifts, continue_id, end_id, pad_code, end_key, space, offset)


def published_by_torch(
    stop: Tensor,
    codes: Tensor,
    words: Sequence[int],
    shifts: Sequence[int],
    continue_id: int,
    end_id: int,
    pad_code: int,
    end_key: int,
    space: int,
    offset: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """`published_rows` by torch operations, for any integers; elementwise, so it may be captured in a graph."""
    rows = written_rows(stop, codes, continue_id, end_id, pad_code)
    return rows, fold_keys(row_hash(rows), stop, end_key, space, offset), pack_columns(rows, words, shifts)


publish_rows = torch.library.custom_op("voxradix::publish_rows", published_rows, mutates_args=())
"""`published_rows` as one opaque operator, for compilers, exporters and graphs."""


@publish_rows.register_fake
def _(stop: Tensor, codes: Tensor, places: Tensor, words: list[int], *_: object) -> tuple[Tensor, Tensor, Tensor]:
    batch, codebooks = codes.shape
    return (
        codes.new_empty((batch, codebooks + 1), dtype=torch.int64),
        codes.new_empty((batch,), dtype=torch.int64),
        codes.new_empty((batch, words[-1] + 1), dtype=torch.int64),
    )
