"""A small codec without a neural decoder: codes name vectors, vectors name spectra, spectra make sound.

A frame of 12 codes stands for the sum of 12 table vectors. That sum holds, for each of the frame's hops, a
pitch and a point in the hidden space of a speech model; a linear layer turns the point into five spectra
(gain and phase of the voiced part, gain of the noise, gain and phase of what is left). The voiced part
filters a pulse train, and the inverse Fourier transforms are overlapped and added.

Each frame is computed alone, by operations of one fixed shape; only a phase, a stretch of the pulse train
and the overlap are carried from frame to frame. So streamed and whole decoding give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from voxradix.audio.codec import CodecStream
from voxradix.audio.codes import check_codes
from voxradix.errors import VoxradixError
from voxradix.files import read_json

_LAG = 2  # hops by which synthesis trails the codes: a window reaches past its own hop
_LOWEST = 40.0  # Hz; the lowest pitch of the pulse train
_HIGHEST = 11000.0  # Hz; the pulse train has no harmonics above this
_LOUDEST = 7.0  # natural log of the largest gain
_KNEE = 0.4  # amplitude that speech seldom passes


class SpectralCodec:
    """Decodes frames of 12 codes to mono samples.

    Attributes: `sample_rate` in Hz, `samples_per_frame`, `channels`, `codebooks` (codes a frame), `codebook_size`.
    """

    channels = 1

    def __init__(self, config: Mapping[str, object], arrays: Mapping[str, Tensor]) -> None:
        """Take the parsed config.json and the named arrays; VoxradixError when they do not fit together."""
        if config.get("kind") != "spectral":
            raise VoxradixError(f"codec kind is {config.get('kind')!r}, expected 'spectral'")
        self.sample_rate = _positive(config, "sample_rate")
        self.samples_per_frame = _positive(config, "samples_per_frame")
        self.codebooks = _positive(config, "codebooks")
        self.codebook_size = _positive(config, "codebook_size")
        self.hops = _positive(config, "hops_per_frame")
        self.window_size = _positive(config, "window_size")
        self.hop = self.samples_per_frame // self.hops
        self.bins = self.window_size // 2 + 1
        self.hidden_size = hidden = _positive(config, "hidden_size")
        width = _positive(config, "vector_size")
        if self.hop * self.hops != self.samples_per_frame or not 2 * self.hop < self.window_size < 4 * self.hop:
            raise VoxradixError("codec config: hops, window and frame sizes do not fit together")
        shapes = {
            "tables": (self.codebooks, self.codebook_size, width),
            "basis": (width - 2 * self.hops, self.hops * hidden),
            "mean": (self.hops * hidden,),
            "head.weight": (5 * self.bins, hidden),
            "head.bias": (5 * self.bins,),
        }
        for name, shape in shapes.items():
            if name not in arrays:
                raise VoxradixError(f"codec weights lack {name!r}")
            if tuple(arrays[name].shape) != shape:
                raise VoxradixError(f"codec weight {name!r} is {tuple(arrays[name].shape)}, expected {shape}")
        self.tables, self.basis, self.mean, self.head_weight, self.head_bias = (
            arrays[name].to(torch.float32) for name in shapes
        )
        self.window = torch.hann_window(self.window_size, dtype=torch.float64).to(torch.float32)
        squares = F.pad(self.window.square(), (0, 4 * self.hop - self.window_size))
        self.overlap_gain = 1.0 / squares.view(4, self.hop).sum(0)

    @classmethod
    def load(cls, directory: str | Path) -> SpectralCodec:
        """Read `config.json` and `model.safetensors`; VoxradixError names what is missing or wrong."""
        directory = Path(directory)
        config = read_json(directory / "config.json")
        weights = directory / "model.safetensors"
        try:
            return cls(config, load_file(weights))
        except (OSError, SafetensorError) as error:
            raise VoxradixError(f"{weights} cannot be read: {error}") from None

    def decode(self, codes: Tensor) -> Tensor:
        """Whole waveform, float32 [T * samples_per_frame] in [-1, 1], of `codes`, int64 [T, codebooks]."""
        stream = self.stream()
        return torch.cat([stream.push(codes), stream.finish()])

    def stream(self) -> SpectralStream:
        """A decoder that takes the frames as they come."""
        return SpectralStream(self)

    def push(self, parts: Mapping[CodecStream, Tensor]) -> dict[CodecStream, Tensor]:
        """The samples made ready for each stream by its codes, one stream after the other."""
        for codes in parts.values():
            check_codes(codes, self.codebooks, self.codebook_size)
        return {stream: stream.push(codes) for stream, codes in parts.items()}

    def hidden(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        """One frame's hidden states [hops, hidden] and pitches [hops] in Hz, 0 where there is no voice."""
        vector = self.tables[torch.arange(self.codebooks), codes].sum(0)
        pitch, voice = vector[: 2 * self.hops].view(2, self.hops)
        states = vector[2 * self.hops :] @ self.basis + self.mean
        return states.view(self.hops, -1), torch.where(voice > 0, pitch.exp(), 0.0)


