"""The tape: the operator calls of one recorded call, and what of them a replay must do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from voxradix.capture.hazard import written
from voxradix.capture.step import bound
from voxradix.capture.storage import key_of, tensors_in

_LIFT = torch.ops.aten.lift_fresh.default
_EMPTY = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})


@dataclass(frozen=True, slots=True)
class _Call:
    """An operator call with its tensors frozen.

    Attributes:
        func: The operator.
        args: Its arguments; kwargs likewise.
        kwargs: Its named arguments.
        results: The tensors it returned.
        fresh: Which of them have memory of their own.
        reads: The storages of its arguments.
        writes: Those of them it writes.
    """

    func: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[Tensor, ...]
    fresh: tuple[int, ...]
    reads: frozenset[int]
    writes: frozenset[int]

    @property
    def made(self) -> frozenset[int]:
        """The storages it made."""
        return frozenset(key_of(self.results[index]) for index in self.fresh)


class Tape:
    """A `watch.Listener` that keeps what a replay must do.

    A result that shares memory with an argument is a view and needs no replay: it shows what its base holds.
    Values written in the code, which no operator makes, are kept, so that a replay can put them back.
    """

    def __init__(self) -> None:
        """An empty tape."""
        self._calls: list[_Call] = []
        self._blank: list[Tensor] = []  # made without values; kept, so that their keys stay theirs
        self._literals: list[tuple[Tensor, Tensor]] = []  # values written in the code, and copies of them

    def __call__(self, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> None:
        """Keep one operator call, after it ran."""
        reads = frozenset(key_of(tensor) for tensor in tensors_in((args, kwargs)))
        results = tuple(tensors_in(result))
        fresh = tuple(index for index, tensor in enumerate(results) if key_of(tensor) not in reads)
        writes = frozenset(key_of(tensor) for tensor in written(func, args, kwargs))
        if func is _LIFT:
            self._literals.extend((_freeze(tensor), tensor.clone()) for tensor in results)
        elif func._schema.name.removeprefix("aten::") in _EMPTY:
            self._blank.extend(map(_freeze, results))
        elif (fresh or writes) and torch.Tag.inplace_view not in func.tags:
            frozen = _freeze(tuple(args)), _freeze(kwargs), _freeze(results)
            self._calls.append(_Call(func, *frozen, fresh, reads, writes))

    def steps(self, outputs: object) -> list[Callable[[], object]]:
        """The calls as functions of nothing, without those that make what is never used or always the same.

        What is written in the call or returned, where a caller may write it, is not always the same.
        """
        returned = frozenset(map(key_of, tensors_in(outputs)))
        used = returned.union(*(call.reads for call in self._calls))
        overwritten = frozenset[int]().union(*(call.writes for call in self._calls))
        altered = overwritten | returned
        constant: set[int] = set()
        calls: list[_Call] = []
        for call in self._calls:
            pure = not call.writes and torch.Tag.nondeterministic_seeded not in call.func.tags
            if pure and call.reads <= constant and call.made.isdisjoint(altered):
                constant |= call.made
            elif not pure or not call.made.isdisjoint(used):
                calls.append(call)
        owned = frozenset(map(key_of, self._blank)).union(*(call.made for call in calls))
        kept = [[i for i in call.fresh if key_of(call.results[i]) in used] for call in calls]
        moved = _reuse(calls, owned - returned - constant)
        restored = [partial(tensor.copy_, values) for tensor, values in self._literals if key_of(tensor) in altered]
        return restored + [
            bound(call.func, call.args, call.kwargs, call.results, call.fresh, keep)
            for call, keep in zip(moved, kept, strict=True)
        ]


def _freeze(value: Any) -> Any:
    """A value with its tensors replaced by aliases: the callable may give its own another shape or storage."""
    if isinstance(value, Tensor):
        return value.detach() if value.layout is torch.strided else value
    return _mapped(_freeze, value)


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)([change(item) for item in value])
    if isinstance(value, dict):
        return {name: change(item) for name, item in value.items()}
    return value


def _reuse(calls: list[_Call], movable: Set[int]) -> list[_Call]:
    """The calls with storages of ``movable`` shared by those of one size that are dead before the next is made.

    A replay then goes through as little memory as the call did, and finds it in the caches.
    """
    storages: dict[int, torch.UntypedStorage] = {}
    last: dict[int, int] = {}
    for index, call in enumerate(calls):
        for tensor in tensors_in((call.args, call.kwargs, call.results)):
            key = key_of(tensor)
            if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
                movable = movable - {key}
            elif key in movable:
                storages[key], last[key] = tensor.untyped_storage(), index
    homes: dict[int, torch.UntypedStorage] = {}
    free: defaultdict[int, list[torch.UntypedStorage]] = defaultdict(list)

    def move(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return _mapped(move, value)
        home = homes.get(key_of(value))
        if home is None or home is storages[key_of(value)]:
            return value
        blank = torch.empty(0, dtype=value.dtype)
        return blank.set_(home, value.storage_offset(), value.size(), value.stride())

    moved: list[_Call] = []
    for index, call in enumerate(calls):
        touched = sorted((call.reads | call.made) & movable)
        for key in touched:
            if key not in homes:
                size = storages[key].nbytes()
                homes[key] = free[size].pop() if free[size] else storages[key]
        args, kwargs, results = move(call.args), move(call.kwargs), move(call.results)
        moved.append(replace(call, args=args, kwargs=kwargs, results=results))
        for key in touched:
            if last[key] == index:
                free[homes[key].nbytes()].append(homes[key])
    return moved
