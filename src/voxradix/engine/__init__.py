"""The engine: requests, their scheduler, the step runner, takes, and the face that callers see."""

from voxradix.engine.engine import Engine
from voxradix.engine.loop import StepReport
from voxradix.engine.request import Finish, Request, Result, State
from voxradix.engine.scheduler import Occupancy
from voxradix.engine.script import Script, script
from voxradix.engine.speaking import Speaking, next_seed
from voxradix.engine.take import Branch, Take
from voxradix.engine.totals import Totals

__all__ = [
    "Branch",
    "Engine",
    "Finish",
    "Occupancy",
    "Request",
    "Result",
    "Script",
    "Speaking",
    "State",
    "StepReport",
    "Take",
    "Totals",
    "next_seed",
    "script",
]
