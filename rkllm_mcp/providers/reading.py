"""Which prompts are being read right now, how long they are, and how long that will take: for whoever waits.

Every run is noted when it begins and forgotten at its first token. The time is what was measured of this runtime
before, else what the last run took for each token; it knows no clock and shows nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rkllm_mcp.generation import RunStats

# Shorter prefills are mostly fixed cost, and say little about a long one.
_TELLING_TOKENS = 32


@dataclass(frozen=True)
class Reading:
    """A prompt that is being read.

    Args:
        tokens: how many of its tokens have to be evaluated.
        seconds: how long that takes from its beginning to its end; None when it is not known.
    """

    tokens: int
    seconds: float | None = None


class Readings:
    """The prompts of one model.

    Args:
        profiled_s: seconds for so many tokens, where they were measured; None where they were not.
    """

    def __init__(self, profiled_s: Callable[[int], float | None] | None = None) -> None:
        self._profiled_s = profiled_s
        self._runs: dict[str, Callable[[], int]] = {}
        self._ms_per_token: float | None = None

    def begin(self, conversation: str, prefill_tokens: Callable[[], int]) -> None:
        """A run of a conversation begins; it will have to evaluate as many tokens of its prompt as that says."""
        self._runs[conversation] = prefill_tokens

    def over(self, conversation: str) -> None:
        """Its first token came, or none will."""
        self._runs.pop(conversation, None)

    def measured(self, stats: RunStats, prefilled_tokens: int) -> None:
        """A run has ended."""
        if prefilled_tokens >= _TELLING_TOKENS and stats.prefill_ms > 0:
            self._ms_per_token = stats.prefill_ms / prefilled_tokens

    def of(self, conversation: str) -> Reading | None:
        """What of a conversation is being read; None when nothing is."""
        prefill_tokens = self._runs.get(conversation)
        return None if prefill_tokens is None else self.estimate(prefill_tokens())

    def estimate(self, tokens: int) -> Reading:
        """A prompt of so many tokens, with the time that it takes where that is known."""
        seconds = self._profiled_s(tokens) if self._profiled_s else None
        if seconds is None and self._ms_per_token is not None:
            seconds = tokens * self._ms_per_token / 1000
        return Reading(tokens, seconds)
