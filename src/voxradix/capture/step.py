"""Steps: one operator call bound to its arguments, as cheap to repeat as torch allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from voxradix.capture.storage import tensors_in

_COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.clone.default)
_OF_THE_RESULT = frozenset({"dtype", "layout", "device", "pin_memory"})
"""Arguments that a given result tensor answers by itself, so out overloads of factories lack them."""
_BUILTIN = (BuiltinFunctionType, MethodDescriptorType)


def bound(
    func: OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    results: Sequence[Tensor],
    fresh: Sequence[int],
    keep: Sequence[int],
) -> Callable[[], object]:
    """A function of nothing that makes the call and leaves its values in ``results``.

    ``fresh`` are the results with memory of their own, ``keep`` those of them that are wanted. Where there is an
    out overload within reach, they are written directly; elsewhere they are made anew and copied.
    """
    if func in _COPIES and fresh:
        return partial(results[0].copy_, args[0])
    if len(fresh) == _returns(func):
        for out in _out_overloads(func):
            binding = _binding(out, args, kwargs, dict(zip(_outs(out), results, strict=True)))
            if binding is not None:
                return binding
    run = _binding(func, args, kwargs) or partial(func, *args, **kwargs)
    return partial(_run_and_copy, run, [(index, results[index].copy_) for index in keep]) if keep else run


def _run_and_copy(run: Callable[[], object], copies: Sequence[tuple[int, Callable[[Tensor], Tensor]]]) -> None:
    result = run()
    results = (result,) if isinstance(result, Tensor) else list(tensors_in(result))
    for index, copy in copies:
        copy(results[index])


def _out_overloads(func: OpOverload) -> Iterator[OpOverload]:
    """The overloads that compute the same into given tensors, one for each result."""
    wanted = _signature(func)
    for name in func.overloadpacket.overloads():
        overload: OpOverload = getattr(func.overloadpacket, name)
        if _returns(overload) == _returns(func) == len(_outs(overload)) and _signature(overload) == wanted:
            yield overload


def _outs(func: OpOverload) -> list[str]:
    return [argument.name for argument in func._schema.arguments if argument.is_out]


def _returns(func: OpOverload) -> int | None:
    """How many tensors an operator returns; None if there is a list among them."""
    returns = func._schema.returns
    return len(returns) if all(str(item.type) == "Tensor" for item in returns) else None


def _signature(func: OpOverload) -> list[tuple[str, str]]:
    """Names and types of the arguments that an operator and its out overload share."""
    arguments = func._schema.arguments
    return [(a.name, str(a.type)) for a in arguments if not a.is_out and a.name not in _OF_THE_RESULT]


def _binding(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], outs: dict[str, Tensor] | None = None
) -> Callable[[], object] | None:
    """The call through torch's own binding, which takes half the time of `OpOverload.__call__`, if there is one.

    With ``outs``, ``func`` is an out overload and ``kwargs`` are those of the operator it computes.
    """
    taken = {argument.name for argument in func._schema.arguments}
    public = {name: value for name, value in kwargs.items() if name in taken}
    wanted = public | (outs or {})
    if outs:
        public["out"] = tuple(outs.values()) if len(outs) > 1 else next(iter(outs.values()))
    for owner in (torch, Tensor, torch._C._nn):
        binding = getattr(owner, func._schema.name.removeprefix("aten::"), None)
        if isinstance(binding, _BUILTIN) and _reaches(binding, args, public, func, wanted):
            return partial(binding, *args, **public)
    return None


def _reaches(
    binding: Callable[..., object], args: tuple[Any, ...], public: dict[str, Any], func: OpOverload, kwargs: Any
) -> bool:
    """Whether a binding, given these arguments, calls exactly this overload with them. Nothing is computed."""
    probe = _Probe()
    try:
        with torch.no_grad(), probe:
            binding(*args, **public)
    except _Reached:
        return probe.func is func and _same(probe.args, (args, kwargs))
    except (TypeError, RuntimeError):
        return False
    return False


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return a is b
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return type(a) is type(b) and repr(a) == repr(b)


class _Reached(Exception):  # noqa: N818 - a signal
    """Ends a probe at its first operator."""


class _Probe(TorchDispatchMode):
    """Notes the first operator that is called, and stops there."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Not to be guarded from the compiler, whose import alone takes longer than a recording."""
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.func: OpOverload | None = None
        self.args: Any = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.func, self.args = func, (args, kwargs or {})
        raise _Reached
