"""Strangers: requests that join an engine and leave it while others are looked at."""

from __future__ import annotations

from itertools import cycle

from voxradix.engine import Engine, Request, State
from voxradix.verify.axes import Way
from voxradix.verify.case import Case

_FIRST = 100
"""Strangers' numbers begin here: no case that is looked at has one of them."""


class Strangers:
    """Up to three at a time, of all ways; every second one is aborted on its way."""

    def __init__(self, engine: Engine) -> None:
        """Nobody has come yet."""
        self._engine = engine
        self._ways = cycle(Way)
        self._steps = 0
        self._come: list[Request] = []

    def come_and_go(self) -> None:
        """What happens between two steps: one comes, or the newest leaves, or nothing."""
        self._steps += 1
        present = [request for request in self._come if request.state is not State.FINISHED]
        if self._steps % 4 == 3 and present:
            self._engine.abort(present[-1])
        elif self._steps % 2 and len(present) < 3:
            number = _FIRST + len(self._come)
            self._come.append(Case(number, 3 + number % 5, next(self._ways)).submit(self._engine))

    def leave(self) -> None:
        """All leave."""
        for request in self._come:
            self._engine.abort(request)
