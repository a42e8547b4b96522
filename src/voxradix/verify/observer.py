"""An observer: what requests show while an engine serves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from voxradix.engine import Engine, Finish, Request, State

_MOST_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class Observed:
    """What one request came to.

    Attributes:
        rows: int64 [F, C], its frames.
        ids: int64 [F], the ids that were published for it.
        kv: float32 [R, W], one layer's keys and values of its first R rows, each as last seen.
    """

    rows: Tensor
    ids: Tensor
    kv: Tensor


class Observer:
    """Steps an engine and keeps what some of its requests show; after every step no row of the pool may be lost."""

    def __init__(self, engine: Engine, requests: Sequence[Request]) -> None:
        """Nothing is seen yet of ``requests``, which wait in ``engine``."""
        self._engine = engine
        self._requests = requests
        self._kv: dict[Request, Tensor] = {}
        self._steps = 0

    @property
    def done(self) -> bool:
        """Whether all the requests have ended."""
        return all(request.state is State.FINISHED for request in self._requests)

    def step(self) -> list[Request]:
        """Step once; the observed requests that gained a frame.

        Raises:
            AssertionError: When a row is lost, a request fails, or nothing comes of the stepping.
        """
        report = self._engine.step()
        self._steps += 1
        assert report is not None, "the engine has nothing to do, but requests have not ended"
        assert self._steps < _MOST_STEPS, f"requests have not ended after {_MOST_STEPS} steps"
        self._engine.check()
        where = self._engine.occupancy()
        assert where.free + where.cached + where.held == self._engine.pool_rows, f"the pool does not add up: {where}"
        for number, request in enumerate(self._requests):
            assert request.finish is not Finish.ERROR, f"request {number} failed: {request.error}"
            if request.written:
                now = _written(self._engine, request)
                before = self._kv.get(request, now)
                self._kv[request] = torch.cat((now, before[len(now) :]))  # a resumed request may end in mid-prefill
        return [request for request in report.gained if request in self._requests]

    def observed(self, request: Request) -> Observed:
        """What a request that has ended has shown."""
        ids = request.chain.keys[request.prompt.shape[0] :]  # a retraction may settle a step that no report tells of
        return Observed(request.result().rows, torch.tensor(ids.tolist()), self._kv.get(request, torch.empty(0, 0)))


def _written(engine: Engine, request: Request) -> Tensor:
    """The last layer's keys and values of a request's written rows: it has all layers below in it."""
    kv = engine._loop._runner._kv
    slots = request.slots[: request.written]
    return torch.cat([kv.keys[-1][:, slots], kv.values[-1][:, slots]]).transpose(0, 1).flatten(1)
