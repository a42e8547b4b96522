"""The step runner: a plan in, the batch's next rows and ids out."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, wait
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from voxradix.engine.chooser import BatchChooser
from voxradix.engine.decode import DecodeStep, Made
from voxradix.engine.graph import StepGraphs
from voxradix.engine.request import Request
from voxradix.engine.scheduler import Chunk, Plan
from voxradix.engine.shape import StepShape
from voxradix.engine.state import StatePool
from voxradix.keys import RowPublisher, pack_rows_unchecked
from voxradix.models.moss_local import BLOCK, MossLocal, Placement, padded

NOT_FINITE_REASON = "the model's output was not finite"


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What a step gave.

    Attributes:
        requests: The requests that decoded a frame, one a batch row.
        rows: int64 [B, C], each request's next row; one that stopped has the end id and pads.
        packed: int64 [B, words], the packed rows.
        next_ids: int64 [B], the row keys: below the special ids, or the end id, or `NOT_FINITE`.
        written: For each request served without failure, how many of its rows are written now.
        failures: For each request whose computation failed, what went wrong.
    """

    requests: list[Request]
    rows: Tensor
    packed: Tensor
    next_ids: Tensor
    written: dict[Request, int]
    failures: dict[Request, str]


@dataclass(frozen=True, slots=True)
class Flight:
    """A step that has been launched: its plan, and ``land``, which waits for what it gave."""

    plan: Plan
    land: Callable[[], StepOutput]


@dataclass(frozen=True, slots=True)
class _Decode:
    """What the host decides about a decode step before it is launched."""

    shape: StepShape
    seats: list[int]
    slots: list[int]
    written: list[int]


@dataclass(frozen=True, slots=True)
class _Computed:
    """What a step gave, on its way to the host until ``ready``."""

    requests: list[Request]
    batches: list[Made]
    written: dict[Request, int]
    finite: dict[Request, Tensor]
    failures: dict[Request, str]
    ready: Callable[[], None]

    def output(self) -> StepOutput:
        """Wait, and put it together."""
        self.ready()
        made = Made.joined(self.batches)
        failures = self.failures | {request: NOT_FINITE_REASON for request, whole in self.finite.items() if not whole}
        served = {request: count for request, count in self.written.items() if request not in failures}
        return StepOutput(self.requests, made.rows, made.packed, made.ids, served, failures)


class StepRunner:
    """Runs plans on one model over one KV store."""

    def __init__(
        self, model: MossLocal, slots: int, seats: int, publish: RowPublisher, *, graphs: bool, worker: Executor | None
    ) -> None:
        """A runner with a KV store of ``slots`` rows, for plans of up to ``seats`` requests that decode.

        ``publish`` writes and keys the generated rows. With ``graphs``, common decode steps are captured. With a
        ``worker`` of one thread, steps run there, one after the other.
        """
        self._model = model
        self._kv = model.kv_store(slots)
        self._publish = publish
        self._worker = worker
        self.settle()  # the worker's one thread is up before anything can break off its start
        self._state = StatePool(model, seats, min(slots, model.config.backbone.positions), self._kv.null)
        rows = torch.empty(0, model.layout.columns, dtype=torch.int64)
        self._nothing = Made(rows, pack_rows_unchecked(rows, model.layout), rows[:, 0])
        step = DecodeStep(model, self._kv, self._state, publish)
        self._graphs = StepGraphs(step, model.device, (self._state.padding, self._kv.waste), enabled=graphs)

    @torch.inference_mode()
    def launch(self, plan: Plan) -> Flight:
        """Begin a step. A computation that fails is reported for the requests it served, and for no other.

        Another may be launched before this one lands, if all of its requests decode in this one.
        """
        decode = self._decided(plan.decode)
        if self._worker is not None:
            return Flight(plan, self._worker.submit(lambda: self._run(plan, decode).output()).result)
        computed = self._run(plan, decode)
        if self._model.device.type == "cuda":
            return Flight(plan, computed.output)
        output = computed.output()
        return Flight(plan, lambda: output)

    def settle(self) -> None:
        """Wait until nothing that was launched is running any more."""
        if self._worker is not None:
            wait([self._worker.submit(lambda: None)])

    def _decided(self, requests: list[Request]) -> _Decode | None:
        seats = self._state.seat(requests)
        if not requests:
            return None
        shape = StepShape.of(requests, self._model.config.codebook_size, self._state.longest)
        slots = [request.slots for request in requests]
        return _Decode(shape, seats, [held[-1] for held in slots], [len(held) for held in slots])

    @torch.inference_mode()
    def _run(self, plan: Plan, decode: _Decode | None) -> _Computed:
        with torch.autocast(self._model.device.type, enabled=False):
            failures: dict[Request, str] = {}
            written: dict[Request, int] = {}
            ready: list[tuple[Request, Tensor]] = []
            finite: dict[Request, Tensor] = {}
            for chunk in plan.prefill:
                try:
                    hidden = self._prefill(chunk)
                except Exception as error:
                    failures[chunk.request] = _reason(error)
                    continue
                written[chunk.request] = chunk.end
                finite[chunk.request] = hidden.isfinite().all().to("cpu", non_blocking=True)
                if chunk.final:
                    ready.append((chunk.request, hidden[-1:]))
            requests: list[Request] = []
            batches = [self._nothing]
            try:
                batches.append(self._first_frames(ready))
                requests += [request for request, _ in ready]
            except Exception as error:
                failures.update((request, _reason(error)) for request, _ in ready)
            if decode is not None:
                try:
                    made = self._graphs.run(decode.shape, decode.seats, decode.slots)
                    batches.append(made.first(len(plan.decode)))
                    requests += plan.decode
                    written.update(zip(plan.decode, decode.written, strict=True))
                except Exception as error:
                    failures.update((request, _reason(error)) for request in plan.decode)
            return _Computed(requests, batches, written, finite, failures, _landing(self._model.device))

    def _prefill(self, chunk: Chunk) -> Tensor:
        """Write a chunk's rows; their hidden states, float32 [T, hidden]."""
        slots, count = chunk.request.slots, chunk.end - chunk.start
        missing, device = padded(count) - count, self._model.device
        context = slots[: chunk.end] + [self._kv.null] * (-chunk.end % BLOCK)
        place = Placement(
            positions=F.pad(torch.arange(chunk.start, chunk.end), (0, missing))[None].to(device),
            slots=torch.tensor(slots[chunk.start : chunk.end] + [self._kv.waste] * missing, device=device),
            context=torch.tensor([context], device=device),
        )
        rows = F.pad(chunk.request.rows_between(chunk.start, chunk.end), (0, 0, 0, missing)).to(device)
        return self._model.hidden(rows, place, self._kv)[:count]

    def _first_frames(self, ready: list[tuple[Request, Tensor]]) -> Made:
        """Decode a frame for each request whose last chunk gave the hidden state [1, hidden]."""
        if not ready:
            return self._nothing
        requests, hidden = zip(*ready, strict=True)
        count = len(requests)
        batch = F.pad(torch.cat(hidden), (0, 0, 0, padded(count) - count))
        frames = self._model.frames(batch, BatchChooser.of(requests, self._model))
        return Made.of(frames, self._publish).first(count)

    def check(self) -> None:
        """Raise `AssertionError` where a seat is lost or has lost step with its request. For tests."""
        self._state.check()


def _landing(device: torch.device) -> Callable[[], None]:
    """What waits until all that was launched on a device so far has reached the host."""
    if device.type != "cuda":
        return lambda: None
    event = torch.cuda.Event()
    event.record()
    return event.synchronize


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
