"""A loaded MOSS-TTS Local model: embedding, backbone and frame decoder over one checkpoint."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import Tensor

from voxradix.errors import VoxradixError
from voxradix.models.moss_local.attention import KVStore, Placement
from voxradix.models.moss_local.backbone import Backbone
from voxradix.models.moss_local.config import MossLocalConfig, read_config
from voxradix.models.moss_local.embedding import RowEmbedding
from voxradix.models.moss_local.local import FrameDecoder
from voxradix.models.moss_local.weights import Source, Weights
from voxradix.rows import RowLayout


class MossLocal:
    """A MOSS-TTS Local model.

    Weights, keys and values are held in its dtype, and products with weights computed in it; all else is float32.

    Attributes:
        config: Its configuration.
        layout: What its rows look like.
        embed: Rows int64 [R, C] to embeddings float32 [R, hidden].
        frames: Hidden states float32 [R, hidden] to the frame that follows each.
        device: Where it computes.
        dtype: What its weights, keys and values are held in.
        parameters: Elements of all its tensors.
        digest: SHA-256 of its configuration and weights: what tells two models apart.
    """

    def __init__(self, config: MossLocalConfig, weights: Source) -> None:
        """Build the model from a source of weights, on its device and in its dtype."""
        self.config = config
        self.layout: RowLayout = config.layout
        self.device = weights.device
        self.dtype = weights.dtype
        self.embed = RowEmbedding(config, weights)
        self._backbone = Backbone(config.backbone, weights)
        self.frames = FrameDecoder(config, weights, self.embed)
        self.parameters = weights.elements
        self.digest = hashlib.sha256(repr(config).encode() + weights.digest()).digest()

    def kv_store(self, slots: int) -> KVStore:
        """A KV store for ``slots`` rows."""
        return KVStore(self.config.backbone, slots, self.device, self.dtype)

    def hidden(self, rows: Tensor, place: Placement, kv: KVStore) -> Tensor:
        """Run new rows (int64 [R, C]) through the backbone: float32 [R, hidden] after the final norm."""
        return self._backbone(self.embed(rows), place, kv)


def load(directory: str | Path, *, device: torch.device | None = None, dtype: torch.dtype = torch.float32) -> MossLocal:
    """Load a checkpoint directory in the released format, whatever of float32, bfloat16 and float16 it holds.

    Raises `VoxradixError` naming the file, field or tensor that is missing or wrong. A tensor that no part of the model
    takes is named in a warning.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise VoxradixError(f"{directory} is not a directory; a model is a directory with config.json and weights")
    config = read_config(directory)
    weights = Weights(directory, device=device, dtype=dtype)
    model = MossLocal(config, weights)
    weights.leave("text_lm_head.", "audio_lm_heads.", "local_text_lm_head.")
    weights.warn_untaken()
    return model
