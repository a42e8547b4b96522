"""Recordings as people give them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from voxradix.audio import read_recording, wav_bytes
from voxradix.errors import VoxradixError

RATE = 8000


def encoded(samples: np.ndarray, **how: str) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, RATE, **how)
    return file.getvalue()


def tone(channels: int = 1) -> np.ndarray:
    wave = np.sin(np.arange(RATE) * 0.3).astype(np.float32) / 2
    return np.stack([wave / (1 + i) for i in range(channels)], axis=1) if channels > 1 else wave


@pytest.mark.parametrize(("kind", "close"), [("WAV", 1e-4), ("FLAC", 1e-4), ("OGG", 0.05), ("MP3", 0.1)])
def test_formats_are_read_from_bytes(kind: str, close: float) -> None:
    recording = read_recording(encoded(tone(), format=kind))
    assert recording.sample_rate == RATE
    assert recording.samples.dtype == torch.float32
    samples = recording.samples[200 : RATE - 200]
    assert recording.samples.ndim == 1
    assert abs(samples.square().mean().sqrt() - 0.5 / 2**0.5) < close


def test_channels_are_kept_and_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "three.wav"
    path.write_bytes(encoded(tone(3), format="WAV", subtype="FLOAT"))
    recording = read_recording(path)
    assert torch.equal(recording.samples, torch.from_numpy(tone(3)))
    assert recording.seconds == 1.0


def test_what_wav_bytes_writes_is_read_back() -> None:
    samples = torch.from_numpy(tone(2))
    assert torch.allclose(read_recording(wav_bytes(samples, RATE)).samples, samples, atol=1 / 32767)


def test_a_recording_beyond_the_limit_is_refused() -> None:
    data = encoded(tone(), format="WAV")
    assert len(read_recording(data, longest=1.0).samples) == RATE
    with pytest.raises(VoxradixError, match=r"longer than 0\.99 s"):
        read_recording(data, longest=0.99)
    with pytest.raises(VoxradixError, match="longer than 60 s"):
        read_recording(encoded(np.zeros(60 * RATE + 1, np.float32), format="FLAC"))


def test_samples_that_are_not_finite_are_refused() -> None:
    wave = tone()
    for wrong in (np.nan, np.inf):
        wave[17] = wrong
        with pytest.raises(VoxradixError, match="not finite"):
            read_recording(encoded(wave, format="WAV", subtype="FLOAT"))


def test_an_empty_recording_is_refused() -> None:
    with pytest.raises(VoxradixError, match="holds no samples"):
        read_recording(encoded(np.zeros(0, np.float32), format="WAV"))


@pytest.mark.parametrize("data", [b"", b"RIFF", b"no sound at all" * 99])
def test_what_is_no_sound_is_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(VoxradixError, match=f"the recording of {len(data)} bytes cannot be read as sound"):
        read_recording(data)
    for name in ("noise.wav", "noise.raw"):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(VoxradixError, match=f"{name} cannot be read as sound"):
            read_recording(tmp_path / name)


def test_a_header_without_channels_is_refused() -> None:
    data = bytearray(encoded(tone(), format="WAV"))
    data[22:24] = bytes(2)
    with pytest.raises(VoxradixError):
        read_recording(bytes(data))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.wav", tmp_path):
        with pytest.raises(VoxradixError, match=f"{path} is not a file"):
            read_recording(path)
