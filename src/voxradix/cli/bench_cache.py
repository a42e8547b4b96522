"""`voxradix bench cache`: what audio that exists is worth, warm against cold, on a random checkpoint."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from voxradix.cli.bench import machine
from voxradix.cli.bench_tree import tree_figures, tree_table
from voxradix.engine import Engine, Request, State
from voxradix.models.moss_local import MossLocal
from voxradix.models.moss_local.random_checkpoint import Sizes, prompt, write
from voxradix.sampling import Draw, Sampling
from voxradix.voice import Voice, load_voice

FRAME_RATE = 12.5
"""Frames a second of the released model."""

_ENDLESS = Sampling(stop=Draw(temperature=0.0))  # the checkpoint's greedy stop decision is to go on
_TEXT_ROWS = 60
_FRAMES = 25
_TAKES = 8


@dataclass(frozen=True, slots=True)
class Continuation:
    """First-frame times in seconds of a continuation with ``seconds`` of audio behind it."""

    seconds: int
    rows: int
    cold: float
    warm: float
    other_salt: float


@dataclass(frozen=True, slots=True)
class Takes:
    """Eight takes of one text: seconds to the end, first-frame seconds of the last, and the most slots in use."""

    seconds: float
    first_frame: float
    slots: int


def bench_cache(sizes: Sizes, behind: list[int], repeats: int, tree_rows: list[int]) -> None:
    """Print the tables: continuations, takes of one text, tree operations, memory a cached row."""
    console = Console()
    with tempfile.TemporaryDirectory() as directory:
        voice = load_voice(write(Path(directory) / "random", sizes))
        console.print(
            f"{machine()}, {torch.get_num_threads()} threads; random checkpoint of "
            f"{voice.model.parameters / 1e6:.0f} million parameters; median of {repeats} runs"
        )
        console.print(_continuation_table([measure_continuation(voice, sizes, s, repeats) for s in behind]))
        console.print(_takes_table(measure_takes(voice, sizes, share=True), measure_takes(voice, sizes, share=False)))
    tree_table(tree_figures(tree_rows), console)


def measure_continuation(voice: Voice, sizes: Sizes, seconds: int, repeats: int) -> Continuation:
    """Time the first frame after ``seconds`` of audio: never seen, seen, and seen under another salt."""
    frames = round(seconds * FRAME_RATE)
    engine = Engine(voice, pool_rows=3 * (repeats + 1) * (_TEXT_ROWS + frames + 1))

    def first(rows: Tensor, seed: int, salt: str = "") -> float:
        made = engine.generate(rows, sampling=_ENDLESS, seed=seed, max_frames=1, salt=salt)
        assert made.first_frame_seconds is not None
        return made.first_frame_seconds

    runs = []
    for run in range(repeats + 1):
        rows = _continuation(voice.model, sizes, frames, run)
        runs.append((first(rows, 1), first(rows, 2), first(rows, 2, salt="another")))
    cold, warm, other = (median(times) for times in zip(*runs[1:], strict=True))
    return Continuation(seconds, _TEXT_ROWS + frames, cold, warm, other)


def measure_takes(voice: Voice, sizes: Sizes, *, share: bool) -> Takes:
    """Run eight takes of one text with a 5-second reference in its prompt, with what they share or without."""
    rows = _continuation(voice.model, sizes, round(5 * FRAME_RATE), seed=99)
    engine = Engine(voice, pool_rows=2 * _TAKES * (len(rows) + _FRAMES), cache=share)
    start = perf_counter()
    requests = [engine.submit(rows, sampling=_ENDLESS, seed=seed, max_frames=_FRAMES) for seed in range(_TAKES)]
    most = _most_slots(engine, requests)
    seconds = perf_counter() - start
    last = max(request.result().first_frame_seconds or 0.0 for request in requests)
    return Takes(seconds, last, most)


def _most_slots(engine: Engine, requests: list[Request]) -> int:
    most = 0
    while any(request.state is not State.FINISHED for request in requests):
        engine.step()
        most = max(most, engine.pool_rows - engine.occupancy().free)
    return most


def _continuation(model: MossLocal, sizes: Sizes, frames: int, seed: int) -> Tensor:
    """A prompt of text rows and audio behind: rows int64 [_TEXT_ROWS + frames, C]."""
    generator = torch.Generator().manual_seed(seed)
    audio = torch.full((frames, model.layout.columns), model.config.assistant_slot_id)
    audio[:, 1:] = torch.randint(0, sizes.codes, (frames, sizes.codebooks), generator=generator)
    return torch.cat((prompt(sizes, _TEXT_ROWS, seed), audio))


def _continuation_table(figures: list[Continuation]) -> Table:
    table = Table(
        "audio behind", "rows", "cold", "warm", "warm to cold", "seen under another salt", title="first frame"
    )
    for row in figures:
        table.add_row(
            f"{row.seconds} s",
            str(row.rows),
            _milliseconds(row.cold),
            _milliseconds(row.warm),
            f"{row.warm / row.cold:.3f}",
            _milliseconds(row.other_salt),
        )
    return table


def _takes_table(together: Takes, apart: Takes) -> Table:
    table = Table("", "time", "last first frame", "most slots", title=f"{_TAKES} takes of one text, {_FRAMES} frames")
    for name, row in (("takes that share a prompt", together), ("separate requests", apart)):
        table.add_row(name, f"{row.seconds:.2f} s", _milliseconds(row.first_frame), str(row.slots))
    ratios = [
        (together.seconds, apart.seconds),
        (together.first_frame, apart.first_frame),
        (together.slots, apart.slots),
    ]
    table.add_row("the first to the second", *(f"{shared / alone:.2f}" for shared, alone in ratios))
    return table


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"
