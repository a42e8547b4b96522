"""Seeded, counter-based, batch-independent draws.

A draw depends on the request's seed and its place (step * columns + channel) alone, and every operation
treats a row by itself: who else is in the batch, or what the cache did, cannot reach it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from voxradix.errors import VoxradixError

_GOLDEN = -0x61C8864680B583EB  # 0x9E3779B97F4A7C15 as int64
_MIX_1 = -0x40A7B892E31B1A47  # 0xBF58476D1CE4E5B9
_MIX_2 = -0x6B2FB644ECCEEE15  # 0x94D049BB133111EB


_LEAST = 1e-6
"""The smallest temperature above 0, top-p and penalty: what float32 arithmetic on logits can still carry."""


def _number(value: object, name: str, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise VoxradixError(f"{name} is {value!r}; it must be a number from {low} to {high}")


@dataclass(frozen=True, slots=True)
class Draw:
    """How one kind of value is drawn.

    Attributes:
        temperature: Divides the logits; 0 takes the most likely value.
        top_p: Keep the most likely values up to this probability; the one that crosses it stays. 1 keeps all.
        top_k: Keep this many most likely values, ties with the last included. 0 keeps all.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        if self.temperature != 0:
            _number(self.temperature, "temperature, unless 0,", _LEAST, 1e6)
        _number(self.top_p, "top_p", _LEAST, 1.0)
        _number(self.top_k, "top_k", 0, 2**31 - 1)
        if not isinstance(self.top_k, int):
            raise VoxradixError(f"top_k is {self.top_k}; it must be a whole number")

    @property
    def greedy(self) -> bool:
        """Whether the most likely value is taken and nothing is drawn."""
        return self.temperature == 0.0

    def width(self, size: int) -> int:
        """How many of ``size`` values top-k keeps, ties aside; 0 when nothing is drawn."""
        return 0 if self.greedy else min(self.top_k or size, size)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the frames of a request are drawn. The defaults are the MOSS-TTS Local v1.5 model card's.

    Attributes:
        stop: The stop decision of every frame.
        codes: The codes of every frame.
        repetition_penalty: Divides (or, below 0, multiplies) the logits of codes the channel has generated
            before, in greedy mode too. 1 changes nothing.
    """

    stop: Draw = Draw(temperature=1.0, top_p=1.0, top_k=50)
    codes: Draw = Draw(temperature=1.7, top_p=0.8, top_k=25)
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        for name in ("stop", "codes"):
            value = getattr(self, name)
            if not isinstance(value, Draw):
                raise VoxradixError(f"sampling: {name} is {value!r}; it must be a Draw")
        _number(self.repetition_penalty, "repetition penalty", _LEAST, 1e6)


GREEDY = Sampling(stop=Draw(temperature=0.0), codes=Draw(temperature=0.0))
"""Always the most likely value."""


def splitmix64(states: Tensor) -> Tensor:
    """SplitMix64's output function: int64 of any shape to int64 of the same shape, all 64 bits mixed.

    Integer operations with defined 64-bit wrap-around, so equal on every device. (Steele, Lea and Flood, "Fast
    splittable pseudorandom number generators", 2014; the multipliers are those of its public code.)
    """
    mixed = (states ^ _shift_right(states, 30)) * _MIX_1
    mixed = (mixed ^ _shift_right(mixed, 27)) * _MIX_2
    return mixed ^ _shift_right(mixed, 31)


def _shift_right(values: Tensor, bits: int) -> Tensor:
    """The logical right shift, which torch lacks for signed integers."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)


def uniforms(seeds: Tensor, steps: Tensor, columns: int) -> Tensor:
    """The uniform draws of one frame: seeds and steps int64 [B] to float32 [B, columns] in ``[0, 1)``.

    Channel ``c`` of frame ``step`` is output ``step * columns + c`` of the SplitMix64 stream whose state is the
    mixed seed, so neighbouring seeds have unrelated streams.
    """
    counters = steps[:, None] * columns + torch.arange(1, columns + 1, device=steps.device)
    bits = splitmix64(splitmix64(seeds)[:, None] + counters * _GOLDEN)
    # 23 bits: then uniform * total stays below total after rounding, and a draw always lands
    return _shift_right(bits, 41).to(torch.float32) * 2.0**-23


@dataclass(frozen=True, slots=True)
class DrawTable:
    """The `Draw` of every request of a batch, as columns [B, 1].

    ``widest`` is known on the host: at least the `Draw.width` of every row. What is drawn does not depend on it.
    """

    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    greedy: Tensor
    widest: int

    @classmethod
    def of(cls, draws: list[Draw], size: int, device: torch.device) -> DrawTable:
        """The table of a batch of requests' draws over ``size`` values."""

        def column(values: list[float] | list[int] | list[bool], dtype: torch.dtype) -> Tensor:
            return torch.tensor(values, dtype=dtype, device=device)[:, None]

        widths = [d.width(size) for d in draws]
        return cls(
            temperature=column([1.0 if d.greedy else d.temperature for d in draws], torch.float32),
            top_p=column([2.0 if d.top_p == 1.0 else d.top_p for d in draws], torch.float32),
            top_k=column([max(width, 1) for width in widths], torch.int64),
            greedy=column([d.greedy for d in draws], torch.bool),
            widest=max(widths),
        )

    def put(self, row: int, draw: Draw, size: int) -> None:
        """Write one row in place; ``widest`` does not follow."""
        one = DrawTable.of([draw], size, self.greedy.device)
        self.temperature[row], self.top_p[row] = one.temperature[0], one.top_p[0]
        self.top_k[row], self.greedy[row] = one.top_k[0], one.greedy[0]

    def at(self, rows: Tensor, widest: int) -> DrawTable:
        """The table of some rows, int64 [B], none of them wider than ``widest``."""
        return DrawTable(
            temperature=self.temperature.index_select(0, rows),
            top_p=self.top_p.index_select(0, rows),
            top_k=self.top_k.index_select(0, rows),
            greedy=self.greedy.index_select(0, rows),
            widest=widest,
        )

    def draw(self, logits: Tensor, uniform: Tensor) -> Tensor:
        """Draw one value a row: logits float32 [B, V] and uniforms float32 [B] to int64 [B].

        Temperature, then top-k, then top-p on what is left, then the inverse of the cumulative distribution, in
        the order of the values, at the uniform. Values with equal logits stay or go together.
        """
        best = logits.argmax(dim=-1)
        if self.widest == 0:
            return best
        logits = (logits - logits.amax(dim=-1, keepdim=True)) / self.temperature
        top = logits.topk(self.widest, dim=-1).values
        weight = torch.where(logits < top.gather(1, self.top_k - 1), 0.0, logits.exp())
        top_weight = top.exp()
        before = top_weight.cumsum(dim=-1) - top_weight
        nucleus = before < self.top_p * weight.sum(dim=-1, keepdim=True)
        least = torch.where(nucleus, top, float("inf")).amin(dim=-1, keepdim=True)
        reached = torch.where(logits < least, 0.0, weight).cumsum(dim=-1)
        drawn = (reached > uniform[:, None] * reached[:, -1:]).to(torch.int8).argmax(dim=-1)
        return torch.where(self.greedy[:, 0], best, drawn)


def penalise(logits: Tensor, seen: Tensor, penalty: Tensor) -> Tensor:
    """Apply the repetition penalty: logits float32 [B, V], seen bool [B, V], penalty float32 [B, 1]."""
    return torch.where(seen, torch.where(logits >= 0, logits / penalty, logits * penalty), logits)
