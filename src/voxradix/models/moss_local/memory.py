"""What a model takes in memory: its weights, and the keys and values of every row."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from voxradix.errors import VoxradixError
from voxradix.models.moss_local.attention import KVStore
from voxradix.models.moss_local.config import MossLocalConfig
from voxradix.models.moss_local.model import MossLocal
from voxradix.models.moss_local.weights import Outline


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Weights and a pool of rows. A step works with some hundred MB beside them.

    Attributes:
        parameters: Elements of all tensors.
        weight_bytes: What they take.
        row_bytes: What one row's keys and values take.
        rows: Rows in the pool.
        dtype: What weights, keys and values are held in.
    """

    parameters: int
    weight_bytes: int
    row_bytes: int
    rows: int
    dtype: torch.dtype

    @classmethod
    def of(cls, config: MossLocalConfig, dtype: torch.dtype, rows: int) -> MemoryPlan:
        """The plan of a model with a pool of ``rows``."""
        outline = Outline(dtype)
        model = MossLocal(config, outline)
        none, one = model.kv_store(0), model.kv_store(1)
        weight_bytes = outline.elements * dtype.itemsize
        return cls(outline.elements, weight_bytes, _bytes(one) - _bytes(none), rows, dtype)

    @classmethod
    def within(cls, config: MossLocalConfig, dtype: torch.dtype, memory: int) -> MemoryPlan:
        """The plan with as many rows as ``memory`` bytes hold beside the weights; `VoxradixError` if they hold none."""
        plan = cls.of(config, dtype, 0)
        rows = (memory - plan.weight_bytes) // plan.row_bytes
        if rows < 1:
            raise VoxradixError(
                f"{_size(memory)} do not hold the model: its weights take {_size(plan.weight_bytes)} in "
                f"{_name(dtype)}, and each row of the pool {plan.row_bytes:,} bytes"
            )
        return cls(plan.parameters, plan.weight_bytes, plan.row_bytes, rows, dtype)

    @property
    def pool_bytes(self) -> int:
        """What the pool takes."""
        return self.rows * self.row_bytes

    def require_room(self, device: torch.device) -> None:
        """Raise `VoxradixError` when the device has no such memory at all, whatever else it holds."""
        if device.type == "cuda":
            there = torch.cuda.get_device_properties(device).total_memory
        else:
            there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        needed = self.weight_bytes + self.pool_bytes
        if needed > there:
            raise VoxradixError(
                f"weights and pool take {_size(self.weight_bytes)} and {_size(self.pool_bytes)}, and {device} has "
                f"{_size(there)}; a smaller pool (--max-rows, --memory) or a smaller type (--dtype) takes less"
            )

    def told(self, frame_rate: float) -> str:
        """The plan in a line, and what an hour of audio takes at ``frame_rate`` frames a second."""
        hour = round(3600 * frame_rate)
        return (
            f"{_size(self.weight_bytes)} of weights ({self.parameters:,} parameters in {_name(self.dtype)}), "
            f"{_size(self.pool_bytes)} for a pool of {self.rows:,} rows ({self.row_bytes:,} bytes each); "
            f"an hour of audio is {hour:,} rows, {_size(hour * self.row_bytes)}"
        )


def _bytes(store: KVStore) -> int:
    return store.keys.nbytes + store.values.nbytes


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
