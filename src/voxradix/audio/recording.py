"""Recordings given as files or bytes, in any format soundfile reads."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import soundfile
import torch
from torch import Tensor

from voxradix.errors import VoxradixError
from voxradix.files import is_file


@dataclass(frozen=True)
class Recording:
    """Sound as it was recorded.

    Attributes:
        samples: float32 [N] for one channel, [N, channels] for more; full scale is 1.
        sample_rate: Samples a second in each channel.
    """

    samples: Tensor
    sample_rate: int

    @property
    def seconds(self) -> float:
        """How long it is."""
        return len(self.samples) / self.sample_rate


def read_recording(source: Path | bytes, *, longest: float = 60.0) -> Recording:
    """Read a sound file, from disk or from its bytes.

    `VoxradixError`, naming the file, when it is missing, unreadable or no sound file, and when it is empty, longer
    than ``longest`` seconds (no more of it is read) or holds samples that are not finite.
    """
    if not isinstance(source, Path | bytes):
        raise VoxradixError(
            f"the recording is a {type(source).__name__}; it must be a path or the bytes of a sound file"
        )
    name = str(source)[:200] if isinstance(source, Path) else f"the recording of {len(source)} bytes"
    if isinstance(source, Path) and not is_file(source):
        raise VoxradixError(f"{name} is not a file; name a sound file, such as a WAV, FLAC, OGG or MP3 file")
    try:
        with soundfile.SoundFile(str(source) if isinstance(source, Path) else io.BytesIO(source)) as file:
            rate, channels = int(file.samplerate), int(file.channels)
            if rate < 1 or channels < 1:
                raise VoxradixError(f"{name} has {channels} channels of {rate} Hz; it needs at least one of each")
            # a header may know no length, so one sample beyond the limit is asked for
            limit = int(longest * rate)
            samples = torch.from_numpy(file.read(limit + 1, dtype="float32"))
    except (soundfile.SoundFileError, OSError, TypeError) as error:  # a TypeError where the name says .raw
        told = getattr(error, "error_string", str(error))
        raise VoxradixError(f"{name} cannot be read as sound: {told}") from None
    if len(samples) > limit:
        raise VoxradixError(f"{name} is longer than {longest:g} s; cut it to the part that is needed")
    if not len(samples):
        raise VoxradixError(f"{name} holds no samples")
    if not bool(samples.isfinite().all()):
        raise VoxradixError(f"{name} holds samples that are not finite numbers")
    return Recording(samples, rate)
