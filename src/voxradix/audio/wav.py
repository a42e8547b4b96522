"""WAV files, through soundfile."""

from __future__ import annotations

import io
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import soundfile
from torch import Tensor

from voxradix.errors import VoxradixError


def wav_bytes(samples: Tensor, sample_rate: int) -> bytes:
    """A 16-bit PCM WAV file of samples in [-1, 1], float32 [N] for one channel or [N, channels] for more."""
    buffer = io.BytesIO()
    soundfile.write(buffer, samples.numpy(), sample_rate, format="WAV", subtype="PCM_16")
    return buffer.getvalue()


def write_file(path: Path, data: bytes) -> None:
    """Write a whole file or nothing: a reader never sees half of it. A device or pipe is written straight to."""
    path = path.resolve()  # a link keeps pointing where it did
    temporary: str | None = None
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)
        raise VoxradixError(f"{path} cannot be written: {error.strerror}") from None


def check_writable(path: Path) -> None:
    """Raise `VoxradixError` now if `write_file` could not write ``path`` later."""
    try:
        path.exists()
        taken, place = path.is_dir(), path.parent.is_dir()
    except (OSError, ValueError) as error:
        raise VoxradixError(f"{path} cannot be written: {error}") from None
    if taken:
        raise VoxradixError(f"{path} is a directory; name a file to write")
    if not place:
        raise VoxradixError(f"{path} cannot be written: {path.parent} is not a directory")
    if not os.access(path.parent, os.W_OK):
        raise VoxradixError(f"{path} cannot be written: {path.parent} is not writable")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
