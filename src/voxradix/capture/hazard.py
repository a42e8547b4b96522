"""Hazards: what one operator call would do to a capture, judged by its schema, its tags and where its tensors lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from voxradix.capture.finding import Kind
from voxradix.capture.place import Place, Places
from voxradix.capture.storage import tensors_in

Hazard = tuple[Kind, str]

_READERS = {
    "aten::multinomial": "it checks the probabilities on the host",
    "aten::histc": "it reads the range on the host",
    "aten::_linalg_check_errors": "it reads the error code on the host",
    "aten::_to_sparse": "it counts the values on the host",
    "aten::embedding_renorm_": "it reads the indices on the host",
}
"""Operators that wait for the device inside, which no tag tells."""

TO_HOST: Hazard = Kind.HOST_READ, "it copies from the device to the host"
_MISPLACED: Hazard = Kind.MISPLACED, "a tensor made on the host is used with tensors of the device"
_MASKS = (torch.bool, torch.uint8)
_INDEXING = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")


class Unplaced(BaseException):
    """The call works on a tensor from outside, and nothing says where that would lie.

    Not an `Exception`: the callable under test must not catch it.
    """


def written(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that an operator call writes in place, by its schema."""
    targets: list[object] = []
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            targets.append(args[index] if index < len(args) else kwargs.get(argument.name))
    return list(tensors_in(targets))


def hazards(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], places: Places) -> Iterator[Hazard]:
    """What this call would do to a capture. Raises `Unplaced` where that cannot be told."""
    tensors = list(tensors_in((args, kwargs)))
    name, tags = func._schema.name, func.tags
    if any(_on_host(g) for g in (*args, *kwargs.values()) if isinstance(g, torch.Generator)):
        yield Kind.HOST_RANDOM, "it draws from a generator of the host"
    if any(places.of(tensor) is Place.UNKNOWN for tensor in tensors if tensor.ndim > 0):
        raise Unplaced
    if not tensors:
        return
    if all(places.of(tensor) is Place.HOST for tensor in tensors):
        return
    if name == "aten::copy_":
        yield from _copy(args, kwargs, places)
        return
    if name in _INDEXING:
        yield from _indexing(name, args, places)
    elif torch.Tag.dynamic_output_shape in tags:
        if kwargs.get("output_size") is None:
            yield Kind.DYNAMIC_SHAPE, "the shape of its result depends on values"
    elif torch.Tag.data_dependent_output in tags:
        yield Kind.HOST_READ, "the host waits for a value"
    elif name in _READERS:
        yield Kind.HOST_READ, _READERS[name]
    if _mixed(tensors, places) and name not in _INDEXING:
        yield _MISPLACED


def _on_host(generator: torch.Generator) -> bool:
    return generator.device.type == "cpu"


def _mixed(tensors: Sequence[Tensor], places: Places) -> bool:
    """Whether host tensors of a dimension or more meet device tensors; a host scalar may."""
    on_host = any(places.of(tensor) is Place.HOST for tensor in tensors if tensor.ndim > 0)
    return on_host and places.joint(list(tensors)) is Place.DEVICE


def _copy(args: Sequence[Any], kwargs: Mapping[str, Any], places: Places) -> Iterator[Hazard]:
    target, source = args[:2]
    ends = places.of(target), places.of(source)
    if ends[0] is ends[1]:
        return
    if Place.UNKNOWN in ends:
        raise Unplaced
    waits = not (kwargs.get("non_blocking") or (len(args) > 2 and args[2]))
    host = source if ends[0] is Place.DEVICE else target
    if not waits and places.pinned(host):
        return
    if host is source:
        yield pageable(places.pinned(host))
    else:
        yield TO_HOST


def pageable(pinned: bool) -> Hazard:
    """A copy from the host that a capture cannot hold."""
    if pinned:
        return Kind.PAGEABLE_COPY, "the host waits for the copy; non_blocking=True would not"
    return Kind.PAGEABLE_COPY, "it copies from unpinned host memory to the device"


def _indexing(name: str, args: Sequence[Any], places: Places) -> Iterator[Hazard]:
    indices = [index for index in args[1] if index is not None]
    masks = [index for index in indices if index.dtype in _MASKS]
    if masks and name == "aten::index":
        yield Kind.DYNAMIC_SHAPE, "a mask as index: the shape of the result is its count"
    elif masks and not _fills(args, masks, indices):
        yield Kind.DYNAMIC_SHAPE, "a mask as index: its count is read on the host"
    if _mixed([args[0], *indices], places):
        yield Kind.PAGEABLE_COPY, "an index made on the host is copied to the device"
    if _mixed(list(tensors_in([args[0], *args[2:]])), places):
        yield _MISPLACED


def _fills(args: Sequence[Any], masks: Sequence[Tensor], indices: Sequence[Tensor]) -> bool:
    """Whether torch turns the assignment into `masked_fill_`: one mask, a scalar, nothing accumulated."""
    accumulates = len(args) > 3 and args[3]
    return len(masks) == len(indices) == 1 and args[2].ndim == 0 and not accumulates
