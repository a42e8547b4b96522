"""Traces: what a call did, operator by operator, in a form that two calls can be compared in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from voxradix.capture.finding import Finding, Kind
from voxradix.capture.line import Line
from voxradix.capture.storage import Origin, StorageTable


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor argument: where its memory came from, and its dtype, shape, strides and offset."""

    origin: Origin
    geometry: tuple[object, ...]

    def __str__(self) -> str:
        """For a message."""
        number = "" if self.origin.place == "outside" else f" {self.origin.number}"
        return f"a {self.geometry[0]} {self.geometry[1]} tensor of {self.origin.place}{number}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One operator call: its name, its flattened arguments (tensors as `Ref`, the rest as text), its line."""

    operator: str
    arguments: tuple[Ref | str, ...]
    line: Line


def arguments_of(values: object, table: StorageTable) -> Iterator[Ref | str]:
    """Flatten an operator's arguments."""
    if isinstance(values, Tensor):
        origin = table.origin(values)
        geometry: tuple[object, ...] = (values.dtype, tuple(values.shape))
        if values.layout is torch.strided:
            geometry += (values.stride(), values.storage_offset())
        yield Ref(origin, geometry)
    elif isinstance(values, list | tuple):
        for value in values:
            yield from arguments_of(value, table)
    elif isinstance(values, dict):
        for name, value in values.items():
            yield name
            yield from arguments_of(value, table)
    elif isinstance(values, torch.UntypedStorage | torch.TypedStorage):
        yield "a storage"
    elif isinstance(values, torch.Generator):
        yield f"a generator on {values.device}"
    else:
        yield repr(values)


def differences(first: list[Entry], second: list[Entry], between: str) -> Iterator[Finding]:
    """What differs between two calls that should do the same, each ending in its result.

    ``between`` names the calls for the message.
    """
    for a, b in zip(first, second, strict=False):
        if a.operator != b.operator:
            yield Finding(
                Kind.STALE, a.operator, str(a.line), f"{between}, the next call comes to {b.operator} instead"
            )
            return
        if len(a.arguments) != len(b.arguments):
            yield Finding(Kind.STALE, a.operator, str(a.line), f"{between}, the next call gives it more or less")
            return
        for x, y in zip(a.arguments, b.arguments, strict=True):
            if not _agree(x, y):
                detail = f"{between}, it gets {_short(x)} in one call and {_short(y)} in the next"
                yield Finding(Kind.STALE, a.operator, str(a.line), detail)
                break


def _agree(x: Ref | str, y: Ref | str) -> bool:
    """Whether two arguments are the same, or differ only in consequence of an earlier difference."""
    if isinstance(x, Ref) and isinstance(y, Ref) and x.origin == y.origin and x.origin.place != "outside":
        return True  # its shape or place in memory was decided by an earlier operator
    return x == y


def _short(value: Ref | str) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
