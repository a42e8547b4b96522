"""Codes as codecs take them."""

from __future__ import annotations

from torch import Tensor

from voxradix.errors import VoxradixError


def check_codes(codes: Tensor, codebooks: int, codebook_size: int) -> None:
    """Raise `VoxradixError` unless ``codes`` are integers [frames, codebooks] in 0..codebook_size - 1."""
    if not isinstance(codes, Tensor):
        raise VoxradixError(f"codes are a {type(codes).__name__}; they must be a tensor of integers")
    if codes.ndim != 2 or codes.shape[1] != codebooks:
        raise VoxradixError(f"codes have shape {list(codes.shape)}, expected [frames, {codebooks}]")
    if codes.is_floating_point() or codes.is_complex():
        raise VoxradixError(f"codes are {codes.dtype}; they must be integers")
    if codes.numel() and not 0 <= int(codes.min()) <= int(codes.max()) < codebook_size:
        raise VoxradixError(f"codes must lie in 0..{codebook_size - 1}")
