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

LANES = 16
"""Inner and outer widths of products are padded to a multiple of this with zeros: with other widths a row's bits
depend on its place in the batch, or on the number of threads."""

_PACK_FROM = 200_000
"""Weights of at least this many elements are packed: below, oneDNN's dispatch costs more than it saves (torch 2.13,
two AVX2 cores: both take the same time near 256 x 768)."""


def padded(rows: int) -> int:
    """The next multiple of `ROWS`."""
    return -(-rows // ROWS) * ROWS


def widened(x: Tensor) -> Tensor:
    """x [..., K] with zeros up to the next multiple of `LANES` columns."""
    missing = -x.shape[-1] % LANES
    return F.pad(x, (0, missing)) if missing else x


class Linear:
    """``x @ weight.T + bias`` for x float32 [R, K], R a multiple of `ROWS`, to float32 [R, N].

    With a bfloat16 or float16 weight the product alone is computed in that type.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """Keep or pack a weight [N, K]; the choice is made by its shape and type, once."""
        self._outputs = weight.shape[0]
        wide = widened(widened(weight).t()).t().contiguous()
        self._bias = None if bias is None else widened(bias)
        self._packed = _pack(wide)
        self._weight = wide if self._packed is None else None

    def __call__(self, x: Tensor) -> Tensor:
        """The product."""
        x = widened(x)
        product: Tensor
        if self._weight is not None:
            product = F.linear(x.to(self._weight.dtype), self._weight, self._bias).to(torch.float32)
        else:
            product = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        return product[:, : self._outputs]


def _pack(weight: Tensor) -> Tensor | None:
    """The weight in oneDNN's own layout, or None where the plain product serves (small, half, or no oneDNN)."""
    if weight.numel() < _PACK_FROM or weight.dtype != torch.float32:
        return None
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return None
    try:
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    except (AttributeError, RuntimeError):  # operators private to torch: another release may lack them
        return None
    return packed
