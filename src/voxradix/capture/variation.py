"""Variations: other values for example inputs, laid out in memory as the examples are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from voxradix.capture.storage import same_bits

_COUNTS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def variations(inputs: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
    """Sets of other inputs to try in turn, the most different first; none if nothing can be varied.

    Rows are rolled; floats are also halved and moved by a quarter, so values stay in the range a callable may
    index or scale by. Integers that this leaves as they are, a single row for instance, are rolled within their
    rows or else moved by one, in the first set only, as a callable may not take them.
    """
    if not any(tensor.numel() for tensor in inputs):
        return [tuple(inputs)]
    made = [tuple(laid_out(_another(t, within), t) for t in inputs) for within in (True, False)]
    if all(map(same_bits, *made)):
        del made[1]
    return [others for others in made if not all(map(same_bits, inputs, others))]


def laid_out(values: Tensor, like: Tensor) -> Tensor:
    """The values with the strides that a copy of ``like`` has: a sum's bits depend on them."""
    return torch.empty_like(like.detach()).copy_(values.detach())


def _another(tensor: Tensor, within: bool) -> Tensor:
    tensor = tensor.detach()
    if tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1:
        return tensor.flatten().roll(1).view(tensor.shape)  # of eight bits: torch does not add them
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return tensor.flatten().roll(1).view(tensor.shape) * 0.5 + 0.25
    if tensor.dtype is torch.bool:
        return ~tensor
    rolls = [tensor.roll(1, dims) for dims in (0, -1)[: 1 + within]] if tensor.ndim else []
    if within and tensor.dtype in _COUNTS:
        rolls.append(torch.where(tensor > 0, tensor - 1, tensor + 1))
    return next((rolled for rolled in rolls if not same_bits(rolled, tensor)), tensor)
