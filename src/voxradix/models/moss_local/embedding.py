"""Row embeddings: one vector for a row of a text id and codes."""

from __future__ import annotations

import torch
from torch import Tensor

from voxradix.models.moss_local.config import MossLocalConfig
from voxradix.models.moss_local.weights import Source


class RowEmbedding:
    """The text table and one table a codebook, whose vectors are summed in column order.

    A code table is followed by rows of zeros up to the pad code, so that a pad adds exactly nothing.
    """

    def __init__(self, config: MossLocalConfig, weights: Source) -> None:
        """Take the embedding tables."""
        hidden, size = config.backbone.hidden, config.codebook_size
        self._text = weights.take("transformer.embed_tokens.weight", config.backbone.vocab, hidden)
        self._size = size
        zeros = torch.zeros(config.layout.bounds[1] - size, hidden, dtype=weights.dtype, device=weights.device)
        self._codes = [
            torch.cat((weights.take(f"audio_embeddings.{k}.weight", size, hidden), zeros))
            for k in range(config.codebooks)
        ]

    def __call__(self, rows: Tensor) -> Tensor:
        """Embed rows int64 [R, C] to float32 [R, hidden]."""
        total = self._text.index_select(0, rows[:, 0]).to(torch.float32)
        for channel in range(len(self._codes)):
            total = total + self.code(channel, rows[:, channel + 1])
        return total

    def code(self, channel: int, codes: Tensor) -> Tensor:
        """The vectors of one codebook's codes: int64 [R] to float32 [R, hidden]."""
        return self._codes[channel].index_select(0, codes).to(torch.float32)

    def code_table(self, channel: int) -> Tensor:
        """One codebook's table without the pad, [V, hidden]: the tied head."""
        return self._codes[channel][: self._size]

    def text_rows(self, ids: tuple[int, ...]) -> Tensor:
        """The vectors of some text ids, [len(ids), hidden]: the tied stop head."""
        return self._text[list(ids)]
