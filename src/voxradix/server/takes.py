"""The takes that are kept, each for the caller it was made for."""

from __future__ import annotations

import secrets
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from functools import reduce

from voxradix.engine import Take, Totals
from voxradix.server.refusal import Refusal


def new_id() -> str:
    """A name for a take that nobody can guess."""
    return f"take_{secrets.token_hex(16)}"


@dataclass(frozen=True, slots=True, eq=False)
class KeptTake:
    """A finished take.

    Attributes:
        id: Its name.
        owner: The salt of the caller it belongs to.
        take: The take.
        kept: How many of its first frames existed before it.
        unknown: Words in it that the voice was not trained to say.
        created: When it was finished, in seconds since 1970.
    """

    id: str
    owner: str
    take: Take
    kept: int
    unknown: tuple[str, ...]
    created: int = field(default_factory=lambda: int(time.time()))

    def about(self) -> dict[str, object]:
        """What it is, without its codes."""
        take = self.take
        first = take.first_frame_seconds
        return {
            "id": self.id,
            "object": "take",
            "created": self.created,
            "voice": take.voice,
            "model": take.voice,
            "text": take.text,
            "seed": take.seed,
            "frames": take.frames,
            "kept_frames": self.kept,
            "seconds": take.seconds,
            "frame_rate": take.frame_rate,
            "finish": take.finish,
            "pieces": [{"text": p.text, "frames": len(p.rows), "end": p.end.value} for p in take.pieces],
            "unsaid": list(take.unsaid),
            "unknown": list(self.unknown),
            "prompt_rows": take.prompt_rows,
            "reused_prompt_rows": take.reused_prompt_rows,
            "reused_generated_rows": take.reused_generated_rows,
            "recomputed_rows": take.recomputed_rows,
            "retractions": sum(result.retractions for result in take.results),
            "first_frame_ms": None if first is None else round(1000 * first, 2),
        }


class TakeShelf:
    """Keeps takes up to a number of takes and of frames.

    Room is made by whoever holds most of it: that owner's least recently used take goes.
    """

    def __init__(self, most_takes: int, most_frames: int) -> None:
        """An empty shelf."""
        self._most_takes = most_takes
        self._most_frames = most_frames
        self._takes: OrderedDict[str, KeptTake] = OrderedDict()
        self._count: Counter[str] = Counter()
        self._frames: Counter[str] = Counter()
        self._sums: dict[str, Totals] = {}

    def __len__(self) -> int:
        """How many takes are kept."""
        return len(self._takes)

    def sums(self, owner: str) -> Totals:
        """Sums over the requests of all takes that were ever kept for an owner."""
        return self._sums.get(owner, Totals())

    def keep(self, kept: KeptTake) -> None:
        """Keep a take; others go to make room, and it goes itself when it is too long for the shelf."""
        self._sums[kept.owner] = reduce(Totals.plus, kept.take.results, self.sums(kept.owner))
        self._takes[kept.id] = kept
        self._count[kept.owner] += 1
        self._frames[kept.owner] += kept.take.frames
        while len(self._takes) > self._most_takes or self._frames.total() > self._most_frames:
            largest = max(self._count, key=self._share)
            self._remove(next(each for each in self._takes.values() if each.owner == largest))

    def _share(self, owner: str) -> float:
        return max(self._count[owner] / max(self._most_takes, 1), self._frames[owner] / max(self._most_frames, 1))

    def _remove(self, kept: KeptTake) -> None:
        del self._takes[kept.id]
        self._count[kept.owner] -= 1
        self._frames[kept.owner] -= kept.take.frames

    def get(self, name: str, owner: str) -> KeptTake:
        """A take of the caller's own. Raises `Refusal` (404), the same for a foreign take and for none."""
        kept = self._takes.get(name)
        if kept is None or kept.owner != owner:
            raise Refusal(
                404,
                f"there is no take {name[:64]!a}; takes are kept until room is needed, so it may have gone",
                param="take",
                code="take_not_found",
            )
        self._takes.move_to_end(name)
        return kept

    def forget(self, name: str, owner: str) -> None:
        """Forget a take of the caller's own."""
        self._remove(self.get(name, owner))
