"""The recorder: one call's operators as a list that replays on static buffers, as a graph does, on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from voxradix.capture.hazard import written
from voxradix.capture.storage import key_of, tensors_in
from voxradix.capture.watch import Watch
from voxradix.errors import VoxradixError

R = TypeVar("R")
_EMPTY = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
_COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.clone.default)
_OF_THE_RESULT = frozenset({"dtype", "layout", "device", "pin_memory"})
"""Arguments that a given result tensor answers by itself, so out overloads of factories lack them."""
_BUILTIN = (BuiltinFunctionType, MethodDescriptorType)


class Recording(Generic[R]):
    """A call's operators, replayed in their order over the tensors of the call that was recorded.

    As with a CUDA graph, every replay reads the same input buffers and overwrites the same outputs; a result to
    keep must be copied. Replays are bit-identical to calling the function. Every intermediate tensor stays
    allocated.

    Attributes:
        inputs: The static input buffers, contiguous copies of the example inputs.
        outputs: What the function returned; its tensors are overwritten by every replay.
    """

    def __init__(self, inputs: tuple[Tensor, ...], outputs: R, steps: Sequence[Callable[[], object]]) -> None:
        """For `record`."""
        self.inputs = inputs
        self.outputs = outputs
        self._steps = tuple(steps)

    def __len__(self) -> int:
        """The number of operator calls a replay makes."""
        return len(self._steps)

    def replay(self, *inputs: Tensor) -> R:
        """Copy new inputs into the static buffers, if any are given, and run every step; returns `outputs`.

        Raises `VoxradixError` unless there are none or all of them, each with its buffer's shape and dtype.
        """
        if inputs:
            self._check(inputs)
        with torch.inference_mode():
            for buffer, value in zip(self.inputs, inputs, strict=False):
                buffer.copy_(value)
            for step in self._steps:
                step()
        return self.outputs

    def _check(self, inputs: tuple[Tensor, ...]) -> None:
        if len(inputs) != len(self.inputs):
            raise VoxradixError(f"{len(inputs)} inputs for a recording of {len(self.inputs)}")
        for number, (buffer, value) in enumerate(zip(self.inputs, inputs, strict=True)):
            if buffer.shape != value.shape or buffer.dtype != value.dtype:
                given = f"{value.dtype} {tuple(value.shape)}"
                raise VoxradixError(
                    f"input {number} is {given}; the recording takes {buffer.dtype} {tuple(buffer.shape)}"
                )


def record(fn: Callable[..., R], *inputs: Tensor) -> Recording[R]:
    """Call ``fn`` once on copies of ``inputs`` (CPU tensors) and record what it does.

    What it writes into tensors from outside, it writes: here once, and in every replay again. New tensors that it
    leaves elsewhere than in its result may not be replayed. What it builds lazily on its first call would be
    built by every replay, so call it once before. Raises `VoxradixError`, naming the operators and lines, if the
    call does what no graph can hold; that what is baked in stays true is for `checker.check` to say, which calls
    more than once.
    """
    buffers = tuple(tensor.detach().clone(memory_format=torch.contiguous_format) for tensor in inputs)
    tape = Tape()
    watch = Watch(buffers, listener=tape)
    outputs = watch.run(fn)
    if watch.findings:
        raise VoxradixError("cannot be recorded: " + "; ".join(str(f).replace("\n   ", "") for f in watch.findings))
    return Recording(buffers, outputs, tape.steps(outputs))


@dataclass(frozen=True, slots=True)
class _Call:
    """An operator call to replay: its arguments and results with tensors frozen, and the storages it touches."""

    func: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    made: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    reads: frozenset[int]
    writes: frozenset[int]


class Tape:
    """A `watch.Listener` that keeps what a replay must do.

    A result that shares memory with an argument is a view and needs no replay: it shows what its base holds.
    """

    def __init__(self) -> None:
        """An empty tape."""
        self._calls: list[_Call] = []

    def __call__(self, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> None:
        """Keep one operator call, after it ran."""
        reads = frozenset(key_of(tensor) for tensor in tensors_in((args, kwargs)))
        returned = list(tensors_in(result))
        results = tuple(map(_freeze, returned))
        made = tuple(ours for ours, given in zip(results, returned, strict=True) if key_of(given) not in reads)
        writes = frozenset(key_of(tensor) for tensor in written(func, args, kwargs))
        of_values = bool(made or writes) and torch.Tag.inplace_view not in func.tags
        if of_values and func._schema.name.removeprefix("aten::") not in _EMPTY:
            frozen = _freeze(tuple(args)), _freeze(kwargs)
            self._calls.append(_Call(func, *frozen, made, results, reads, writes))

    def steps(self, outputs: object) -> list[Callable[[], object]]:
        """The calls as functions of nothing, without those that make what is never used or always the same."""
        used = frozenset(map(key_of, tensors_in(outputs))).union(*(call.reads for call in self._calls))
        overwritten = frozenset[int]().union(*(call.writes for call in self._calls))
        constant: set[int] = set()
        steps: list[Callable[[], object]] = []
        for call in self._calls:
            made = {key_of(tensor) for tensor in call.made}
            if not call.writes and torch.Tag.nondeterministic_seeded not in call.func.tags:
                if call.reads <= constant and made.isdisjoint(overwritten):
                    constant |= made
                    continue
                if made.isdisjoint(used):
                    continue
            steps.append(_step(call, used))
        return steps


def _freeze(value: Any) -> Any:
    """A value with its tensors replaced by aliases: the callable may give its own another shape or storage."""
    if isinstance(value, Tensor):
        return value.detach() if value.layout is torch.strided else value
    if isinstance(value, list | tuple):
        return type(value)([_freeze(item) for item in value])
    if isinstance(value, dict):
        return {name: _freeze(item) for name, item in value.items()}
    return value


def _step(call: _Call, used: frozenset[int]) -> Callable[[], object]:
    """A function of nothing that writes the call's results into the tensors it made when it was recorded."""
    if call.func in _COPIES:
        return partial(call.made[0].copy_, call.args[0])
    if len(call.made) == len(call.func._schema.returns) and not call.writes:
        for out in _out_overloads(call.func):
            binding = _binding(out, call.args, call.kwargs, dict(zip(_outs(out), call.made, strict=True)))
            if binding is not None:
                return binding
    run = _binding(call.func, call.args, call.kwargs) or partial(call.func, *call.args, **call.kwargs)
    keep = [
        (index, result.copy_)
        for index, result in enumerate(call.results)
        if any(result is made for made in call.made) and key_of(result) in used
    ]
    return partial(_run_and_keep, run, keep) if keep else run


def _run_and_keep(run: Callable[[], object], keep: Sequence[tuple[int, Callable[[Tensor], Tensor]]]) -> None:
    result = run()
    results = (result,) if isinstance(result, Tensor) else list(tensors_in(result))
    for index, copy in keep:
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

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.func: OpOverload | None = None
        self.args: Any = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.func, self.args = func, (args, kwargs or {})
        raise _Reached
