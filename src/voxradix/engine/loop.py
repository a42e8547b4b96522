"""The step loop: plan, launch, resolve; and with lookahead, launch once more before resolving."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident

import torch
from torch import Tensor

from voxradix.engine.decode import NOT_FINITE
from voxradix.engine.request import Finish, Request, State
from voxradix.engine.runner import NOT_FINITE_REASON, Flight, StepOutput, StepRunner
from voxradix.engine.scheduler import Plan, Scheduler
from voxradix.rows import RowLayout


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a step did.

    Attributes:
        requests: The requests that decoded a frame or stopped, one a batch row.
        next_ids: int64 [B], the row keys published for them: each is appended to its request's chain, except
            the end id, which ends the request.
        gained: The requests that gained a frame: ``request.frames[-1]``.
        finished: Requests that ended in this step, for whatever reason.
    """

    requests: tuple[Request, ...]
    next_ids: Tensor
    gained: tuple[Request, ...]
    finished: tuple[Request, ...]


class StepLoop:
    """Brings the requests of a scheduler on, step by step."""

    def __init__(self, scheduler: Scheduler, runner: StepRunner, layout: RowLayout, *, lookahead: bool) -> None:
        """A loop with nothing in flight."""
        self._scheduler = scheduler
        self._runner = runner
        self._layout = layout
        self._lookahead = lookahead
        self._flight: Flight | None = None
        self._reports: deque[StepReport] = deque()
        self._stepping = False
        self._thread = get_ident()
        self._leaving: deque[Request] = deque()

    def step(self) -> StepReport | None:
        """Advance every active request by a chunk or a frame (see `Engine.step`)."""
        if self._reports:
            return self._reports.popleft()
        self._thread, self._stepping = get_ident(), True
        try:
            return self._step()
        finally:
            self._stepping = False
            while self._leaving:
                self.leave(self._leaving.popleft())

    def leave(self, request: Request) -> None:
        """End a request that its caller does not want any more, once what is in flight has landed.

        In the middle of a step, or in another thread than its own (a stream that is collected as garbage may be
        closed anywhere), the request is ended after that step.
        """
        if self._stepping or get_ident() != self._thread:
            self._leaving.append(request)
        else:
            self.drain()
            self._scheduler.leave(request)

    def _step(self) -> StepReport | None:
        if self._flight is None:
            self._runner.settle()  # a step that was broken off may still be running
            plan = self._scheduler.plan()
            if not plan:
                return None
            with self._ending_on_failure(plan):
                self._flight = self._runner.launch(plan)
        with self._ending_on_failure(self._flight.plan):
            ahead = self._launch_ahead(self._flight.plan)
            landed, self._flight = self._flight, ahead
            report = self._resolve(landed.land())
            if ahead is not None and all(request.state is State.FINISHED for request in ahead.plan.decode):
                self._flight = None
                ahead.land()
            return report

    def _launch_ahead(self, plan: Plan) -> Flight | None:
        """Launch the step after the one in flight, if it is known which that is."""
        ahead = self._scheduler.plan_ahead(plan) if self._lookahead else None
        return None if ahead is None else self._runner.launch(ahead)

    @contextmanager
    def _ending_on_failure(self, plan: Plan) -> Iterator[None]:
        """End the requests of a plan, and forget what is in flight for them, when anything is raised."""
        try:
            yield
        except BaseException as error:
            self._flight = None
            for request in [*(chunk.request for chunk in plan.prefill), *plan.decode]:
                if request.state is not State.FINISHED:
                    self._scheduler.finish(request, Finish.ERROR, f"the step was broken off by {type(error).__name__}")
            raise

    def drain(self) -> None:
        """Let what is in flight land before a request leaves; `step` reports it next."""
        if self._flight is not None:
            with self._ending_on_failure(self._flight.plan):
                landed, self._flight = self._flight, None
                self._reports.append(self._resolve(landed.land()))

    @torch.inference_mode(False)
    def _resolve(self, output: StepOutput) -> StepReport:
        """Take a step's output over: end what failed, offer what was written, append what was made.

        A request that ended while the step was in flight has run on: what the step gave for it is nobody's.
        """
        wanted = [index for index, request in enumerate(output.requests) if request.state is not State.FINISHED]
        requests = [output.requests[index] for index in wanted]
        rows, packed, next_ids = (part[wanted].clone() for part in (output.rows, output.packed, output.next_ids))
        gained: list[Request] = []
        finished: list[Request] = []

        def end(request: Request, finish: Finish, error: str | None = None) -> None:
            if request.state is not State.FINISHED:
                self._scheduler.finish(request, finish, error)
                finished.append(request)

        for request, reason in output.failures.items():
            end(request, Finish.ERROR, reason)
        published = dict(zip(requests, next_ids.tolist(), strict=True))
        for request, written in output.written.items():
            key = published.get(request, 0)
            if not 0 <= key < self._layout.bounds[0]:
                end(request, Finish.ERROR, _outside(key))
            elif request.state is not State.FINISHED:
                self._scheduler.wrote(request, written)
        for index, (request, key) in enumerate(published.items()):
            if request.state is State.FINISHED:
                continue
            if key == self._layout.end_key:
                end(request, Finish.AUDIO_END)
                continue
            request.append(rows[index], packed[index].numpy().tobytes(), key)
            gained.append(request)
            if len(request.frames) >= request.max_frames:
                end(request, Finish.LENGTH)
        return StepReport(tuple(requests), next_ids, tuple(gained), tuple(finished))

    def check(self) -> None:
        """Raise `AssertionError` where a seat is lost or has lost step with its request. For tests."""
        if self._flight is None:  # else the seats are a step ahead
            self._runner.check()


def _outside(key: int) -> str:
    if key == NOT_FINITE:
        return NOT_FINITE_REASON
    return f"the step published id {key}, outside the vocabulary"
