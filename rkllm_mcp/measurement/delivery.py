"""How a token gets from the runtime to whoever awaits it, and what a busy host does to the runtime.

A busy host is a thread that computes and never yields the interpreter: nothing else of this process runs meanwhile, and
its tokens wait. The runtime, which has a process of its own, must not notice. Whether it does is a ratio of runs in
turn, idle and busy, so that it holds on any machine; it is taken over the tokens that were made while the thread ran.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rkllm_mcp.measurement.figures import BusyHost, Delivery
from rkllm_mcp.measurement.runs import TimedRun, ms_between, timed_run
from rkllm_mcp.runtime.engine import Engine

TOKENS = 96
ROUNDS = 3
# A host that is busy for longer holds up its own shutdown for no better figure.
_BUSY_AT_MOST_S = 6.0
# Fewer tokens tell nothing about their distance.
_FEWEST_TOKENS = 8
# An answer that is over sooner is over before a thread has begun.
_SHORTEST_RUN_MS = 50.0
_NEVER_S = 3600.0
_NS_PER_US = 1e3


async def measure_delivery(engine: Engine, prompt: Sequence[int], tokens: int = TOKENS) -> Delivery:
    """Every token's way from its callback to here."""
    run = await timed_run(engine, prompt, tokens)
    ways = sorted((seen - entered) / _NS_PER_US for entered, seen in zip(run.entered_ns, run.seen_ns, strict=True))
    return Delivery(
        tokens=len(ways),
        mean_us=statistics.fmean(ways),
        p50_us=ways[len(ways) // 2],
        p99_us=ways[len(ways) * 99 // 100],
        max_us=ways[-1],
        blocked_us=run.stats.callback_ms * 1e3 / max(1, len(ways)),
    )


async def measure_busy_host(
    engine: Engine, prompt: Sequence[int], tokens: int = TOKENS, rounds: int = ROUNDS
) -> BusyHost | None:
    """Decode with an idle and with a busy host in turn; None when the runtime is too quick for it to be seen."""
    pairs: list[tuple[float, float]] = []
    for _ in range(rounds):
        idle = await timed_run(engine, prompt, tokens)
        pace = idle.ms_per_token
        if pace is None or pace * len(idle.entered_ns) < _SHORTEST_RUN_MS:
            return None
        hog = Hog(min(_BUSY_AT_MOST_S, pace * len(idle.entered_ns) / 1000))
        with never_yielding():
            busy = await timed_run(engine, prompt, tokens, on_first=hog.start)
            hog.join()
        pairs.append((pace, _pace_during(busy, hog)))
    return BusyHost(
        rounds=len(pairs),
        idle_ms_per_token=statistics.median(idle for idle, _ in pairs),
        busy_ms_per_token=statistics.median(busy for _, busy in pairs),
        ratio=statistics.median(busy / idle for idle, busy in pairs),
    )


def _pace_during(run: TimedRun, hog: Hog) -> float:
    """From one callback to the next while the thread ran, ms; a runtime that stood still is as slow as the thread."""
    during = [moment for moment in run.entered_ns if hog.began_ns <= moment <= hog.ended_ns]
    pace = ms_between(during)
    if pace is None or len(during) < _FEWEST_TOKENS:
        return (hog.ended_ns - hog.began_ns) / 1e6 / max(1, len(during))
    return pace


@dataclass
class Hog:
    """A thread that computes for so many seconds and does not yield the interpreter.

    Args:
        seconds: how long.

    Attributes:
        began_ns: when it began.
        ended_ns: when it ended.
    """

    seconds: float
    began_ns: int = 0
    ended_ns: int = 0
    _thread: threading.Thread | None = field(default=None, repr=False)

    def start(self) -> None:
        """Begin; whoever calls runs on when it ends."""
        self._thread = threading.Thread(target=self._compute, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until it has ended."""
        if self._thread is not None:
            self._thread.join(self.seconds + _BUSY_AT_MOST_S)

    def _compute(self) -> None:
        self.began_ns = now_ns = time.monotonic_ns()
        until_ns = self.began_ns + int(self.seconds * 1e9)
        while now_ns < until_ns:
            now_ns = time.monotonic_ns()
        self.ended_ns = now_ns


@contextmanager
def never_yielding() -> Generator[None, None, None]:
    """Let a thread that computes keep the interpreter until it waits for something by itself."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(_NEVER_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)
