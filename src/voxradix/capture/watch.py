"""The watch over one call: sees its operators and its Python calls on tensors, and notes what it finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from voxradix.capture.finding import Finding, Kind, same_spot
from voxradix.capture.hazard import TO_HOST, Hazard, Unplaced, hazards, pageable, written
from voxradix.capture.line import Line, user_line
from voxradix.capture.place import CUDA, Place, Places, is_cuda
from voxradix.capture.storage import Origin, StorageTable, Undo, key_of, tensors_in
from voxradix.capture.trace import Entry, Ref, arguments_of

R = TypeVar("R")
Listener = Callable[[OpOverload, Sequence[Any], dict[str, Any], Any], None]

_READS = frozenset({"tolist", "numpy", "__array__", "__dlpack__", "__repr__", "__format__"})
"""Reads of a whole tensor that never reach an operator on the CPU."""

_MOVES = frozenset({"to", "cpu", "cuda"})
_FROM_DATA = frozenset({"tensor", "as_tensor", "asarray", "new_tensor"})
_LIFT = torch.ops.aten.lift_fresh.default


class Watch:
    """One call of a callable on CPU tensors that stand for tensors of the device.

    Attributes:
        entries: What the call did, operator by operator.
        findings: What would break a capture, in order, each once.
        first_hand: The findings among them that read a value computed from the inputs.
        table: The storages of the call and their origins.
        derived: Keys of the storages made in the call from the inputs, and of the inputs themselves.
    """

    def __init__(
        self,
        inputs: Sequence[Tensor],
        *,
        cuda: bool = False,
        undo: Undo | None = None,
        listener: Listener | None = None,
    ) -> None:
        """Watch a call on ``inputs``.

        With ``cuda``, tensors of the device say they lie on cuda:0. ``undo`` keeps what the call writes outside;
        ``listener`` is told of every operator call, after it ran.
        """
        self.entries: list[Entry] = []
        self.findings: list[Finding] = []
        self.first_hand: list[Finding] = []
        self.table = StorageTable()
        self.derived: set[int] = set()
        self._inputs = tuple(inputs)
        self._places = Places(cuda)
        self._undo = undo
        self._listener = listener
        self._muted = False
        self._checking = False  # inside a call that reads values on the CPU alone, to check them
        self._asked: Place | None = None  # where the Python call that is running makes its tensors
        self._explicit = False  # whether it says so itself, by a device
        for number, tensor in enumerate(inputs):
            self.table.name(tensor, Origin("input", number))
            self._places.put(tensor, Place.DEVICE)
            self.derived.add(key_of(tensor))

    def run(self, fn: Callable[..., R]) -> R:
        """Call ``fn`` on the inputs, without gradients, and return what it returns."""
        with torch.no_grad(), _Operators(self), _Calls(self):
            result = fn(*self._inputs)
        returned = arguments_of(list(tensors_in(result)), self.table)
        line = self.entries[-1].line if self.entries else Line("<unknown>", 0)
        self.entries.append(Entry("the result", tuple(returned), line))
        return result

    def let_go(self) -> None:
        """Hold the inputs no more."""
        self._inputs = ()

    def operator(self, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Judge, note and run one operator call."""
        if self._muted:
            return func(*args, **kwargs)
        self._muted = True  # what the watch itself does with tensors is no call of the user's
        try:
            return self._operator(func, args, kwargs)
        finally:
            self._muted = False

    def _operator(self, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if func is _LIFT:  # values written in the code
            if self._asked is Place.DEVICE and args[0].ndim > 0:  # a list as index, say
                self._find(str(func), pageable(False))
            arguments: tuple[Ref | str, ...] = (repr(args[0].tolist()),)
            self.table.name(args[0], Origin("step", len(self.entries)))
        else:
            for hazard in hazards(func, args, kwargs, self._places):
                self._find(str(func), hazard, args, kwargs)
            arguments = tuple(arguments_of([list(args), kwargs], self.table))
        self.entries.append(Entry(str(func), arguments, user_line()))
        targets = written(func, args, kwargs)
        for target in targets:
            if self._undo is not None and self.table.origin(target).place == "outside":
                self._undo.keep(target)
        result = func(*args, **kwargs)
        self._settle(func, args, kwargs, list(tensors_in(result)), targets)
        if self._listener is not None:
            self._listener(func, args, kwargs, result)
        return result

    def call(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Judge and run one Python call on tensors, or of a function that makes them."""
        name = getattr(func, "__name__", "")
        if self._muted:
            return func(*args, **kwargs)
        if name == "__get__" or name == "get_device":
            return self._attribute(func, args, kwargs)
        if name in _READS and args and isinstance(args[0], Tensor):
            return self._read(func, args, kwargs)
        if name == "__deepcopy__":  # which would go through storages
            return args[0].clone()
        if name in ("pin_memory", "is_pinned"):
            return self._pin(name, args[0])
        if name in _MOVES:
            return self._move(func, args, kwargs)
        asked = self._places.meant(kwargs["device"]) if kwargs.get("device") is not None else None
        tensors = list(tensors_in((args, {k: v for k, v in kwargs.items() if k != "device"})))
        if name in _FROM_DATA:
            return self._from_data(func, args, kwargs, asked)
        if asked is None and tensors and self._places.joint(tensors) is Place.DEVICE:
            asked = Place.DEVICE
        pinned = bool(kwargs.get("pin_memory"))
        result = self._within(asked, func, args, {**kwargs, "pin_memory": False} if pinned else kwargs)
        if pinned:
            self._places.pin(result)
        return result

    def _find(self, operator: str, hazard: Hazard, *read: object) -> None:
        kind, detail = hazard
        if kind is Kind.HOST_READ and self._checking:
            return
        finding = Finding(kind, operator, str(user_line()), detail)
        if not any(same_spot(finding, other) for other in self.findings):
            self.findings.append(finding)
        if kind is Kind.HOST_READ and any(key_of(tensor) in self.derived for tensor in tensors_in(read)):
            self.first_hand.append(finding)

    def _settle(
        self,
        func: OpOverload,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        outputs: list[Tensor],
        targets: list[Tensor],
    ) -> None:
        """Note where the results of an operator call come from and lie."""
        inputs = list(tensors_in((args, kwargs)))
        draws = torch.Tag.nondeterministic_seeded in func.tags
        if func is _LIFT:
            place = self._asked or Place.HOST
        elif self._asked is not None and self._explicit and kwargs.get("device") is not None:
            place = self._asked  # a device that is named outweighs those of the arguments
        elif inputs:
            place = self._places.joint(inputs)
        elif draws:
            place = self._asked or Place.HOST  # in every pass, as the generator is the host's
        else:
            place = self._asked or (Place.HOST if self._places.named else Place.DEVICE)
        if draws and place is Place.HOST:
            self._find(str(func), (Kind.HOST_RANDOM, "it draws on the host"))
        derived = any(key_of(tensor) in self.derived for tensor in inputs)
        step = len(self.entries) - 1
        for tensor in outputs:
            fresh = not self.table.knows(tensor)
            self.table.name(tensor, Origin("step", step))
            if fresh or func is _LIFT:
                self._places.put(tensor, place)
        if derived:
            made = [t for t in (*outputs, *targets) if self.table.origin(t).place != "outside"]
            self.derived.update(map(key_of, made))

    def _within(
        self, asked: Place | None, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Run a call whose tensors are made in a place; the CPU stands for every device."""
        before = self._asked, self._explicit, self._checking
        self._asked, self._explicit = asked, kwargs.get("device") is not None
        self._checking = _checks_on_the_cpu(func, args, kwargs)
        try:
            if is_cuda(kwargs.get("device")):
                kwargs = {**kwargs, "device": "cpu"}
            return func(*args, **kwargs)
        finally:
            self._asked, self._explicit, self._checking = before

    def _attribute(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        name = getattr(getattr(func, "__self__", None), "__name__", getattr(func, "__name__", ""))
        if self._places.named and args and isinstance(args[0], Tensor):
            answers = {"device": CUDA, "is_cuda": True, "is_cpu": False, "get_device": 0}
            if name in answers and self._places.of(args[0]) is Place.DEVICE:
                return answers[name]
        return func(*args, **kwargs)

    def _read(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self._places.of(args[0]) is not Place.HOST:
            self._find(f"Tensor.{func.__name__}", (Kind.HOST_READ, "the host waits for the whole tensor"), args[0])
        self._muted = True
        try:
            return func(*args, **kwargs)
        finally:
            self._muted = False

    def _pin(self, name: str, tensor: Tensor) -> Any:
        if name == "is_pinned":
            return self._places.pinned(tensor)
        pinned = tensor.clone()
        self._places.pin(pinned)
        return pinned

    def _move(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A `to`, `cpu` or `cuda`: told by what it asks for, since on the CPU it does nothing."""
        source, rest = args[0], list(args[1:])
        here = self._places.of(source)
        there = self._destination(func.__name__, [*rest, kwargs.get("device"), kwargs.get("other")])
        if here is Place.UNKNOWN and there is Place.DEVICE:
            here = Place.HOST  # a tensor from outside that has to be moved lies on the host
            self._places.put(source, here)
        elif here is Place.UNKNOWN and there is not None:
            raise Unplaced
        flags = [value for value in rest if isinstance(value, bool)]
        waits = not kwargs.get("non_blocking", flags[0] if flags else False)
        if func.__name__ == "cuda":
            result = source
        else:
            clean = ["cpu" if is_cuda(value) else value for value in rest]
            result = self._within(None, func, [source, *clean], kwargs)
        if there is None or there is here:
            return result
        pinned = self._places.pinned(source)
        operator = f"Tensor.{func.__name__}"
        if there is Place.DEVICE and (waits or not pinned):
            self._find(operator, pageable(pinned), source)
        elif there is not Place.DEVICE and here is Place.DEVICE:
            self._find(operator, TO_HOST, source)
        moved: Tensor = result.clone() if key_of(result) == key_of(source) else result
        self._places.put(moved, there)
        return moved

    def _destination(self, name: str, values: Sequence[object]) -> Place | None:
        if name != "to":
            return Place.HOST if name == "cpu" else Place.DEVICE
        for value in values:
            if isinstance(value, str | torch.device | Tensor) or (isinstance(value, int) and is_cuda(value)):
                return self._places.meant(value)
        return None

    def _from_data(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], asked: Place | None
    ) -> Any:
        """A `torch.tensor` and its like: values of Python, which lie on the host and are copied from there."""
        method = func.__name__ == "new_tensor"
        data = args[1 if method else 0] if len(args) > method else kwargs.get("data", kwargs.get("obj"))
        positional = [value for value in args[1:] if isinstance(value, str | torch.device)]
        if asked is None and positional:
            asked = self._places.meant(positional[0])
        if asked is None and method:
            asked = self._places.of(args[0])
        if isinstance(data, Tensor):
            source = self._places.of(data)
            if asked is Place.DEVICE and source is Place.HOST:
                self._find(f"torch.{func.__name__}", pageable(self._places.pinned(data)))
            asked = asked or source
        else:
            if any(self._places.of(tensor) is not Place.HOST for tensor in tensors_in(data)):
                self._find(f"torch.{func.__name__}", (Kind.HOST_READ, "the host waits for each number"), data)
            if asked is Place.DEVICE:
                self._find(f"torch.{func.__name__}", pageable(False))
        clean = ["cpu" if isinstance(value, str | torch.device) and is_cuda(value) else value for value in args]
        result: Tensor = self._within(Place.HOST, func, clean, kwargs)
        self._places.put(result, asked or Place.HOST)
        return result


def _checks_on_the_cpu(func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a call reads values on the CPU that it does not read on a device: `one_hot` with a known width."""
    width = [*args[1:], *kwargs.values()]
    return getattr(func, "__name__", "") == "one_hot" and bool(width) and width[0] != -1


class _Operators(TorchDispatchMode):
    """Hands every operator call to the watch, composite ones in their parts."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Not to be guarded from the compiler, whose import alone takes longer than a recording."""
        return False

    def __init__(self, watch: Watch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._can_decompose():  # reaches a mode whole in inference mode only
            with self:
                result = func.decompose(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        return self._watch.operator(func, args, kwargs or {})


class _Calls(TorchFunctionMode):
    """Hands every Python call on tensors to the watch."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._watch.call(func, args, kwargs or {})
