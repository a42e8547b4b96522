"""Where a model computes and in what: names as users write them."""

from __future__ import annotations

import torch

from voxradix.errors import VoxradixError

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def named_device(name: str | None) -> torch.device:
    """The device of that name, such as "cpu" or "cuda:1"; without a name a GPU where there is one, else the CPU.

    Raises `VoxradixError` for a device that is not there.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda") or (device.type == "cpu" and device.index):
        raise VoxradixError(f"device is {name!r}; it must be cpu, cuda, or cuda:1 and so on")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise VoxradixError(f"device is {name!r}, but torch {torch.__version__} sees {torch.cuda.device_count()} GPUs")
    return device


def named_dtype(name: str | None, device: torch.device) -> torch.dtype:
    """The dtype of that name; without one, bfloat16 on a GPU and float32 on the CPU.

    Raises `VoxradixError` for any but float32, bfloat16 and float16.
    """
    if name is None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if not isinstance(name, str) or name not in _DTYPES:
        raise VoxradixError(f"dtype is {name!r}; it must be one of {', '.join(_DTYPES)}")
    return _DTYPES[name]
