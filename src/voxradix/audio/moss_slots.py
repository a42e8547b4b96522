"""The slots in which many utterances decode at once through one MOSS-Audio-Tokenizer.

The codec is streamed by its own class, loaded as remote code: its modules keep a state for each place of one batch,
a pass advances the places an execution mask names and leaves the others as they are, and a place is begun anew by
resetting its states. Its batch is opened once, with `count` places, so the sound of an utterance does not depend on
how many others there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from voxradix.errors import VoxradixError


class RemoteCodec(Protocol):
    """The interface of the released codec's class that is used here: a torch module with these beside.

    `decode` and `_decode_frame` return an object with ``audio`` float [B, channels, N] and ``audio_lengths`` int64
    [B]; `batch_encode` one with ``audio_codes`` int64 [codebooks, B, F] and ``audio_codes_lengths`` int64 [B].
    """

    config: Any

    def modules(self) -> Iterator[torch.nn.Module]:
        """Every module; one that streams has a ``_streaming_state`` with ``reset(mask bool [B])``."""

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """The weights."""

    @property
    def decode(self) -> Callable[..., Any]:
        """Decode codes int64 [codebooks, B, T] whole, in chunks of ``chunk_duration`` seconds."""

    @property
    def batch_encode(self) -> Callable[..., Any]:
        """Encode a list of samples float32 [channels, N]."""

    @property
    def streaming(self) -> Callable[[int], AbstractContextManager[Any]]:
        """Give every streaming module a state for so many places, until the context ends."""

    @property
    def _set_streaming_exec_mask(self) -> Callable[[Tensor], None]:
        """Choose, by bool [B], the places that the next pass advances."""

    @property
    def _decode_frame(self) -> Callable[[Tensor, Tensor], Any]:
        """Advance by codes int64 [codebooks, B, t] of lengths int64 [B]."""


@contextmanager
def quiet() -> Iterator[None]:
    """Compute without gradients, on plain tensors: states must outlive a caller's inference mode."""
    with torch.inference_mode(False), torch.no_grad():
        yield


class Slots:
    """Places for `count` utterances in one streaming batch of a codec, opened when the first is taken."""

    def __init__(self, model: RemoteCodec, count: int) -> None:
        """Take places in the batch of a codec that is not streaming."""
        if count < 1:
            raise VoxradixError(f"slots is {count}; a codec needs at least 1")
        self.count = count
        self.free = list(range(count))
        self._model = model
        self._device = next(model.parameters()).device
        self._session: ExitStack | None = None

    def take(self) -> int:
        """A free slot, in silence; `VoxradixError` when there is none."""
        if not self.free:
            raise VoxradixError(
                f"all {self.count} slots of the codec are taken by open streams; finish or close one, or load the "
                "codec with more slots"
            )
        slot = self.free.pop()
        try:
            self._begin(slot)
        except BaseException:
            self.free.append(slot)
            raise
        return slot

    def step(self, parts: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Advance the given slots by codes int64 [t, codebooks], as many frames each, and no other slot.

        Returns samples float [channels, N] for each.
        """
        with quiet():
            slots = list(parts)
            frames, codebooks = next(iter(parts.values())).shape
            codes = torch.zeros(codebooks, self.count, frames, dtype=torch.int64, device=self._device)
            for slot, part in parts.items():
                codes[:, slot] = part.T
            mask = self._mask(slots)
            self._model._set_streaming_exec_mask(mask)
            made = self._model._decode_frame(codes, mask * frames)
            lengths = made.audio_lengths[slots].tolist()
            audio = made.audio[slots].cpu()
        return {slot: audio[i, :, :length] for i, (slot, length) in enumerate(zip(slots, lengths, strict=True))}

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Set the slots' states aside, so that the codec can be used as if it were not streaming."""
        states = list(self._states())
        for module, _ in states:
            module._streaming_state = None
        try:
            with quiet():
                yield
        finally:
            for module, state in states:
                module._streaming_state = state

    def _begin(self, slot: int) -> None:
        with quiet():
            if self._session is None:
                with ExitStack() as opening:
                    opening.enter_context(self._model.streaming(self.count))
                    self._session = opening.pop_all()
            mask = self._mask([slot])
            for _, state in self._states():
                state.reset(mask)

    def _states(self) -> Iterator[tuple[Any, Any]]:
        for module in self._model.modules():
            state = getattr(module, "_streaming_state", None)
            if state is not None:
                yield module, state

    def _mask(self, slots: list[int]) -> Tensor:
        mask = torch.zeros(self.count, dtype=torch.bool, device=self._device)
        mask[slots] = True
        return mask
