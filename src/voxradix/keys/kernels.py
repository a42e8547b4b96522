"""Triton kernels: the row hash, and the one launch that writes a frame's row with its key and packed words.

Loops run over a column count known at launch, so no batch size, column count or stride compiles anew. M31 is taken by
shift and add: 2**31 is 1 modulo 2**31 - 1, so the high bits are added to the low ones. Import this module only
where Triton is installed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from voxradix.errors import VoxradixError
from voxradix.keys.seed import BASE, MOD

_MOD = tl.constexpr(MOD)
_BASE = tl.constexpr(BASE)
BLOCK = 32
"""Rows a program works on: one warp, so that small batches waste little."""


@triton.jit
def _reduced(value):
    """The floor remainder of any int64 by `MOD`."""
    value = (value >> 31) + (value & _MOD)  # in [-2**32, 2**32 + 2**31)
    value = (value >> 31) + (value & _MOD)  # in [-2, 2**31 + 1]
    value = tl.where(value < 0, value + _MOD, value)
    return tl.where(value >= _MOD, value - _MOD, value)


@triton.jit
def _absorbed(acc, value):
    """One step of Horner's rule."""
    return _reduced(acc * _BASE + _reduced(value))


@triton.jit(
    do_not_specialize=["batch", "columns", "row_stride", "column_stride"],
    do_not_specialize_on_alignment=["rows", "raw"],
)
def hash_rows_kernel(
    rows,
    raw,
    batch,
    columns,
    row_stride,
    column_stride,
    BLOCK: tl.constexpr,  # noqa: N803
):
    """raw[b] = the polynomial of rows[b]."""
    b = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = b < batch
    at = rows + b.to(tl.int64) * row_stride
    acc = tl.zeros((BLOCK,), dtype=tl.int64)
    for column in range(columns):
        value = tl.load(at + column * column_stride.to(tl.int64), mask=live, other=0)
        acc = _absorbed(acc, value.to(tl.int64))
    tl.store(raw + b, acc, mask=live)


@triton.jit(
    do_not_specialize=[
        "batch", "codebooks", "words", "stop_stride", "row_stride", "column_stride",
        "continue_id", "end_id", "pad_code", "end_key", "space", "offset",
    ],
    do_not_specialize_on_alignment=["stop", "codes", "places", "rows", "keys", "packed"],
)  # fmt: skip
def publish_kernel(
    stop, codes, places, rows, keys, packed,
    batch, codebooks, words, stop_stride, row_stride, column_stride,
    continue_id, end_id, pad_code, end_key, space, offset, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Rows, keys and packed words of a batch of frames. ``places`` holds the words, then the shifts, of the columns."""
    b = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    live = b < batch
    ended = tl.load(stop + b * stop_stride, mask=live, other=0) != 0
    columns = codebooks + 1
    acc = tl.zeros((BLOCK,), dtype=tl.int64)
    word = tl.zeros((BLOCK,), dtype=tl.int64)
    for column in range(columns):
        if column == 0:
            value = tl.where(ended, end_id.to(tl.int64), continue_id.to(tl.int64))
        else:
            code = tl.load(codes + b * row_stride + (column - 1) * column_stride.to(tl.int64), mask=live, other=0)
            value = tl.where(ended, pad_code.to(tl.int64), code.to(tl.int64))
        tl.store(rows + b * columns + column, value, mask=live)
        acc = _absorbed(acc, value)
        index = tl.load(places + column)
        shift = tl.load(places + columns + column)
        word = tl.where(shift == 0, value, word | (value << shift))  # a shift of 0 opens the next word
        tl.store(packed + b * words + index, word, mask=live)  # the last store of a word holds all of it
    # both below 2**31: a 32-bit remainder, which no GPU needs a call for
    folded = acc.to(tl.uint32) % (space - offset).to(tl.uint32)
    tl.store(keys + b, tl.where(ended, end_key.to(tl.int64), folded.to(tl.int64) + offset), mask=live)


def hash_rows(rows: Tensor) -> Tensor:
    """`keys.row_hash` in one launch: int [B, C], any strides, to int64 [B]."""
    raw = torch.empty(rows.shape[0], dtype=torch.int64, device=rows.device)
    if rows.shape[0]:
        grid = (triton.cdiv(rows.shape[0], BLOCK),)
        with torch.cuda.device_of(rows):
            hash_rows_kernel[grid](rows, raw, *rows.shape, *rows.stride(), BLOCK=BLOCK, num_warps=1)
    return raw


def publish(
    stop: Tensor,
    codes: Tensor,
    places: Tensor,
    words: int,
    ids: tuple[int, int, int],
    end_key: int,
    space: int,
    offset: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, keys and packed words in one launch.

    Args:
        stop: bool [B].
        codes: int [B, codebooks], any strides.
        places: int64 [2, 1 + codebooks], the word and the shift of each column; it must be contiguous.
        words: Words of a packed row.
        ids: The text id of a frame that goes on, the text id of one that ended, and the pad code.
        end_key: The key of a frame that ended.
        space: Keys of frames that go on lie in ``[offset, space)``.
        offset: The lowest of them.
    """
    batch, codebooks = codes.shape
    if stop.shape != (batch,) or stop.dtype != torch.bool or places.shape != (2, codebooks + 1):
        raise VoxradixError(
            f"stop is {stop.dtype} {list(stop.shape)} and places {list(places.shape)} for codes {list(codes.shape)}; "
            f"they must be bool [{batch}] and [2, {codebooks + 1}]"
        )
    rows, keys, packed = (
        torch.empty(shape, dtype=torch.int64, device=codes.device)
        for shape in ((batch, codebooks + 1), (batch,), (batch, words))
    )
    if batch:
        grid = (triton.cdiv(batch, BLOCK),)
        with torch.cuda.device_of(codes):
            publish_kernel[grid](
                stop.view(torch.uint8), codes, places, rows, keys, packed,
                batch, codebooks, words, stop.stride(0), *codes.stride(), *ids, end_key, space, offset,
                BLOCK=BLOCK, num_warps=1,
            )  # fmt: skip
    return rows, keys, packed
