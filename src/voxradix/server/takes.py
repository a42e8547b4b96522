"""The takes that are kept, each for the caller it was made for."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field

from voxradix.engine import Take
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
    """Keeps takes up to a number of takes and of frames; the least recently used ones go."""

    def __init__(self, most_takes: int, most_frames: int) -> None:
        """An empty shelf."""
        self._most_takes = most_takes
        self._most_frames = most_frames
        self._frames = 0
        self._takes: OrderedDict[str, KeptTake] = OrderedDict()

    def __len__(self) -> int:
        """How many takes are kept."""
        return len(self._takes)

    def keep(self, kept: KeptTake) -> None:
        """Keep a take; others go to make room, and it goes itself when it is too long for the shelf."""
        self._takes[kept.id] = kept
        self._frames += kept.take.frames
        while len(self._takes) > self._most_takes or self._frames > self._most_frames:
            _, gone = self._takes.popitem(last=False)
            self._frames -= gone.take.frames

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
        kept = self.get(name, owner)
        del self._takes[name]
        self._frames -= kept.take.frames
