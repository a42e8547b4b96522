"""Products whose every row is the same, bit for bit, whatever the batch.

Matrix libraries pick their summation order by the shape of the whole product, so a row's result can change
with the number of rows beside it. Two ways here do not: the plain product over a multiple of `ROWS` rows,
and oneDNN with weights packed once. `tests/test_exactness.py` holds both to it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

ROWS = 4
"""Every batch of rows is padded to a multiple of this; then `F.linear` and `torch.bmm` treat rows alike."""

_PACK_FROM = 200_000
"""Weights of at least this many elements are packed: below, oneDNN's dispatch costs more than it saves
(torch 2.13, two AVX2 cores: equal near 256 x 768, see `voxradix bench linear`)."""


def padded(rows: int) -> int:
    """The next multiple of `ROWS`."""
    return -(-rows // ROWS) * ROWS


class Linear:
    """``x @ weight.T + bias`` for x float32 [R, K], R a multiple of `ROWS`, to [R, N]."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """Keep or pack a weight [N, K]; the choice is made by its shape, once."""
        self._bias = bias
        self._packed = _pack(weight)
        self._weight = weight if self._packed is None else None

    def __call__(self, x: Tensor) -> Tensor:
        """The product."""
        if self._weight is not None:
            return F.linear(x, self._weight, self._bias)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        return product


def _pack(weight: Tensor) -> Tensor | None:
    """The weight in oneDNN's own layout, or None where the plain product serves (small, or no oneDNN)."""
    if weight.numel() < _PACK_FROM or weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return None
    try:
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    except (AttributeError, RuntimeError):  # operators private to torch: another release may lack them
        return None
    return packed
