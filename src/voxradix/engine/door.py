"""The door: what a caller asks for becomes a request, or is refused with the value and what would be right."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import count

import torch
from torch import Tensor

from voxradix.cache import Chain, namespace
from voxradix.engine.request import Request
from voxradix.errors import VoxradixError
from voxradix.keys import RowHash, pack_rows, row_keys
from voxradix.sampling import Sampling
from voxradix.voice import Voice

Prompt = str | Tensor | Sequence[Sequence[int]]
"""Text for the voice's own prompt builder, or prompt rows int [T, C] as a tensor, an array or lists."""


class Door:
    """Makes the requests of one engine."""

    def __init__(self, voice: Voice, pool_rows: int, row_hash: RowHash) -> None:
        """A door for prompts of ``voice`` and a pool of ``pool_rows``; ``row_hash`` gives the raw keys of rows."""
        self._voice = voice
        self._layout = voice.model.layout
        self._pool_rows = pool_rows
        self._positions = voice.model.config.backbone.positions
        self._row_hash = row_hash
        self._orders = count()
        self._names = (voice.model.digest, repr(self._layout).encode(), voice.name.encode())

    @torch.inference_mode(False)
    def request(
        self,
        prompt: Prompt,
        *,
        sampling: Sampling | None = None,
        seed: int = 0,
        max_frames: int | None = None,
        salt: str = "",
        own_frames: int = 0,
        first_draw: int = 0,
    ) -> Request:
        """A request, in the order of its making; see `Engine.submit`.

        Raises:
            VoxradixError: When the prompt or a value cannot be used, or the request can never fit.
        """
        rows = self._voice.prompt(prompt) if isinstance(prompt, str) else _own_rows(prompt)
        self._layout.check(rows)
        sampling = self._voice.sampling if sampling is None else sampling
        if not isinstance(sampling, Sampling):
            raise VoxradixError(f"sampling is {sampling!r}; it must be a Sampling")
        seed = whole_number("seed", seed)
        if not -(2**63) <= seed < 2**63:
            raise VoxradixError(f"seed is {seed}; it must be a 64-bit integer")
        budget = self._budget(rows.shape[0], max_frames)
        own = _within("own_frames", own_frames, rows.shape[0])
        request = Request(
            order=next(self._orders),
            prompt=rows,
            sampling=sampling,
            seed=seed,
            max_frames=budget,
            first_draw=_within("first_draw", first_draw, 2**31),
            chain=self._chain(rows, salt),
        )
        if sampling.repetition_penalty != 1.0:
            request.seen = torch.zeros(self._layout.codebooks, self._voice.model.config.codebook_size, dtype=torch.bool)
            for row in self._frames(rows[rows.shape[0] - own :]):
                request.saw(row)
        return request

    def _frames(self, rows: Tensor) -> Tensor:
        """The rows, known to be frames and not text."""
        if (rows[:, 1:] >= self._voice.model.config.codebook_size).any():
            raise VoxradixError(f"own_frames is {rows.shape[0]}, but not all of the prompt's last rows are frames")
        return rows

    def namespace(self, salt: str) -> bytes:
        """The name under which rows are shared among requests of one salt."""
        if not isinstance(salt, str):
            raise VoxradixError(f"salt is {salt!r}; it must be text")
        return namespace(*self._names, salt.encode("utf-8", "surrogatepass"))

    def _chain(self, rows: Tensor, salt: str) -> Chain:
        chain = Chain(8 * self._layout.words, self.namespace(salt))
        keys = row_keys(rows.clone(), self._layout, row_hash=self._row_hash)
        chain.extend(pack_rows(rows, self._layout).numpy().tobytes(), keys.tolist())
        return chain

    def _budget(self, prompt_rows: int, max_frames: int | None) -> int:
        """The frames a request may have; `VoxradixError` when it can never fit."""
        if prompt_rows < 1:
            raise VoxradixError("the prompt has no rows; it needs at least one")
        if max_frames is None:
            budget = max(min(self._voice.max_frames, self._positions - prompt_rows), 1)
        else:
            budget = whole_number("max_frames", max_frames)
        if budget < 1:
            raise VoxradixError(f"max_frames is {budget}; it must be at least 1")
        needed = prompt_rows + budget
        for limit, what in ((self._pool_rows, "the pool holds"), (self._positions, "the model's positions end at")):
            if needed > limit:
                raise VoxradixError(
                    f"the request needs {needed} rows ({prompt_rows} of prompt and {budget} frames) but {what} "
                    f"{limit}; shorten the text, lower max_frames or raise that limit"
                )
        return budget


def whole_number(name: str, value: object) -> int:
    """A caller's value as an int; `VoxradixError` when it is no whole number."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise VoxradixError(f"{name} is {value!r}; it must be a whole number") from None


def _within(name: str, value: object, most: int) -> int:
    number = whole_number(name, value)
    if not 0 <= number <= most:
        raise VoxradixError(f"{name} is {number}; it must be from 0 to {most}")
    return number


def _own_rows(prompt: object) -> Tensor:
    """The caller's rows as a tensor of the engine's own, on the CPU."""
    try:
        rows = torch.as_tensor(prompt)
        if rows.dtype is torch.bool or rows.is_floating_point() or rows.is_complex():
            raise VoxradixError(f"prompt rows have dtype {rows.dtype}; they must be integers")
        return rows.to("cpu", torch.int64, copy=True)
    except VoxradixError:
        raise
    except Exception as error:  # whatever the conversion raises, the prompt is at fault
        raise VoxradixError(f"the prompt is neither text nor rows of integers [T, C]: {error}") from None