class SpectralStream:
    """Decodes one utterance, frame by frame; the pieces joined equal the whole decode bit for bit.

    A hop is made once the pitch after it is known, so sound trails the codes by half a window and two hops.
    """

    def __init__(self, codec: SpectralCodec) -> None:
        """Begin an utterance, in silence."""
        self._codec = codec
        self._noise = torch.Generator().manual_seed(0)
        self._pitch = torch.zeros(1)  # of the last hop, Hz
        self._phase = torch.zeros((), dtype=torch.float64)  # of the pulse train, in periods
        self._pulses = torch.zeros(codec.window_size // 2 + _LAG * codec.hop - codec.hop // 2)
        self._states = torch.zeros(_LAG, codec.hidden_size)  # of the hops not yet made
        self._live = torch.zeros(_LAG)  # 1 for a hop of the utterance, 0 for one outside
        self._overlap = torch.zeros(codec.window_size - codec.hop)
        self._early = codec.window_size // 2 + _LAG * codec.hop  # samples still to drop, before time 0

    def push(self, codes: Tensor) -> Tensor:
        """Samples made ready by `codes`, int64 [t, codebooks], t >= 0; float32, 1-D.

        VoxradixError when the shape or a code is out of range.
        """
        codec = self._codec
        check_codes(codes, codec.codebooks, codec.codebook_size)
        pieces = [self._advance(*codec.hidden(frame), 1.0) for frame in codes.to("cpu", torch.int64)]
        return torch.cat(pieces) if pieces else torch.zeros(0)

    def finish(self) -> Tensor:
        """The samples still held back; the stream must not be used afterwards."""
        codec = self._codec
        held = codec.window_size // 2 + _LAG * codec.hop - self._early
        silence = torch.zeros(codec.hops, codec.hidden_size)
        return self._advance(silence, torch.zeros(codec.hops), 0.0)[:held]

    def close(self) -> None:
        """Abandon the stream, which holds nothing but its own memory."""

    def _advance(self, states: Tensor, pitch: Tensor, live: float) -> Tensor:
        codec = self._codec
        states = torch.cat([self._states, states])
        lives = torch.cat([self._live, torch.full((codec.hops,), live)])
        self._states, self._live = states[codec.hops :], lives[codec.hops :]
        spectra = self._spectra(states[: codec.hops], self._voice(pitch)) * lives[: codec.hops, None]
        pieces = torch.fft.irfft(spectra, n=codec.window_size) * codec.window
        sound = F.pad(self._overlap, (0, codec.samples_per_frame))
        for i in range(codec.hops):
            sound[i * codec.hop : i * codec.hop + codec.window_size] += pieces[i]
        self._overlap = sound[codec.samples_per_frame :]
        ready = sound[: codec.samples_per_frame].view(codec.hops, codec.hop) * codec.overlap_gain
        drop, self._early = self._early, 0
        return _limited(ready.flatten()[drop:])

    def _voice(self, pitch: Tensor) -> Tensor:
        """Spectra [hops, bins] of the pulse train around each hop, given the next hops' pitch."""
        codec = self._codec
        before = torch.cat([self._pitch, pitch[:-1]])[:, None]
        after = pitch[:, None]
        self._pitch = pitch[-1:]
        ramp = (torch.arange(codec.hop) + 0.5) / codec.hop
        start, end = torch.where(before > 0, before, after), torch.where(after > 0, after, before)
        frequency = (start + (end - start) * ramp).flatten()
        voiced = torch.where(ramp < 0.5, before > 0, after > 0).flatten()
        frequency = frequency.clamp(min=_LOWEST)
        phase = self._phase + torch.cumsum(frequency.double(), 0) / codec.sample_rate
        self._phase = phase[-1] % 1.0
        angle = ((phase % 1.0) * (2 * math.pi)).float()
        # sum of cos(h * angle) over the harmonics h = 1..count, in closed form
        count = torch.floor(_HIGHEST / frequency)
        sine = 2 * torch.sin(angle / 2)
        peak = sine.abs() <= 2e-3
        wave = torch.where(peak, count + 0.5, torch.sin((count + 0.5) * angle) / torch.where(peak, 1.0, sine))
        pulses = torch.cat([self._pulses, torch.where(voiced, wave - 0.5, 0.0)])
        self._pulses = pulses[codec.samples_per_frame :]
        around = pulses.unfold(0, codec.window_size, codec.hop)[: codec.hops]
        spectra: Tensor = torch.fft.rfft(around * (codec.window * (4 / codec.window_size)))
        return spectra

    def _spectra(self, states: Tensor, voice: Tensor) -> Tensor:
        codec = self._codec
        parts = F.linear(states, codec.head_weight, codec.head_bias).view(codec.hops, 5, codec.bins)
        gain, turn, hiss, rest, rest_phase = parts.unbind(1)
        noise = torch.view_as_complex(torch.randn(codec.hops, codec.bins, 2, generator=self._noise))
        return (
            torch.polar(_gain(gain), math.pi * torch.tanh(turn)) * voice
            + _gain(hiss) * noise
            + torch.polar(_gain(rest), rest_phase)
        )


def _gain(log_gain: Tensor) -> Tensor:
    return log_gain.clamp(max=_LOUDEST).exp()


def _limited(samples: Tensor) -> Tensor:
    """The samples, bent beyond the knee so that rare outbursts stay below 1."""
    over = (samples.abs() - _KNEE).clamp(min=0.0)
    return samples.clamp(-_KNEE, _KNEE) + samples.sign() * over / (1 + over / (1 - _KNEE))


def _positive(config: Mapping[str, object], name: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or value <= 0:
        raise VoxradixError(f"codec config: {name!r} is {value!r}, expected a positive whole number")
    return value
