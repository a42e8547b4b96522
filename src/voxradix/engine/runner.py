"""The step runner: a plan in, the batch's next rows and ids out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from voxradix.engine.request import Request
from voxradix.engine.scheduler import Chunk, Plan
from voxradix.keys import RowPublisher, pack_rows_unchecked
from voxradix.models.moss_local import BLOCK, MossLocal, Placement, padded
from voxradix.sampling import DrawTable, penalise, uniforms

NOT_FINITE = -1
"""The id published for a row whose hidden state or logits were not finite: outside every vocabulary."""

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


class BatchChooser:
    """Draws the stop decisions and codes of one batch of requests; padding rows are drawn for nobody."""

    def __init__(self, requests: list[Request], model: MossLocal) -> None:
        """Lay the requests' seeds, steps and settings out as tensors of a padded batch."""
        device, layout = model.device, model.layout
        batch = [requests[min(i, len(requests) - 1)] for i in range(padded(len(requests)))]
        self._stop = DrawTable.of([r.sampling.stop for r in batch], 2, device)
        self._codes = DrawTable.of([r.sampling.codes for r in batch], model.config.codebook_size, device)
        seeds = torch.tensor([r.seed for r in batch], device=device)
        steps = torch.tensor([r.first_draw + len(r.frames) for r in batch], device=device)
        self._uniforms = uniforms(seeds, steps, layout.columns)
        self._seen: Tensor | None = None
        if any(r.seen is not None for r in batch):
            blank = torch.zeros(layout.codebooks, model.config.codebook_size, dtype=torch.bool)
            self._seen = torch.stack([blank if r.seen is None else r.seen for r in batch]).to(device)
            penalties = [[r.sampling.repetition_penalty] for r in batch]
            self._penalty = torch.tensor(penalties, dtype=torch.float32, device=device)

    def stop(self, logits: Tensor) -> Tensor:
        """Stop decisions from float32 [R, 2]: draw 0 of the frame."""
        return self._stop.draw(logits, self._uniforms[:, 0])

    def code(self, channel: int, logits: Tensor) -> Tensor:
        """Codes of one codebook from float32 [R, V]: draw ``channel + 1`` of the frame."""
        if self._seen is not None:
            logits = penalise(logits, self._seen[:, channel], self._penalty)
        return self._codes.draw(logits, self._uniforms[:, channel + 1])


class StepRunner:
    """Runs plans on one model over one KV store."""

    def __init__(self, model: MossLocal, slots: int, publish: RowPublisher) -> None:
        """A runner with a KV store of ``slots`` rows; ``publish`` writes and keys the generated rows."""
        self._model = model
        self._kv = model.kv_store(slots)
        self._publish = publish

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
        if plan.decode:
            try:
                hidden = self._advance(plan.decode)
            except Exception as error:
                failures.update((request, _reason(error)) for request in plan.decode)
            else:
                written.update((request, request.rows) for request in plan.decode)
                ready += zip(plan.decode, hidden.split(1), strict=True)
        requests = [request for request, _ in ready]
        try:
            rows, packed, next_ids = self._frames(requests, [hidden for _, hidden in ready])
        except Exception as error:
            failures.update((request, _reason(error)) for request in requests)
            requests = []
            rows, packed, next_ids = self._frames([], [])
        failures.update((request, NOT_FINITE_REASON) for request, whole in finite if not whole)
        served = {request: count for request, count in written.items() if request not in failures}
        return StepOutput(requests, rows, packed, next_ids, served, failures)

    def _prefill(self, chunk: Chunk) -> Tensor:
        """Write a chunk's rows; their hidden states, float32 [T, hidden]."""
        rows = chunk.request.rows_between(chunk.start, chunk.end)
        positions = torch.arange(chunk.start, chunk.end)[None]
        return self._forward(rows, positions, [chunk.request.slots[: chunk.end]])

    def _advance(self, requests: list[Request]) -> Tensor:
        """Write the newest row of each request; its hidden state, float32 [B, hidden]."""
        rows = torch.cat([request.rows_between(request.rows - 1, request.rows) for request in requests])
        positions = torch.tensor([[request.rows - 1] for request in requests])
        return self._forward(rows, positions, [request.slots for request in requests])

    def _forward(self, rows: Tensor, positions: Tensor, contexts: list[list[int]]) -> Tensor:
        """Run S sequences of T new rows each (positions [S, T]) over their contexts, padded as the model asks."""
        count, (sequences, length) = rows.shape[0], positions.shape
        missing = padded(count) - count
        longest = -(-max(map(len, contexts)) // BLOCK) * BLOCK
        null, waste = self._kv.null, self._kv.waste
        new = [slot for context in contexts for slot in context[len(context) - length :]]
        table = [context + [null] * (longest - len(context)) for context in contexts]
        if sequences == 1:  # a chunk: pad its rows; a batch of single rows: pad the batch
            positions = F.pad(positions, (0, missing))
        else:
            positions = F.pad(positions, (0, 0, 0, missing))
            table += [[null] * longest] * missing
        device = self._model.device
        place = Placement(
            positions=positions.to(device),
            slots=torch.tensor(new + [waste] * missing, device=device),
            context=torch.tensor(table, device=device),
        )
        rows = F.pad(rows, (0, 0, 0, missing)).to(device)
        return self._model.hidden(rows, place, self._kv)[:count]

    def _frames(self, requests: list[Request], hidden: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Decode a frame for each hidden state [1, hidden]: rows, packed rows and next ids, on the host."""
        model, count = self._model, len(requests)
        if not requests:
            rows = torch.empty(0, model.layout.columns, dtype=torch.int64)
            return rows, pack_rows_unchecked(rows, model.layout), rows[:, 0]
        batch = F.pad(torch.cat(hidden), (0, 0, 0, padded(count) - count))
        frames = model.frames(batch, BatchChooser(requests, model))
        made = self._publish(frames.stop, frames.codes)
        ids = torch.where(frames.finite, made.keys, NOT_FINITE)
        return made.rows[:count].cpu(), made.packed[:count].cpu(), ids[:count].cpu()


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
