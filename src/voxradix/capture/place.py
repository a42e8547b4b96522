"""Places: which tensors of a call lie on the device, which on the host, and which nobody can tell."""

from __future__ import annotations

from enum import Enum

import torch
from torch import Tensor

from voxradix.capture.storage import key_of

CUDA = torch.device("cuda", 0)


class Place(Enum):
    """Where a tensor would lie."""

    DEVICE = "device"
    HOST = "host"
    UNKNOWN = "unknown"


class Places:
    """The places of one call's tensors, which all really lie on the CPU.

    With ``named`` the device is called cuda:0 and a tensor the call did not make may lie anywhere. Without, the
    CPU is the device: `torch.device("cpu")` means it, and only what is clearly made on the host lies there.
    """

    def __init__(self, named: bool) -> None:
        """No tensor is placed yet."""
        self.named = named
        self._places: dict[int, Place] = {}
        self._pinned: set[int] = set()

    def of(self, tensor: Tensor) -> Place:
        """Where a tensor lies."""
        return self._places.get(key_of(tensor), Place.UNKNOWN if self.named else Place.DEVICE)

    def put(self, tensor: Tensor, place: Place) -> None:
        """Say where a tensor lies."""
        self._places[key_of(tensor)] = place

    def pin(self, tensor: Tensor) -> None:
        """Say that a tensor lies in pinned host memory."""
        self.put(tensor, Place.HOST)
        self._pinned.add(key_of(tensor))

    def pinned(self, tensor: Tensor) -> bool:
        """Whether a tensor lies in pinned host memory."""
        return key_of(tensor) in self._pinned or (torch.cuda.is_available() and tensor.is_pinned())

    def meant(self, device: object) -> Place:
        """The place that a ``device`` argument means."""
        if isinstance(device, Tensor):
            return self.of(device)
        if is_cuda(device):
            return Place.DEVICE
        if isinstance(device, torch.device):
            return Place.UNKNOWN if self.named else Place.DEVICE
        return Place.HOST

    def joint(self, tensors: list[Tensor]) -> Place:
        """Where an operator over these tensors works, one at least."""
        places = {self.of(tensor) for tensor in tensors}
        for place in (Place.DEVICE, Place.UNKNOWN):
            if place in places:
                return place
        return Place.HOST


def is_cuda(device: object) -> bool:
    """Whether a ``device`` argument names a CUDA device."""
    if isinstance(device, int) and not isinstance(device, bool):
        return True
    return isinstance(device, str | torch.device) and str(device).startswith("cuda")
