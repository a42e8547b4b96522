"""The engine: requests, their scheduler, the step runner, and the face that callers see."""

from voxradix.engine.engine import Engine, StepReport
from voxradix.engine.request import Finish, Request, Result, State
from voxradix.engine.scheduler import Occupancy

__all__ = ["Engine", "Finish", "Occupancy", "Request", "Result", "State", "StepReport"]
