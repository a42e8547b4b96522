"""Capture: whether a callable could be captured in a CUDA graph, and its replay on static buffers on the CPU.

A package of its own, with torch as its only need: `check` reports, without a GPU, everything that would break a
capture; `record` keeps a call's operators and replays them as a graph would.
"""

from voxradix.capture.checker import check
from voxradix.capture.finding import Finding, Kind, Report
from voxradix.capture.recorder import Recording, record

__all__ = ["Finding", "Kind", "Recording", "Report", "check", "record"]
