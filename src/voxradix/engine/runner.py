"""The step runner: a plan in, the batch's next rows and ids out."""

from __future__ import annotations

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


class StepRunner:
    """Runs plans on one model over one KV store."""

    def __init__(self, model: MossLocal, slots: int, seats: int, publish: RowPublisher, *, graphs: bool) -> None:
        """A runner with a KV store of ``slots`` rows, for plans of up to ``seats`` requests that decode.

        ``publish`` writes and keys the generated rows. With ``graphs``, common decode steps are captured.
        """
        self._model = model
        self._kv = model.kv_store(slots)
        self._publish = publish
        self._state = StatePool(model, seats, min(slots, model.config.backbone.positions), self._kv.null)
        rows = torch.empty(0, model.layout.columns, dtype=torch.int64)
        self._nothing = Made(rows, pack_rows_unchecked(rows, model.layout), rows[:, 0])
        step = DecodeStep(model, self._kv, self._state, publish)
        self._graphs = StepGraphs(step, model.device, (self._state.padding, self._kv.waste), enabled=graphs)

    def run(self, plan: Plan) -> StepOutput:
        """Run one step. A computation that fails is reported for the requests it served, and for no other."""
        with torch.inference_mode(), torch.autocast(self._model.device.type, enabled=False):
            return self._run(plan)

    def _run(self, plan: Plan) -> StepOutput:
        failures: dict[Request, str] = {}
        written: dict[Request, int] = {}
        ready: list[tuple[Request, Tensor]] = []
        finite: list[tuple[Request, Tensor]] = []
        for chunk in plan.prefill:
            try:
                hidden = self._prefill(chunk)
            except Exception as error:
                failures[chunk.request] = _reason(error)
                continue
            written[chunk.request] = chunk.end
            finite.append((chunk.request, hidden.isfinite().all()))
            if chunk.final:
                ready.append((chunk.request, hidden[-1:]))
        requests: list[Request] = []
        batches = [self._nothing]
        try:
            batches.append(self._first_frames(ready))
            requests += [request for request, _ in ready]
        except Exception as error:
            failures.update((request, _reason(error)) for request, _ in ready)
        try:
            batches.append(self._decode(plan.decode))
            requests += plan.decode
            written.update((request, request.rows) for request in plan.decode)
        except Exception as error:
            failures.update((request, _reason(error)) for request in plan.decode)
        made = Made.joined(batches)
        failures.update((request, NOT_FINITE_REASON) for request, whole in finite if not whole)
        served = {request: count for request, count in written.items() if request not in failures}
        return StepOutput(requests, made.rows, made.packed, made.ids, served, failures)

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

    def _decode(self, requests: list[Request]) -> Made:
        """Write the newest row of each request and decode the frame after it."""
        seats = self._state.seat(requests)
        if not requests:
            return self._nothing
        shape = StepShape.of(requests, self._model.config.codebook_size, self._state.longest)
        made = self._graphs.run(shape, seats, [request.slots[-1] for request in requests])
        return made.first(len(requests))

    def check(self) -> None:
        """Raise `AssertionError` where a seat is lost or has lost step with its request. For tests."""
        self._state.check()


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
