"""One run of an engine becomes the moments of its tokens and its figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from rkllm_mcp.generation import GenerationOptions, RunStats
from rkllm_mcp.runtime.engine import Engine
from rkllm_mcp.runtime.run import TimedToken


@dataclass(frozen=True)
class TimedRun:
    """A run, token by token, in ns of CLOCK_MONOTONIC.

    Args:
        entered_ns: when the runtime called back with each token.
        seen_ns: when whoever awaited it had it.
        stats: the run's own figures.
    """

    entered_ns: tuple[int, ...]
    seen_ns: tuple[int, ...]
    stats: RunStats

    @property
    def ms_per_token(self) -> float | None:
        """From one callback to the next; None with fewer than two tokens."""
        return ms_between(self.entered_ns)


def ms_between(moments_ns: Sequence[int]) -> float | None:
    """The mean distance of moments, ms; None with fewer than two."""
    return (moments_ns[-1] - moments_ns[0]) / (len(moments_ns) - 1) / 1e6 if len(moments_ns) > 1 else None


async def timed_run(
    engine: Engine, prompt: Sequence[int], tokens: int, on_first: Callable[[], None] = lambda: None
) -> TimedRun:
    """Run the model on an empty cache.

    Args:
        engine: made with ``timed_tokens``.
        prompt: token ids.
        tokens: the longest answer.
        on_first: is called when the first token is there.
    """
    await engine.clear_cache()
    entered: list[int] = []
    seen: list[int] = []
    stats: RunStats | None = None
    async with aclosing(engine.generate(prompt, GenerationOptions(max_new_tokens=tokens))) as run:
        async for item in run:
            if isinstance(item, RunStats):
                stats = item
                continue
            seen.append(time.monotonic_ns())
            if isinstance(item, TimedToken):
                entered.append(item.entered_ns)
            if len(seen) == 1:
                on_first()
    if stats is None:
        raise RuntimeError("a generation ended without its figures")
    return TimedRun(tuple(entered), tuple(seen), stats)
