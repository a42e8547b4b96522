"""Step graphs: decode steps captured once for each shape and replayed."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from voxradix.capture import record
from voxradix.engine.decode import DecodeStep, Made
from voxradix.engine.shape import StepShape

_LOG = logging.getLogger("voxradix.engine")

PATIENCE = {"cpu": 64, "cuda": 3}
"""Eager steps of a shape before it is captured. On the CPU a capture takes as long as it saves in about that many
steps; on CUDA they warm the kernels up."""


MOST_GRAPHS = 32
"""Captured shapes kept at a time: each keeps the tensors of its step."""


class Graph(Protocol):
    """A captured step."""

    def replay(self, *inputs: Tensor) -> Made:
        """Run the step on new inputs; the result is overwritten by the next replay."""


class CudaGraph:
    """A step captured in a CUDA graph. It has not been run yet."""

    pool: ClassVar[Any] = None
    """The memory all graphs share: none outlives its replay, as results are copied before the next."""

    def __init__(self, step: Callable[..., Made], *inputs: Tensor) -> None:
        """Capture ``step`` on copies of ``inputs``, without running it."""
        CudaGraph.pool = CudaGraph.pool or torch.cuda.graph_pool_handle()
        self._inputs = tuple(tensor.clone() for tensor in inputs)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=CudaGraph.pool):
            self._outputs = step(*self._inputs)

    def replay(self, *inputs: Tensor) -> Made:
        """Copy new inputs in and launch the graph; the result is overwritten by the next replay."""
        for buffer, value in zip(self._inputs, inputs, strict=True):
            buffer.copy_(value)
        self._graph.replay()
        return self._outputs


class StepGraphs:
    """Runs decode steps: each shape eagerly until it has proved common, from then on by replaying its graph.

    Should a capture fail, the reason is logged and all later steps run eagerly; the results are the same.
    """

    def __init__(self, step: DecodeStep, device: torch.device, padding: tuple[int, int], *, enabled: bool) -> None:
        """No graphs yet, and none ever unless ``enabled``; ``padding`` is the seat and the slot that are nobody's."""
        self.enabled = enabled
        self._step = step
        self._device = device
        self._padding = padding
        self._graphs: dict[StepShape, Graph] = {}
        self._runs: Counter[StepShape] = Counter()

    def __len__(self) -> int:
        """The number of captured shapes."""
        return len(self._graphs)

    def run(self, shape: StepShape, seats: list[int], slots: list[int]) -> Made:
        """Run one step; rows beyond the given seats are padding. The result is good until the next step."""
        seat, slot = self._padding
        missing = shape.batch - len(seats)
        inputs = self._tensors(seats + [seat] * missing, slots + [slot] * missing)
        graph = self._graph(shape)
        return self._step(shape, *inputs) if graph is None else graph.replay(*inputs)

    def _tensors(self, seats: list[int], slots: list[int]) -> tuple[Tensor, Tensor]:
        return torch.tensor(seats, device=self._device), torch.tensor(slots, device=self._device)

    def _graph(self, shape: StepShape) -> Graph | None:
        """The graph of a shape, captured now if its time has come; None where the step is to run eagerly."""
        if not self.enabled or not shape.captured:
            return None
        if shape not in self._graphs:
            self._runs[shape] += 1
            if self._runs[shape] <= PATIENCE[self._device.type]:
                return None
            if len(self._graphs) == MOST_GRAPHS:
                oldest = next(iter(self._graphs))
                del self._graphs[oldest], self._runs[oldest]
            try:
                self._graphs[shape] = self._capture(shape)
            except Exception as error:
                self.enabled = False
                _LOG.warning("decode steps run eagerly from now on, as one could not be captured: %s", error)
        return self._graphs.get(shape)

    def _capture(self, shape: StepShape) -> Graph:
        """Capture a step of padding rows alone: should it fail half-way, nobody's state has been touched."""
        seat, slot = self._padding
        inputs = self._tensors([seat] * shape.batch, [slot] * shape.batch)
        step = partial(self._step, shape)
        return CudaGraph(step, *inputs) if self._device.type == "cuda" else record(step, *inputs)
