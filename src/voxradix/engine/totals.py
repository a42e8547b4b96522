"""The sums an engine keeps over all requests that have ended."""

from __future__ import annotations

from dataclasses import dataclass

from voxradix.engine.request import Finish, Result


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over finished requests, whatever they ended in.

    Attributes:
        requests: How many have ended.
        audio_end: Those the model ended.
        length: Those that spent their budget.
        aborted: Those the caller left.
        error: Those a failure ended.
        frames: Frames generated.
        prompt_rows: Rows of their prompts.
        reused_prompt_rows: Prompt rows found in the cache that had been computed as prompt rows.
        reused_generated_rows: Prompt rows found in the cache that had been generated.
        recomputed_rows: Rows lost to retractions and computed again.
        retractions: How often a request gave its slots back.
    """

    requests: int = 0
    audio_end: int = 0
    length: int = 0
    aborted: int = 0
    error: int = 0
    frames: int = 0
    prompt_rows: int = 0
    reused_prompt_rows: int = 0
    reused_generated_rows: int = 0
    recomputed_rows: int = 0
    retractions: int = 0

    def plus(self, result: Result) -> Totals:
        """The sums with what one more request came to."""
        return Totals(
            requests=self.requests + 1,
            audio_end=self.audio_end + (result.finish == Finish.AUDIO_END),
            length=self.length + (result.finish == Finish.LENGTH),
            aborted=self.aborted + (result.finish == Finish.ABORTED),
            error=self.error + (result.finish == Finish.ERROR),
            frames=self.frames + len(result.rows),
            prompt_rows=self.prompt_rows + result.prompt_rows,
            reused_prompt_rows=self.reused_prompt_rows + result.reused_prompt_rows,
            reused_generated_rows=self.reused_generated_rows + result.reused_generated_rows,
            recomputed_rows=self.recomputed_rows + result.recomputed_rows,
            retractions=self.retractions + result.retractions,
        )
