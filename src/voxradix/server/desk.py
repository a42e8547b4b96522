"""The desk: the one thread that owns the engine, and the queue by which others reach it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from time import perf_counter
from typing import TypeVar

from torch import Tensor

from voxradix.engine import Branch, Engine, Occupancy, Script, Take, Totals
from voxradix.errors import VoxradixError
from voxradix.models.moss_local import Details
from voxradix.sampling import Sampling
from voxradix.server.news import Failed, Mailbox, News
from voxradix.server.refusal import Refusal, engine_down
from voxradix.server.watch import Watch
from voxradix.voice import Voice

_T = TypeVar("_T")
_log = logging.getLogger("voxradix.server")


@dataclass(frozen=True, slots=True, eq=False)
class SpeechDetails:
    """What prompts say beside their texts, and the codes of recordings whose voice they take; None: as before."""

    details: Details | None = None
    references: tuple[Tensor, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """What is to be spoken: one script, as several takes with as many seeds from ``seed`` on."""

    script: Script
    after: Take | Branch | None
    sampling: Sampling
    seed: int
    max_frames: int | None
    salt: str
    details: SpeechDetails


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The engine as it was after its last step."""

    waiting: int
    running: int
    occupancy: Occupancy
    totals: Totals


class Desk:
    """Runs an engine in a thread of its own. Its methods may be called from any event loop; none waits for a step.

    Attributes:
        voice: The engine's voice.
        snapshot: Replaced after every step.
    """

    def __init__(self, make: Callable[[], Engine], on_step: Callable[[float], None] = lambda _: None) -> None:
        """Start the thread and make the engine in it; what ``make`` raises is raised here.

        ``on_step`` is called there with the seconds of every step.
        """
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._watches: dict[Mailbox, Watch] = {}
        self._on_step = on_step
        self._open = True
        self._alive = True
        made: Future[Engine] = Future()
        self._thread = Thread(target=self._run, args=(make, made), name="voxradix-engine", daemon=True)
        self._thread.start()
        self._engine = made.result()
        self.voice: Voice = self._engine.voice
        self.snapshot = self._snapshot()

    @property
    def alive(self) -> bool:
        """Whether the engine still serves."""
        return self._alive

    def begin(self, order: Order, mailboxes: Sequence[Mailbox]) -> None:
        """Speak an order once for each mailbox; all news goes there."""
        self._put(lambda: self._begin(order, mailboxes))

    def leave(self, mailboxes: Sequence[Mailbox]) -> None:
        """Forget takes whose reader has gone: their rows are given back before the next step."""
        self._put(lambda: self._leave(mailboxes))

    async def ask(self, question: Callable[[Engine], _T]) -> _T:
        """The answer to a question about the engine, asked between two steps."""
        answer: Future[_T] = Future()

        def job() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    if not self._alive:
                        raise engine_down()
                    answer.set_result(question(self._engine))
                except Exception as error:
                    answer.set_exception(error)

        self._put(job)
        return await asyncio.wrap_future(answer)

    def close(self) -> None:
        """End the thread, and what is still under way with it; returns when it has ended."""
        self._put(self._shut)
        self._thread.join()

    def _put(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)
        if not self._alive:  # the thread may have ended before it saw the job
            self._refuse_jobs()

    def _refuse_jobs(self) -> None:
        with suppress(Empty):
            while True:
                self._jobs.get_nowait()()

    def _shut(self) -> None:
        self._open = False

    def _run(self, make: Callable[[], Engine], made: Future[Engine]) -> None:
        try:
            engine = make()
        except BaseException as error:
            self._alive = False
            made.set_exception(error)
            return
        self._engine = engine
        made.set_result(engine)
        try:
            while self._open:
                self._turn(engine)
        except BaseException:
            _log.exception("the engine has failed")
        finally:
            self._alive = False
            self._post([(mailbox, [Failed(engine_down())]) for mailbox in self._watches])
            self._watches.clear()
            self._refuse_jobs()

    def _turn(self, engine: Engine) -> None:
        """Take the jobs that are there, waiting for one while nothing is under way; then step."""
        while not self._jobs.empty() or not self._watches:
            self._jobs.get()()
            if not self._open:
                return
        stood, started = True, perf_counter()
        try:
            stood = engine.step() is None
        except Exception as error:  # those it served have ended with an error; the others go on
            _log.exception("a step failed: %s", error)
        self._on_step(perf_counter() - started)
        told = [(mailbox, news) for mailbox, watch in self._watches.items() if (news := self._look(watch))]
        for mailbox, _ in told:
            if self._watches[mailbox].over:
                del self._watches[mailbox]
        self.snapshot = self._snapshot()
        self._post(told)
        if stood and not told:
            raise RuntimeError("requests are under way, and no step brings them on")

    def _look(self, watch: Watch) -> list[News]:
        """What is new of a take. Should its bookkeeping fail, it ends, and the others go on."""
        try:
            return watch.look()
        except Exception:
            _log.exception("a take failed")
            watch.over = True
            self._abort(watch)
            return [Failed(Refusal(500, "the take failed", code="failed"))]

    def _begin(self, order: Order, mailboxes: Sequence[Mailbox]) -> None:
        begun: dict[Mailbox, Watch] = {}
        try:
            if not self._alive:
                raise engine_down()
            for number, mailbox in enumerate(mailboxes):
                speaking = self._engine.begin(
                    order.script,
                    after=order.after,
                    sampling=order.sampling,
                    seed=order.seed,
                    max_frames=order.max_frames,
                    salt=order.salt,
                    details=order.details.details,
                    references=order.details.references,
                    number=number,
                )
                begun[mailbox] = Watch(speaking, order.seed + number)
        except Exception as error:
            for watch in begun.values():
                self._abort(watch)
            if isinstance(error, Refusal):
                refusal = error
            elif isinstance(error, VoxradixError):
                param = "input" if order.max_frames is None else "max_frames"
                refusal = Refusal(400, str(error), param=param)
            else:
                _log.exception("a request could not begin")
                refusal = Refusal(500, "the request could not begin", code="failed")
            self._post([(mailbox, [Failed(refusal)]) for mailbox in mailboxes])
        else:
            self._watches |= begun

    def _leave(self, mailboxes: Sequence[Mailbox]) -> None:
        for mailbox in mailboxes:
            watch = self._watches.pop(mailbox, None)
            if watch is not None:
                self._abort(watch)
        self.snapshot = self._snapshot()

    def _abort(self, watch: Watch) -> None:
        try:
            self._engine.abort(watch.speaking.request)
        except Exception as error:  # a step that was in flight failed; its requests have ended all the same
            _log.exception("a step failed: %s", error)

    def _snapshot(self) -> Snapshot:
        engine = self._engine
        return Snapshot(engine.waiting, engine.running, engine.occupancy(), engine.totals)

    def _post(self, told: Sequence[tuple[Mailbox, Sequence[News]]]) -> None:
        """Hand news to the event loops of their mailboxes, in one call for each loop."""
        for loop in {mailbox.loop for mailbox, _ in told}:
            here = [(mailbox, news) for mailbox, news in told if mailbox.loop is loop]
            with suppress(RuntimeError):  # the loop is closed: nobody reads any more
                loop.call_soon_threadsafe(_deliver, here)


def _deliver(told: Sequence[tuple[Mailbox, Sequence[News]]]) -> None:
    for mailbox, news in told:
        try:
            mailbox.put(news)
        except Exception:  # one take's news must not be the end of another's
            _log.exception("news could not be delivered")
