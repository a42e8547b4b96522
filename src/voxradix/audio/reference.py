"""A recording as the released model's public processor gives it to the codec."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from voxradix.errors import VoxradixError

_LOUDNESS = -20.0
"""dBFS towards which a recording is brought (``target_dbfs`` of the public processor)."""
_GAIN = 3.0
"""dB of gain or of loss at most (``gain_range`` of the public processor)."""


def prepared(samples: Tensor, sample_rate: int, *, target_rate: int, channels: int) -> Tensor:
    """Samples float32 [N] or [N, c] as float32 [channels, M] at ``target_rate`` Hz, near -20 dBFS.

    One channel is given to all; of more than ``channels``, the first are kept. The loudness is the mean over all
    samples of all channels. `VoxradixError` without the resampler that another rate needs.
    """
    sound = samples.reshape(len(samples), -1)
    sound = sound.expand(-1, max(channels, sound.shape[1]))[:, :channels].contiguous()
    if sample_rate != target_rate:
        sound = _resampled(sound, sample_rate, target_rate)
    return levelled(sound).T.contiguous()


def levelled(samples: Tensor) -> Tensor:
    """The samples with a gain of at most 3 dB, up or down, towards a mean power of -20 dBFS."""
    loudness = 10 * float(torch.log10(samples.square().mean() + 1e-9))
    gain = min(max(_LOUDNESS - loudness, -_GAIN), _GAIN)
    return samples * math.pow(10, gain / 20)


def _resampled(samples: Tensor, sample_rate: int, target_rate: int) -> Tensor:
    try:
        import soxr
    except ImportError:
        raise VoxradixError(
            f"the recording has {sample_rate} samples a second and the codec {target_rate}; resampling needs soxr: "
            'pip install "voxradix[moss]"'
        ) from None
    return torch.from_numpy(soxr.resample(samples.numpy(), sample_rate, target_rate, quality="VHQ"))
