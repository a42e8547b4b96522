"""`voxradix bench step`: what a decode step costs, eager, replayed and with lookahead, beside its bare products."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from voxradix.cli.bench import machine
from voxradix.engine import Engine
from voxradix.engine.graph import PATIENCE
from voxradix.keys import RowPublisher
from voxradix.models.moss_local import MossLocal
from voxradix.models.moss_local.linear import Linear
from voxradix.models.moss_local.random_checkpoint import Sizes, prompt, write
from voxradix.sampling import Draw, Sampling
from voxradix.voice import Voice, load_voice

_ENDLESS = Sampling(stop=Draw(temperature=0.0))  # the checkpoint's greedy stop decision is to go on
_PROMPT_ROWS = 129
"""The steps that are timed look at 129 to 256 rows, and so are of one shape."""

_RUN = 4
"""Steps timed together."""

_WARM_UP = PATIENCE["cpu"] + 6


@dataclass(frozen=True, slots=True)
class StepFigures:
    """What a decode step of ``batch`` requests takes, in seconds, the medians of runs that are interleaved, but
    for those with lookahead.

    Attributes:
        batch: Requests.
        eager: Operator by operator.
        graph: Replayed.
        lookahead: Replayed, the next step launched before this one is known.
        floor: Its matrix products alone, on the same weights in the same order.
        host: Scheduler and tree, in the replayed step.
        key: Row, key and packed words of the batch.
        operators: torch operators of an eager step.
    """

    batch: int
    eager: float
    graph: float
    lookahead: float
    floor: float
    host: float
    key: float
    operators: int


def bench_step(sizes: Sizes, batches: list[int], repeats: int) -> None:
    """Print a table of step times for each batch."""
    console = Console()
    with tempfile.TemporaryDirectory() as directory:
        voice = load_voice(write(Path(directory) / "random", sizes))
        console.print(
            f"{machine()}, {torch.get_num_threads()} threads; random checkpoint of "
            f"{voice.model.parameters / 1e6:.0f} million parameters; median of {repeats} runs of {_RUN} steps"
        )
        figures = [measure_step(voice, sizes, batch, repeats) for batch in batches]
    console.print(_table(figures))


def measure_step(voice: Voice, sizes: Sizes, batch: int, repeats: int) -> StepFigures:
    """Time steps of ``batch`` requests, one of each kind after the other, ``repeats`` times."""
    engines = {
        "eager": _running(voice, sizes, batch, graphs=False, lookahead=False),
        "graph": _running(voice, sizes, batch, graphs=True, lookahead=False),
    }
    with _products() as products, _operators() as operators:
        engines["eager"].step()
    runs: dict[str, Callable[[], object]] = {name: partial(_steps, engine) for name, engine in engines.items()}
    runs["floor"] = lambda: [linear(x) for _ in range(_RUN) for linear, x in products]
    times: dict[str, list[float]] = {name: [] for name in [*runs, "host"]}
    with torch.inference_mode():
        for _ in range(repeats):
            for name, run in runs.items():
                with _host_time(engines["graph"]) as host:
                    times[name].append(_timed(run) / _RUN)
                if name == "graph":
                    times["host"].append(sum(host) / _RUN)
        ahead = _running(voice, sizes, batch, graphs=True, lookahead=True)  # its threads would disturb the others
        times["lookahead"] = [_timed(partial(_steps, ahead)) / _RUN for _ in range(repeats)]
    middle = {name: median(each) for name, each in times.items()}
    return StepFigures(batch=batch, key=_key_time(voice.model, batch), operators=len(operators), **middle)


def _steps(engine: Engine) -> None:
    """Some steps, and with lookahead as many launches, waited for."""
    for _ in range(_RUN):
        engine.step()
    engine._loop._runner.settle()


def _running(voice: Voice, sizes: Sizes, batch: int, *, graphs: bool, lookahead: bool) -> Engine:
    """An engine whose requests all decode, and whose step is captured if it is to be."""
    frames = 256 - _PROMPT_ROWS
    pool = batch * (_PROMPT_ROWS + frames)
    engine = Engine(voice, pool_rows=pool, max_batch=batch, chunk_rows=pool, graphs=graphs, lookahead=lookahead)
    prompts = [prompt(sizes, _PROMPT_ROWS, seed) for seed in range(batch)]
    requests = [
        engine.submit(rows, sampling=_ENDLESS, seed=seed, max_frames=frames) for seed, rows in enumerate(prompts)
    ]
    while len(requests[-1].frames) < _WARM_UP:
        engine.step()
    return engine


@contextmanager
def _products() -> Iterator[list[tuple[Linear, Tensor]]]:
    """The matrix products made in the block, with inputs of their own."""
    made: list[tuple[Linear, Tensor]] = []
    call = Linear.__call__

    def noted(linear: Linear, x: Tensor) -> Tensor:
        made.append((linear, torch.ones(x.shape)))
        return call(linear, x)

    with patch.object(Linear, "__call__", noted):
        yield made


class _Counting(TorchDispatchMode):
    def __init__(self, names: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names = names

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._names.append(str(func))
        return func(*args, **(kwargs or {}))


@contextmanager
def _operators() -> Iterator[list[str]]:
    """The torch operators launched in the block."""
    names: list[str] = []
    with _Counting(names):
        yield names


@contextmanager
def _host_time(engine: Engine) -> Iterator[list[float]]:
    """Seconds spent planning and resolving in the block."""
    spent: list[float] = []

    def timed(call: Callable[..., Any]) -> Callable[..., Any]:
        def timing(*arguments: Any) -> Any:
            start = perf_counter()
            try:
                return call(*arguments)
            finally:
                spent.append(perf_counter() - start)

        return timing

    scheduler, loop = engine._scheduler, engine._loop
    with (
        patch.object(scheduler, "plan", timed(scheduler.plan)),
        patch.object(loop, "_resolve", timed(loop._resolve)),
    ):
        yield spent


def _key_time(model: MossLocal, batch: int) -> float:
    publish = RowPublisher(model.layout, model.config.assistant_slot_id, device=model.device)
    stop, codes = torch.zeros(batch, dtype=torch.bool), torch.zeros(batch, model.layout.codebooks, dtype=torch.int64)
    with torch.inference_mode():
        return median(_timed(lambda: publish(stop, codes)) for _ in range(200))


def _timed(run: Callable[[], object]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def _table(figures: list[StepFigures]) -> Table:
    table = Table(
        "requests",
        "eager",
        "graph",
        "with lookahead",
        "bare products",
        "graph to these",
        "key, tree, scheduler",
        "operators",
        title="milliseconds a step",
    )
    for row in figures:
        table.add_row(
            str(row.batch),
            *(f"{1000 * seconds:.2f}" for seconds in (row.eager, row.graph, row.lookahead, row.floor)),
            f"{row.graph / row.floor:.2f}",
            f"{(row.host + row.key) / row.graph:.1%}",
            str(row.operators),
        )
    return table
