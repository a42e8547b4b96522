"""The host's random states: noticed when they are used, and left as they were."""

from __future__ import annotations

import os
import random
import sys
from types import FrameType, TracebackType
from typing import Any

import torch

from voxradix.capture.finding import Finding, Kind
from voxradix.capture.line import Line, user_line

_SEED = 20
"""Every watched call starts from the same states, so that two of them agree unless something else changed."""


class HostRandom:
    """Within it, Python's and numpy's random numbers are noticed; after it, all states are as before.

    Noticed are the module functions of ``random``, any ``random.Random``, ``os.urandom`` and numpy's global
    state. A numpy generator of the callable's own is seen only through the results it changes.
    """

    def __init__(self, line: Line | None = None) -> None:
        """Only seed, or with a ``line`` notice too; it stands for a use of numpy's state that has none."""
        self.findings: dict[Finding, None] = {}
        self._line = line

    def __enter__(self) -> HostRandom:
        """Seed every state; start to notice."""
        self._states = random.getstate(), _numpy_state(), torch.get_rng_state()
        random.seed(_SEED)
        torch.default_generator.manual_seed(_SEED)
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed(_SEED)
        self._numpy = _numpy_state()
        self._profile = sys.getprofile()
        if self._line is not None:
            sys.setprofile(self._notice)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Put everything back."""
        sys.setprofile(self._profile)
        python, numpy, torch_state = self._states
        used = repr(self._numpy) != repr(_numpy_state())
        if used and self._line is not None and not any("numpy" in f.operator for f in self.findings):
            self._find("numpy.random", self._line)
        random.setstate(python)
        torch.set_rng_state(torch_state)
        if numpy is not None:
            sys.modules["numpy"].random.set_state(numpy)

    def _notice(self, frame: FrameType, event: str, called: Any) -> None:
        if event != "c_call":
            return
        owner = getattr(called, "__self__", None)
        if isinstance(owner, random.Random):
            self._find(f"random.{called.__name__}", user_line(frame))
        elif called is os.urandom:
            self._find("os.urandom", user_line(frame))
        elif type(owner).__module__.startswith("numpy.random"):
            self._find(f"numpy.random.{called.__name__}", user_line(frame))

    def _find(self, operator: str, line: Line) -> None:
        detail = "a replay repeats the numbers of the capture"
        self.findings[Finding(Kind.HOST_RANDOM, operator, str(line), detail)] = None


def _numpy_state() -> Any:
    numpy = sys.modules.get("numpy")
    return None if numpy is None else numpy.random.get_state()
