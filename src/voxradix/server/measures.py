"""Measures: what the server counts and times, for Prometheus and for the page's corner."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from time import monotonic

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from voxradix.server.desk import Snapshot

_RECENT = 512
_FRAME = (0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28)
_FIRST = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Measures:
    """The counters and timers of one server."""

    def __init__(self) -> None:
        """All at zero."""
        self.registry = CollectorRegistry()
        self.started = monotonic()
        self.refused_count = 0
        self._frames: deque[float] = deque(maxlen=_RECENT)
        self._firsts: deque[float] = deque(maxlen=_RECENT)
        self._requests: deque[float] = deque(maxlen=32)
        self._frame = Histogram(
            "voxradix_frame_seconds", "Time of one engine step.", buckets=_FRAME, registry=self.registry
        )
        self._first = Histogram(
            "voxradix_first_frame_seconds",
            "From a request's submission to its first frame.",
            buckets=_FIRST,
            registry=self.registry,
        )
        self._refused = Counter(
            "voxradix_refused_requests", "Requests answered with an error.", ["status"], registry=self.registry
        )

    def step(self, seconds: float) -> None:
        """A step took so long. Called in the engine's thread."""
        self._frames.append(seconds)
        self._frame.observe(seconds)

    def first_frame(self, seconds: float) -> None:
        """A request had its first frame after so long."""
        self._firsts.append(seconds)
        self._first.observe(seconds)

    def spoken(self, seconds: float) -> None:
        """A request was spoken in so long."""
        self._requests.append(seconds)

    def refused(self, status: int) -> None:
        """A request was answered with an error."""
        self.refused_count += 1
        self._refused.labels(str(status)).inc()

    def request_seconds(self) -> float:
        """How long recent requests took, on average; 1 before the first."""
        return sum(self._requests) / len(self._requests) if self._requests else 1.0

    def first_frame_ms(self) -> dict[str, float] | None:
        """Percentiles over recent requests."""
        return _percentiles(self._firsts)

    def frame_ms(self) -> dict[str, float] | None:
        """Percentiles over recent steps."""
        return _percentiles(self._frames)

    def watch(self, snapshot: Callable[[], Snapshot], takes: Callable[[], int]) -> None:
        """Tell, with the rest, what the engine and the kept takes are like when somebody asks."""
        self.registry.register(_Engine(snapshot, takes))


class _Engine(Collector):
    def __init__(self, snapshot: Callable[[], Snapshot], takes: Callable[[], int]) -> None:
        self._snapshot = snapshot
        self._takes = takes

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        now = self._snapshot()
        yield GaugeMetricFamily("voxradix_waiting_requests", "Requests that wait.", now.waiting)
        yield GaugeMetricFamily("voxradix_running_requests", "Requests prefilled or decoding.", now.running)
        yield GaugeMetricFamily("voxradix_takes", "Finished takes that are kept.", self._takes())
        rows = GaugeMetricFamily("voxradix_rows", "Rows of the pool by state.", labels=["state"])
        for state in ("free", "cached", "held"):
            rows.add_metric([state], getattr(now.occupancy, state))
        yield rows
        totals = now.totals
        ended = CounterMetricFamily("voxradix_requests", "Requests that have ended.", labels=["finish"])
        for finish in ("audio_end", "length", "aborted", "error"):
            ended.add_metric([finish], getattr(totals, finish))
        yield ended
        reused = CounterMetricFamily("voxradix_reused_rows", "Prompt rows found in the cache.", labels=["kind"])
        reused.add_metric(["prompt"], totals.reused_prompt_rows)
        reused.add_metric(["generated"], totals.reused_generated_rows)
        yield reused
        for name, what in (
            ("frames", "Frames generated."),
            ("prompt_rows", "Rows of prompts."),
            ("recomputed_rows", "Rows lost to retractions and computed again."),
            ("retractions", "How often a request gave its slots back."),
        ):
            yield CounterMetricFamily(f"voxradix_{name}", f"{what} Of ended requests.", getattr(totals, name))


def _percentiles(seconds: Iterable[float]) -> dict[str, float] | None:
    ordered = sorted(seconds)
    if not ordered:
        return None
    return {f"p{part}": round(1000 * ordered[(len(ordered) - 1) * part // 100], 2) for part in (50, 99)}
