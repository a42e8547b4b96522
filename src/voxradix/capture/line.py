"""Lines of the user's code: the innermost frame that is neither torch's nor the standard library's."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import NamedTuple

import torch

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_STANDARD = sysconfig.get_path("stdlib") + os.sep
_SITE = tuple(sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib"))
_LIBRARIES = (_OURS, _TORCH, *(site + "numpy" + os.sep for site in _SITE))


class Line(NamedTuple):
    """A line of source."""

    file: str
    number: int

    def __str__(self) -> str:
        """``file:line: source text``, the file relative to the working directory where it lies below it."""
        relative = os.path.relpath(self.file) if os.path.isabs(self.file) else self.file
        shown = self.file if relative.startswith(os.pardir) else relative
        return f"{shown}:{self.number}: {linecache.getline(self.file, self.number).strip()}"


def _is_users(file: str) -> bool:
    if file.startswith(_LIBRARIES) or file.startswith("<frozen"):
        return False
    return not file.startswith(_STANDARD) or file.startswith(_SITE)


def user_line(frame: FrameType | None = None) -> Line:
    """The user's line that is running in ``frame`` (by default the caller's), or in the nearest frame outside."""
    frame = frame or sys._getframe(1)
    while frame is not None:
        if _is_users(frame.f_code.co_filename):
            return Line(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return Line("<unknown>", 0)


def raising_line(traceback: TracebackType | None) -> Line:
    """The user's line that an exception came through last."""
    line = Line("<unknown>", 0)
    while traceback is not None:
        if _is_users(traceback.tb_frame.f_code.co_filename):
            line = Line(traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    return line


def defining_line(fn: Callable[..., object]) -> Line:
    """Where a callable is defined, as far as Python knows."""
    code = getattr(fn, "__code__", None)
    if code is None:
        code = getattr(getattr(type(fn), "__call__", None), "__code__", None)  # noqa: B004 - of a callable object
    return Line(code.co_filename, code.co_firstlineno) if isinstance(code, CodeType) else Line("<unknown>", 0)
