"""The chooser: the stop decisions and codes of one batch, drawn by each request's own seed and settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from voxradix.engine.request import Request
from voxradix.models.moss_local import MossLocal, padded
from voxradix.sampling import DrawTable, penalise, uniforms


@dataclass(frozen=True, slots=True)
class Penalties:
    """The repetition penalties of a batch of R rows.

    Attributes:
        seen: bool [R, codebooks, V], the codes each row's request has had in each codebook.
        strength: float32 [R, 1]; 1 changes nothing.
    """

    seen: Tensor
    strength: Tensor


@dataclass(frozen=True, slots=True)
class BatchChooser:
    """Draws for a padded batch of R rows.

    Attributes:
        stops: How stop decisions are drawn.
        codes: How codes are drawn.
        uniforms: float32 [R, 1 + codebooks], the frame's uniform draws.
        penalties: None where no row has one.
    """

    stops: DrawTable
    codes: DrawTable
    uniforms: Tensor
    penalties: Penalties | None

    @classmethod
    def of(cls, requests: Sequence[Request], model: MossLocal) -> BatchChooser:
        """The chooser of some requests' next frames, laid out by the host; padding rows repeat the last request."""
        device, layout, size = model.device, model.layout, model.config.codebook_size
        batch = [requests[min(i, len(requests) - 1)] for i in range(padded(len(requests)))]
        seeds = torch.tensor([r.seed for r in batch], device=device)
        draws = torch.tensor([r.next_draw for r in batch], device=device)
        penalties = None
        if any(r.seen is not None for r in batch):
            blank = torch.zeros(layout.codebooks, size, dtype=torch.bool)
            seen = torch.stack([blank if r.seen is None else r.seen for r in batch]).to(device)
            strengths = [[r.sampling.repetition_penalty] for r in batch]
            penalties = Penalties(seen, torch.tensor(strengths, dtype=torch.float32, device=device))
        return cls(
            stops=DrawTable.of([r.sampling.stop for r in batch], 2, device),
            codes=DrawTable.of([r.sampling.codes for r in batch], size, device),
            uniforms=uniforms(seeds, draws, layout.columns),
            penalties=penalties,
        )

    def stop(self, logits: Tensor) -> Tensor:
        """Stop decisions from float32 [R, 2]: draw 0 of the frame."""
        return self.stops.draw(logits, self.uniforms[:, 0])

    def code(self, channel: int, logits: Tensor) -> Tensor:
        """Codes of one codebook from float32 [R, V]: draw ``channel + 1`` of the frame."""
        if self.penalties is not None:
            logits = penalise(logits, self.penalties.seen[:, channel], self.penalties.strength)
        return self.codes.draw(logits, self.uniforms[:, channel + 1])
