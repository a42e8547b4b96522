"""A watch over one take under way: after every step, what is new about it."""

from __future__ import annotations

import torch
from torch import Tensor

from voxradix.engine import Request, Speaking
from voxradix.server.news import Begun, Ended, Failed, Frames, News, Recomputed
from voxradix.server.refusal import Refusal


class Watch:
    """Brings one `Speaking` on and tells what became of it.

    Attributes:
        speaking: What it watches.
        over: Whether the take has ended.
    """

    def __init__(self, speaking: Speaking, seed: int) -> None:
        """A watch over a take that has just begun, with its seed."""
        self.speaking = speaking
        self.over = False
        self._seed = seed
        self._begun = False
        self._kept = sum(len(piece.rows) for piece in speaking.script.behind) + len(speaking.script.kept)
        self._request = speaking.request
        self._recomputed = 0

    def look(self) -> list[News]:
        """What is new after a step."""
        news: list[News] = []
        request, known = self.speaking.request, len(self.speaking.frames)
        again = self._computed_again(request, self._kept + known)
        made: list[Tensor] = []
        self.over = not self.speaking.proceed(made.append)
        failed = self.over and self.speaking.take().finish == "error"
        if not self._begun and (made or (self.over and not failed)):
            self._begun = True
            news.append(self._beginning(request))
        if again is not None:
            news.append(again)
        if made:
            news.append(Frames(self._kept + known, torch.stack(made)[:, 1:]))
        if failed:
            news.append(Failed(Refusal(500, f"the request failed: {self.speaking.take().error}", code="failed")))
        elif self.over:
            unknown = tuple(dict.fromkeys(self.speaking.script.unknown))
            news.append(Ended(self.speaking.take(), self._kept, unknown))
        return news

    def _beginning(self, request: Request) -> Begun:
        script = self.speaking.script
        kept = torch.cat([*(piece.rows for piece in script.behind), script.kept])
        first = request.first_frame
        return Begun(
            seed=self._seed,
            texts=script.texts,
            kept=kept[:, 1:],
            prompt_rows=request.prompt.shape[0],
            reused_prompt_rows=request.reused_prompt,
            reused_generated_rows=request.reused_generated,
            first_frame_seconds=None if first is None else first - request.submitted,
        )

    def _computed_again(self, request: Request, known: int) -> Recomputed | None:
        """The frames, of ``known`` ones, whose rows were computed again in the last step."""
        if request is not self._request:
            self._request, self._recomputed = request, 0
        count, self._recomputed = request.recomputed - self._recomputed, request.recomputed
        if not count:
            return None
        behind = request.first_draw + len(request.frames) - request.rows  # frames of the take, less rows of the request
        end = behind + min(request.written or request.rows, request.computed)
        first, end = max(end - count, request.first_draw), min(end, known)
        return Recomputed(first, end - first) if first < end else None
