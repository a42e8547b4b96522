"""Fits the codec: twelve tables of vectors whose sums are the teacher's pitch and hidden states.

Tables 0 and 1 are all zero (they carry the reading position, not sound); table 2 holds pitch; the others
share out the principal directions of the hidden states, measured by how much they change what one hears.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from training.corpus import HOPS

CODEBOOKS = 12
STATE_BOOKS = 2
PITCH_BOOK = 2
SIZE = 256
BINS = 601
DIRECTIONS = 128
VOICED = 40.0  # Hz
VOICE_WEIGHT = 0.3  # of a voicing decision against a natural-log unit of pitch


@dataclass(frozen=True)
class FittedCodec:
    """What `fit` learns: the files' contents, and what it takes to code speech."""

    config: dict[str, object]
    arrays: dict[str, Tensor]
    analysis: Tensor  # [6 * 256, directions]: hidden states of a frame to principal directions
    groups: list[list[int]]  # directions of each sound book after the pitch

    def encode(self, latents: NDArray[np.float16], f0: NDArray[np.float32]) -> Tensor:
        """Codes, int64 [n, 12], of frames `latents` [n, 6, 256] and `f0` [n, 6]; the two state codes are 0."""
        tables = self.arrays["tables"].float()
        codes = torch.zeros(len(f0), CODEBOOKS, dtype=torch.int64)
        codes[:, PITCH_BOOK] = nearest(pitch_vectors(f0), tables[PITCH_BOOK, :, : 2 * HOPS])
        frames = torch.from_numpy(latents).float().flatten(1) - self.arrays["mean"].float()
        directions = frames @ self.analysis
        for book, group in enumerate(self.groups, start=PITCH_BOOK + 1):
            codes[:, book] = nearest(directions[:, group], tables[book][:, torch.tensor(group) + 2 * HOPS])
        return codes

    def save(self, directory: Path) -> None:
        """Write the codec directory that `SpectralCodec.load` reads."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.json").write_text(json.dumps(self.config, indent=2) + "\n")
        save_file(self.arrays, directory / "model.safetensors")


def fit(latents: NDArray[np.float16], f0: NDArray[np.float32], head: tuple[Tensor, Tensor], seed: int) -> FittedCodec:
    """Fit to frames `latents` [n, 6, 256] and `f0` [n, 6]; `head` is the teacher's output layer."""
    torch.manual_seed(seed)
    weight, bias = head
    frames = torch.from_numpy(latents).float()
    width = frames.shape[2]
    ear = _ear(weight)
    heard = frames @ ear.T
    mean = heard.flatten(1).mean(0)
    centred = heard.flatten(1) - mean
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(centred))
    order = values.argsort(descending=True)[:DIRECTIONS]
    values, vectors = values[order], vectors[:, order]
    directions = centred @ vectors
    tables = torch.zeros(CODEBOOKS, SIZE, 2 * HOPS + DIRECTIONS)
    tables[PITCH_BOOK, :, : 2 * HOPS] = kmeans(pitch_vectors(f0), SIZE)
    groups = _share(values, CODEBOOKS - PITCH_BOOK - 1)
    for book, group in enumerate(groups, start=PITCH_BOOK + 1):
        tables[book][:, torch.tensor(group) + 2 * HOPS] = kmeans(directions[:, group], SIZE)
    back = torch.linalg.inv(ear).T
    basis = (vectors.T.reshape(-1, width) @ back).reshape(DIRECTIONS, -1)
    analysis = (ear.T @ vectors.reshape(HOPS, width, DIRECTIONS)).reshape(-1, DIRECTIONS)
    config: dict[str, object] = {
        "kind": "spectral",
        "sample_rate": 24000,
        "samples_per_frame": 1920,
        "frame_rate": 12.5,
        "codebooks": CODEBOOKS,
        "codebook_size": SIZE,
        "hops_per_frame": HOPS,
        "window_size": 1200,
        "hidden_size": width,
        "vector_size": 2 * HOPS + DIRECTIONS,
    }
    arrays = {
        "tables": tables,
        "basis": basis,
        "mean": (mean.reshape(HOPS, width) @ back).flatten(),
        "head.weight": weight,
        "head.bias": bias,
    }
    halves = {name: array.to(torch.float16).contiguous() for name, array in arrays.items()}
    return FittedCodec(config, halves, analysis, groups)


def pitch_vectors(f0: NDArray[np.float32]) -> Tensor:
    """Frames of pitch [n, 6] in Hz as vectors [n, 12]: natural log (interpolated where unvoiced), then +-voicing."""
    flat = f0.flatten()
    voiced = flat > VOICED
    at = np.arange(len(flat))
    log = np.interp(at, at[voiced], np.log(flat[voiced])).reshape(f0.shape)
    voice = np.where(f0 > VOICED, VOICE_WEIGHT, -VOICE_WEIGHT)
    return torch.from_numpy(np.concatenate([log, voice], 1)).float()


def _ear(weight: Tensor) -> Tensor:
    """A square root [256, 256] of the metric on hidden states that spectra as heard induce."""
    hertz = torch.arange(BINS) * (12000 / (BINS - 1))
    mel = (1 / (700 + hertz)).repeat(5)
    part = torch.tensor([1.0, 0.3, 1.0, 0.3, 0.3]).repeat_interleave(BINS)
    metric = weight.T @ (weight * (mel * part / mel[:BINS].sum())[:, None])
    metric += 1e-3 * metric.diagonal().mean() * torch.eye(len(metric))
    root: Tensor = torch.linalg.cholesky(metric)
    return root.T


def _share(variances: Tensor, books: int) -> list[list[int]]:
    """Share directions out so that every book has about as many bits to spend (reverse water-filling)."""
    budget = books * 8
    low, high = 0.0, float(variances[0])
    for _ in range(60):
        level = (low + high) / 2
        bits = (0.5 * torch.log2(variances / level)).clamp(min=0)
        low, high = (level, high) if bits.sum() > budget else (low, level)
    groups: list[list[int]] = [[] for _ in range(books)]
    load = [0.0] * books
    for i, need in enumerate(bits.tolist()):
        book = min(range(books), key=lambda b: (load[b], len(groups[b])))
        groups[book].append(i)
        load[book] += need
    return groups


def kmeans(points: Tensor, size: int, rounds: int = 25, most: int = 40000) -> Tensor:
    """`size` centres of `points` [n, d] (Lloyd's rounds on a sample; an empty centre moves to a random point)."""
    sample = points[torch.randperm(len(points))[:most]]
    centres = sample[torch.randperm(len(sample))[:size]].clone()
    for _ in range(rounds):
        near = nearest(sample, centres)
        count = torch.bincount(near, minlength=size)
        total = torch.zeros_like(centres).index_add_(0, near, sample)
        fresh = sample[torch.randint(len(sample), (size,))]
        centres = torch.where(count[:, None] > 0, total / count.clamp(min=1)[:, None], fresh)
    return centres


def nearest(points: Tensor, centres: Tensor) -> Tensor:
    """Index of the nearest centre for each point."""
    half = centres.square().sum(1) / 2
    return torch.cat([(half - chunk @ centres.T).argmin(1) for chunk in points.split(8192)])
