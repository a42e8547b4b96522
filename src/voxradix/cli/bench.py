"""The `bench` commands: figures with the machine they were taken on."""

from __future__ import annotations

import os
import platform
import resource
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from rich.console import Console
from rich.table import Table

from voxradix.cli.choice import ModelChoice
from voxradix.cli.speak import use_threads
from voxradix.engine import Engine

_DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]

_WARM_UP = 3
"""Runs before those that count."""


@dataclass(frozen=True, slots=True)
class FrameFigures:
    """What one batch size gave: the medians of several runs, and the process's peak memory."""

    requests: int
    frames: int
    frames_per_second: float
    first_frame_seconds: float
    real_time_factor: float
    peak_bytes: int
    threads: int


def bench_frames(choice: ModelChoice, counts: list[int], repeats: int, threads: int | None) -> None:
    """Print a table of frames per second and peak memory, each batch size in a process of its own."""
    context = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        figures = [pool.submit(measure_frames, choice, count, repeats, threads).result() for count in counts]
    table = Table("requests", "frames", "frames/s", "to the first", "first frame", "real-time factor", "peak memory")
    for row in figures:
        table.add_row(
            str(row.requests),
            str(row.frames),
            f"{row.frames_per_second:.0f}",
            f"{row.frames_per_second / figures[0].frames_per_second:.2f}",
            f"{1000 * row.first_frame_seconds:.0f} ms",
            f"{row.real_time_factor:.3f}",
            f"{row.peak_bytes / 2**20:.0f} MiB",
        )
    console = Console()
    console.print(f"{machine()}, {figures[0].threads} threads; {choice.name}; median of {repeats} runs")
    console.print(table)


def measure_frames(choice: ModelChoice, requests: int, repeats: int, threads: int | None) -> FrameFigures:
    """Run ``requests`` requests at once, ``repeats`` times after a warm-up, none of them sharing a prefix.

    All runs are one engine's, and the warm-up lasts until its common steps are captured.
    """
    loaded, rows = choice.load()
    use_threads(threads, loaded.model)
    engine = Engine(loaded, pool_rows=rows, max_batch=requests)
    runs = [_run(engine, requests, run) for run in range(_WARM_UP + repeats)][_WARM_UP:]
    return FrameFigures(
        requests=requests,
        frames=int(median(run.frames for run in runs)),
        frames_per_second=median(run.frames / run.seconds for run in runs),
        first_frame_seconds=median(run.first_frame for run in runs),
        real_time_factor=median((run.seconds + run.decode_seconds) / run.audio_seconds for run in runs),
        peak_bytes=_peak_bytes(),
        threads=torch.get_num_threads(),
    )


@dataclass(frozen=True, slots=True)
class _Run:
    frames: int
    seconds: float
    first_frame: float
    decode_seconds: float
    audio_seconds: float


def _run(engine: Engine, requests: int, run: int) -> _Run:
    texts = [unlike_text(run * requests + i) for i in range(requests)]
    start = perf_counter()
    results = engine.generate_batch(texts, salt=str(run))
    seconds = perf_counter() - start
    samples = sum(len(engine.voice.codec.decode(result.codes)) for result in results)
    return _Run(
        frames=sum(len(result.rows) for result in results),
        seconds=seconds,
        first_frame=max(result.first_frame_seconds or 0.0 for result in results),
        decode_seconds=perf_counter() - start - seconds,
        audio_seconds=samples / engine.voice.codec.sample_rate,
    )


def unlike_text(index: int) -> str:
    """Ten digits that no other index has."""
    return " ".join(_DIGITS[int(figure)] for figure in f"{index * 7919 % 10**10:010d}"[::-1])


def machine() -> str:
    """The processor, its cores and the versions that matter, for a line above figures."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        name = models[0] if models else name
    return f"{name}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}"


def _peak_bytes() -> int:
    """Peak resident memory of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
