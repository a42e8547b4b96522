"""Storages: which tensors share memory, and where memory came from in one call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef


def tensors_in(value: object) -> Iterator[Tensor]:
    """Every tensor in a value: itself, or inside sequences, mappings, sets, dataclasses and plain objects."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Tensor):
            yield item
        elif id(item) not in seen:
            seen.add(id(item))
            waiting.extend(reversed(_parts(item)))


def _parts(item: object) -> list[object]:
    if isinstance(item, list | tuple | set | frozenset):
        return list(item)
    if isinstance(item, dict):
        return list(item.values())
    if isinstance(item, type):
        return []
    if is_dataclass(item):
        return [getattr(item, field.name) for field in fields(item)]
    return list(vars(item).values()) if hasattr(item, "__dict__") and not callable(item) else []


def key_of(tensor: Tensor) -> int:
    """A number for the memory of a tensor. One with opaque memory (oneDNN's layout) is numbered by itself."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return id(tensor)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where memory came from: input ``number``, step ``number`` of the call, or outside of it."""

    place: str
    number: int


class StorageTable:
    """The storages of one call and their origins. It keeps no memory alive."""

    def __init__(self) -> None:
        """An empty table."""
        self._origins: dict[int, Origin] = {}
        # a weak reference keeps a dead storage's number from being given to a new one
        self._references: dict[int, StorageWeakRef] = {}

    def name(self, tensor: Tensor, origin: Origin) -> None:
        """Say where a tensor's memory came from, unless that is known."""
        key = key_of(tensor)
        if key not in self._origins:
            self._origins[key] = origin
            if key != id(tensor):
                self._references[key] = StorageWeakRef(tensor.untyped_storage())

    def origin(self, tensor: Tensor) -> Origin:
        """Where a tensor's memory came from; memory not seen before is from outside."""
        key = key_of(tensor)
        self.name(tensor, Origin("outside", key))
        return self._origins[key]

    def knows(self, tensor: Tensor) -> bool:
        """Whether a tensor's memory has been seen."""
        return key_of(tensor) in self._origins

    def alive(self) -> Iterator[tuple[int, Origin]]:
        """The keys and origins of the storages that still have a holder."""
        for key, reference in self._references.items():
            if not reference.expired():
                yield key, self._origins[key]


class Undo:
    """Copies of storages taken before they were written, to put back."""

    def __init__(self) -> None:
        """Nothing to put back."""
        self._kept: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}

    def keep(self, tensor: Tensor) -> None:
        """Copy a tensor's whole storage, unless it has been."""
        key = key_of(tensor)
        if key not in self._kept and key != id(tensor):
            storage = tensor.untyped_storage()
            self._kept[key] = storage, storage.clone()

    def put_back(self) -> None:
        """Write every storage as it was."""
        for storage, copy in self._kept.values():
            storage.copy_(copy)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same dtype, shape and bytes (NaN equals NaN of the same bits).

    The bytes of sparse, packed and meta tensors are not compared.
    """
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.is_meta or a.layout is not torch.strided:
        return True
    return torch.equal(a.contiguous().flatten().view(torch.uint8), b.contiguous().flatten().view(torch.uint8))
