"""Time limits and durations of a call; both pause while a person or the host's model is asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace

import anyio

from rkllm_mcp.calling import CallContext


class _Limit:
    def __init__(self, timeout_s: float, context: CallContext) -> None:
        self.scope = anyio.CancelScope(deadline=anyio.current_time() + timeout_s)
        self._outer = context
        self._pauses = 0
        self._left_s = 0.0

    @contextmanager
    def pause(self) -> Generator[None]:
        with self._outer.pause():
            if not self._pauses:
                self._left_s = self.scope.deadline - anyio.current_time()
                self.scope.deadline = math.inf
            self._pauses += 1
            try:
                yield
            finally:
                self._pauses -= 1
                if not self._pauses:
                    self.scope.deadline = anyio.current_time() + self._left_s


class Stopwatch:
    """Measures a call without its pauses; the call uses ``context``, whose ``pause`` stops the clock."""

    def __init__(self, context: CallContext, now: Callable[[], float] = anyio.current_time) -> None:
        self.context = replace(context, pause=self._pause)
        self._outer = context
        self._now = now
        self._started = now()
        self._pauses = 0
        self._paused_at = 0.0
        self._paused_s = 0.0

    def seconds(self) -> float:
        """Return the time since the start without pauses, seconds."""
        # A call that is cancelled during a pause ends before the pause does.
        until = self._paused_at if self._pauses else self._now()
        return until - self._started - self._paused_s

    @contextmanager
    def _pause(self) -> Generator[None]:
        with self._outer.pause():
            if not self._pauses:
                self._paused_at = self._now()
            self._pauses += 1
            try:
                yield
            finally:
                self._pauses -= 1
                if not self._pauses:
                    self._paused_s += self._now() - self._paused_at


@contextmanager
def time_limit(timeout_s: float, context: CallContext) -> Generator[tuple[anyio.CancelScope, CallContext]]:
    """Cancel the block after ``timeout_s`` seconds, not counting pauses.

    Yields the scope, whose ``cancelled_caught`` is True after a timeout, and the context whose ``pause`` stops this
    limit.
    """
    limit = _Limit(timeout_s, context)
    with limit.scope:
        yield limit.scope, replace(context, pause=limit.pause)
