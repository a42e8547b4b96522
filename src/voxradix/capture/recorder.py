"""The recorder: one call's operators as a list that replays on static buffers, as a graph does, on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

from voxradix.capture.tape import Tape
from voxradix.capture.watch import Watch
from voxradix.errors import VoxradixError

R = TypeVar("R")


class Recording(Generic[R]):
    """A call's operators, replayed in their order over the tensors of the call that was recorded.

    As with a CUDA graph, every replay reads the same input buffers and overwrites the same outputs; a result to
    keep must be copied. Replays are bit-identical to calling the function. Intermediate tensors stay allocated,
    and share memory where one is dead before the next is made.

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
            if not isinstance(value, Tensor) or value.layout is not torch.strided:
                kind = value.layout if isinstance(value, Tensor) else type(value).__name__
                raise VoxradixError(f"input {number} is a {kind}; the recording takes a dense tensor")
            if buffer.shape != value.shape or buffer.dtype != value.dtype:
                given = f"{value.dtype} {tuple(value.shape)}"
                raise VoxradixError(
                    f"input {number} is {given}; the recording takes {buffer.dtype} {tuple(buffer.shape)}"
                )


def require(inputs: Sequence[object], name: str = "input") -> None:
    """Raise `VoxradixError` unless all inputs are dense tensors on the CPU."""
    for number, value in enumerate(inputs):
        if not isinstance(value, Tensor):
            raise VoxradixError(f"{name} {number} is a {type(value).__name__}; only tensors can be rewritten")
        if value.device.type != "cpu":
            raise VoxradixError(f"{name} {number} lies on {value.device}; capture takes CPU tensors")
        if value.layout is not torch.strided or value.is_nested or value.is_quantized:
            raise VoxradixError(f"{name} {number} is no dense tensor")


def record(fn: Callable[..., R], *inputs: Tensor) -> Recording[R]:
    """Call ``fn`` once on copies of ``inputs`` (CPU tensors) and record what it does.

    What it writes into tensors from outside, it writes: here once, and in every replay again. New tensors that it
    leaves elsewhere than in its result may not be replayed. What it builds lazily on its first call would be
    built by every replay, so call it once before. Raises `VoxradixError`, naming the operators and lines, if the
    call does what no graph can hold; that what is baked in stays true is for `checker.check` to say, which calls
    more than once.
    """
    require(inputs)
    buffers = tuple(tensor.detach().clone(memory_format=torch.contiguous_format) for tensor in inputs)
    tape = Tape()
    watch = Watch(buffers, listener=tape)
    outputs = watch.run(fn)
    if watch.findings:
        raise VoxradixError("cannot be recorded: " + "; ".join(str(f).replace("\n   ", "") for f in watch.findings))
    return Recording(buffers, outputs, tape.steps(outputs))
