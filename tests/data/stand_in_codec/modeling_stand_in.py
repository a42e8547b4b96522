"""A small codec with the interface of MOSS-Audio-Tokenizer-v2, for tests.

Sound depends on all frames before it, on the place's own count of frames and on the pass's execution mask, so a mixed
up, leaking or wrongly advanced place is heard. Importing this file leaves a marker, if the environment names one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

if "STAND_IN_MARKER" in os.environ:
    Path(os.environ["STAND_IN_MARKER"]).touch()

WIDTH = 8


class StandInConfig(PretrainedConfig):
    model_type = "stand_in_codec"

    def __init__(
        self,
        sampling_rate: int = 1000,
        downsample_rate: int = 80,
        number_channels: int = 2,
        codec_weight_dtype: str = "bf16",
        quantizer_kwargs: dict[str, int] | None = None,
        **others: Any,
    ) -> None:
        self.sampling_rate = sampling_rate
        self.downsample_rate = downsample_rate
        self.number_channels = number_channels
        self.codec_weight_dtype = codec_weight_dtype
        self.quantizer_kwargs = quantizer_kwargs or {"codebook_size": 16, "num_quantizers": 6}
        super().__init__(**others)


class State:
    """What a layer remembers of each place."""

    def __init__(self, places: int) -> None:
        self.exec_mask = torch.ones(places, dtype=torch.bool)
        self.memory = torch.zeros(places, WIDTH)
        self.count = torch.zeros(places)

    def reset(self, mask: Tensor) -> None:
        self.memory[mask] = 0.0
        self.count[mask] = 0.0
        self.exec_mask[mask] = True


class Layer(nn.Module):
    """A leaky recurrence that also hears how many steps came before."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(WIDTH, WIDTH)
        self._streaming_state: State | None = None

    def forward(self, frames: Tensor) -> Tensor:
        state = self._streaming_state or State(len(frames))
        if len(state.memory) != len(frames):
            raise RuntimeError(f"{len(frames)} places in a session of {len(state.memory)}")
        memory, count, made = state.memory, state.count, []
        for step in range(frames.shape[1]):
            memory = 0.8 * memory + torch.tanh(self.mix(frames[:, step]) + 0.1 * torch.sin(count)[:, None])
            count = count + 1
            made.append(memory)
        state.memory = torch.where(state.exec_mask[:, None], memory, state.memory)
        state.count = torch.where(state.exec_mask, count, state.count)
        return torch.stack(made, dim=1)


@dataclass
class Decoded:
    audio: Tensor
    audio_lengths: Tensor


@dataclass
class Encoded:
    audio_codes: Tensor
    audio_codes_lengths: Tensor


class StandInCodec(PreTrainedModel):
    config_class = StandInConfig

    def __init__(self, config: StandInConfig) -> None:
        super().__init__(config)
        sizes = config.quantizer_kwargs
        self.tables = nn.Parameter(torch.zeros(sizes["num_quantizers"], sizes["codebook_size"], WIDTH))
        self.encoder = Layer()
        self.decoder = nn.ModuleList([Layer(), Layer()])
        self.head = nn.Linear(WIDTH, config.downsample_rate * config.number_channels)
        self.encoded: list[Tensor] = []
        """Every recording that was encoded."""
        self.passes: list[list[bool]] = []
        """The mask of every streamed pass."""
        self.post_init()  # type: ignore[no-untyped-call]

    @classmethod
    def from_pretrained(cls, *arguments: Any, **named: Any) -> StandInCodec:
        model: StandInCodec = super().from_pretrained(*arguments, **named)
        return model.bfloat16() if model.config.codec_weight_dtype == "bf16" else model

    @contextmanager
    def streaming(self, batch_size: int) -> Iterator[None]:
        for module in self.modules():
            if isinstance(module, Layer):
                if module._streaming_state is not None:
                    raise RuntimeError("already streaming")
                module._streaming_state = State(batch_size)
        try:
            yield
        finally:
            for module in self.modules():
                if isinstance(module, Layer):
                    module._streaming_state = None

    def _set_streaming_exec_mask(self, mask: Tensor) -> None:
        self.passes.append(mask.tolist())
        for module in self.modules():
            if isinstance(module, Layer) and module._streaming_state is not None:
                module._streaming_state.exec_mask[:] = mask

    def _decode_frame(self, codes: Tensor, lengths: Tensor) -> Decoded:
        frames = torch.stack([self.tables[k][codes[k]] for k in range(len(codes))]).sum(0)
        for layer in self.decoder:
            frames = layer(frames)
        size, channels = self.config.downsample_rate, self.config.number_channels
        audio = torch.tanh(self.head(frames)).view(len(lengths), -1, channels).transpose(1, 2)
        return Decoded(audio, lengths * size)

    def decode(
        self, codes: Tensor, padding_mask: Tensor, num_quantizers: int, return_dict: bool, chunk_duration: float
    ) -> Decoded:
        chunk = round(chunk_duration * self.config.sampling_rate) // self.config.downsample_rate
        assert return_dict and padding_mask.all() and num_quantizers == len(codes)
        with self.streaming(codes.shape[1]):
            lengths = torch.ones(codes.shape[1], dtype=torch.int64)
            pieces = [self._decode_frame(part, lengths * part.shape[2]).audio for part in codes.split(chunk, dim=2)]
        return Decoded(torch.cat(pieces, dim=2), padding_mask.sum(1) * self.config.downsample_rate)

    def batch_encode(self, recordings: list[Tensor], num_quantizers: int) -> Encoded:
        (recording,) = recordings
        self.encoded.append(recording)
        size = self.config.downsample_rate
        padded = nn.functional.pad(recording, (0, -recording.shape[1] % size))
        frames = padded.unflatten(1, (-1, size)).mean(0)[None, :, :WIDTH]
        heard = self.encoder(frames)[0]
        codes = (heard.abs() * 100).long()[:, :num_quantizers].T % self.config.quantizer_kwargs["codebook_size"]
        return Encoded(codes[:, None], torch.tensor([recording.shape[1] // size]))
