"""What answers have cost since the service began: read off their events as they pass, for the board's page and metrics.

Only what the runtime reported is counted, round by round. The rates are those of the latest rounds that had work enough
to tell.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from rkllm_mcp.events import Usage

# A rate is told of so many rounds, and of none that was shorter than this: those are mostly fixed cost.
ROUNDS = 8
TELLING_TOKENS = 8


@dataclass
class Meter:
    """The sums and the latest rates.

    Attributes:
        prefilled_tokens: evaluated.
        reused_tokens: found in the KV cache.
        generated_tokens: written.
        rounds: how many runs of the model those were.
    """

    prefilled_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0
    rounds: int = 0
    _prefills: deque[tuple[int, float]] = field(default_factory=lambda: deque[tuple[int, float]](maxlen=ROUNDS))
    _decodes: deque[tuple[int, float]] = field(default_factory=lambda: deque[tuple[int, float]](maxlen=ROUNDS))

    def take(self, usage: Usage) -> None:
        """A round has ended."""
        self.rounds += 1
        self.prefilled_tokens += usage.prefilled_tokens
        self.reused_tokens += usage.cached_tokens
        self.generated_tokens += usage.generated_tokens
        if usage.prefilled_tokens >= TELLING_TOKENS and usage.prefill_ms > 0:
            self._prefills.append((usage.prefilled_tokens, usage.prefill_ms))
        if usage.generated_tokens >= TELLING_TOKENS and usage.decode_ms > 0:
            self._decodes.append((usage.generated_tokens, usage.decode_ms))

    @property
    def prefill_tps(self) -> float | None:
        """Tokens evaluated a second; None where no round has told yet."""
        return _rate(self._prefills)

    @property
    def decode_tps(self) -> float | None:
        """Tokens written a second; None where no round has told yet."""
        return _rate(self._decodes)


def _rate(rounds: deque[tuple[int, float]]) -> float | None:
    milliseconds = sum(each for _, each in rounds)
    return round(sum(tokens for tokens, _ in rounds) / milliseconds * 1000, 2) if milliseconds else None
