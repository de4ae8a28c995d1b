"""Prompts being prefilled, with their length and the expected duration.

The duration comes from the runtime's profile, else from the last measured run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rkllm_mcp.generation import RunStats

_MIN_MEASURED_TOKENS = 32  # shorter prefills consist mostly of fixed cost and do not predict a long one


@dataclass(frozen=True)
class PromptProgress:
    """Progress of a prefill: tokens to evaluate, and the total duration in seconds if known."""

    tokens: int
    seconds: float | None = None


@dataclass(eq=False)
class PrefillProgress:
    """Prefills of one model."""

    # The seconds for a number of tokens if they were measured.
    _profiled_s: Callable[[int], float | None] | None = None
    # By conversation, of the runs before their first token: returns the number of tokens that are to be evaluated.
    runs: dict[str, Callable[[], int]] = field(default_factory=dict[str, Callable[[], int]])
    _ms_per_token: float | None = None

    def record_run(self, stats: RunStats, prefilled_tokens: int) -> None:
        """Update the estimate from a finished run."""
        if prefilled_tokens >= _MIN_MEASURED_TOKENS and stats.prefill_ms > 0:
            self._ms_per_token = stats.prefill_ms / prefilled_tokens

    def of(self, conversation: str) -> PromptProgress | None:
        """Return the prefill of a conversation; None if no run is prefilling."""
        prefill_tokens = self.runs.get(conversation)
        return None if prefill_tokens is None else self.estimate(prefill_tokens())

    def estimate(self, tokens: int) -> PromptProgress:
        """Return the expected duration of a prefill of ``tokens`` tokens."""
        seconds = self._profiled_s(tokens) if self._profiled_s else None
        if seconds is None and self._ms_per_token is not None:
            seconds = tokens * self._ms_per_token / 1000
        return PromptProgress(tokens, seconds)
