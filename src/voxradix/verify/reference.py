"""The reference: what a case comes to when nothing is in its way."""

from __future__ import annotations

from voxradix.engine import Engine
from voxradix.verify.case import Case
from voxradix.verify.observer import Observed, Observer
from voxradix.voice import Voice


class Reference:
    """Cases alone, cold, without a cache, in one prefill and eager steps, under the seed key; each computed once."""

    def __init__(self, voice: Voice) -> None:
        """Nothing is computed yet."""
        self._voice = voice
        self._known: dict[Case, Observed] = {}

    def of(self, case: Case) -> Observed:
        """What a case comes to."""
        if case not in self._known:
            engine = Engine(self._voice, pool_rows=128, cache=False, graphs=False, lookahead=False)
            request = case.submit(engine)
            observer = Observer(engine, [request])
            while not observer.done:
                observer.step()
            self._known[case] = observer.observed(request)
        return self._known[case]
