"""The watchdog: notices that the runtime shows no sign of life, with limits that know how slow a prefill is.

During prefill the runtime is silent by nature, for minutes where the prompt is long (8192 tokens took 226 s with a 1.7B
model, rkllama #169), so the limit there grows with the prompt and shrinks to what this board was seen to do. During
decode it is never silent for long. What is done about silence is the engine's business.

One timer at a time, and none per token: a sign of life is a time noted, and a timer that finds one waits for the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

# Runs that prefill less say more about overhead than about speed.
_MEASURED_FROM_TOKENS = 64


@dataclass(frozen=True)
class SilenceLimits:
    """How long the runtime may be silent.

    Args:
        prefill_base_s: before the first token, however short the prompt, seconds.
        prefill_patience: and so many times what the prompt should take.
        prefill_tokens_per_s: the speed to expect before any was measured. The slowest report is 36 (a 1.7B model at
            8192 tokens, rkllama #169); larger models are slower.
        decode_s: between two tokens.
        call_s: for everything that is not a run.
    """

    prefill_base_s: float = 60.0
    prefill_patience: float = 5.0
    prefill_tokens_per_s: float = 20.0
    decode_s: float = 60.0
    call_s: float = 120.0


class PrefillPace:
    """How fast prefill is on this board: the slowest run seen, so that a fast one promises nothing.

    Args:
        limits: how long the runtime may be silent.
        expected_s: how long a prompt of so many tokens takes, where that was measured before, seconds.
    """

    def __init__(self, limits: SilenceLimits, expected_s: Callable[[int], float | None] | None = None) -> None:
        self._limits = limits
        self._expected_s = expected_s
        self._slowest: float | None = None

    def measured(self, tokens: int, took_ms: float) -> None:
        """A run evaluated so many prompt tokens in so many milliseconds."""
        if tokens >= _MEASURED_FROM_TOKENS and took_ms > 0:
            speed = tokens / took_ms * 1000
            self._slowest = speed if self._slowest is None else min(speed, self._slowest)

    def cost_s(self, tokens: int) -> float:
        """How long so many tokens take at the speed measured; 0 where none was."""
        return tokens / self._slowest if self._slowest else 0.0

    def limit_s(self, prompt_tokens: int) -> float:
        """How long a prompt may take until its first token, seconds.

        What of it is in the cache already is not known for sure, so all of it counts.
        """
        expected_s = prompt_tokens / (self._slowest or self._limits.prefill_tokens_per_s)
        profiled_s = self._expected_s(prompt_tokens) if self._expected_s else None
        if profiled_s is not None:
            expected_s = max(profiled_s, expected_s) if self._slowest else profiled_s
        return self._limits.prefill_base_s + self._limits.prefill_patience * expected_s


class Watchdog:
    """Waits for a sign of life.

    Args:
        on_silence: is told when there was none for as long as was allowed, and what was waited for.
    """

    def __init__(self, on_silence: Callable[[str], None]) -> None:
        self._on_silence = on_silence
        self._timer: asyncio.TimerHandle | None = None
        self._limit_s = 0.0
        self._awaited = ""
        self._heard_at = 0.0

    def expect(self, awaited: str, limit_s: float) -> None:
        """From now on, wait for this at most so long; a new expectation replaces the last.

        Args:
            awaited: a noun, such as ``a token``.
            limit_s: the longest silence, seconds.
        """
        self.rest()
        loop = asyncio.get_running_loop()
        self._awaited, self._limit_s, self._heard_at = awaited, limit_s, loop.time()
        self._timer = loop.call_later(limit_s, self._look)

    def heard(self) -> None:
        """There was a sign of life."""
        if self._timer is not None:
            self._heard_at = asyncio.get_running_loop().time()

    def rest(self) -> None:
        """Nothing is expected."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        due = self._heard_at + self._limit_s
        if loop.time() < due:
            self._timer = loop.call_at(due, self._look)
            return
        self._timer = None
        self._on_silence(f"{self._awaited} did not come within {self._limit_s:.3g} s")
