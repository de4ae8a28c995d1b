"""A call's time, and the limit to it, are the server's alone: both stand still while a person or our model is asked."""

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
    """How long a call takes, without its pauses.

    Args:
        context: the call's circumstances.
        now: the time, seconds since anything.

    Attributes:
        context: the circumstances in which it can be paused, for the call itself.
    """

    def __init__(self, context: CallContext, now: Callable[[], float] = anyio.current_time) -> None:
        self.context = replace(context, pause=self._pause)
        self._outer = context
        self._now = now
        self._started = now()
        self._pauses = 0
        self._paused_at = 0.0
        self._paused_s = 0.0

    def seconds(self) -> float:
        """So long until now, seconds."""
        # A call that is stopped at a question ends before the pause does.
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
    """Cancel the block after ``timeout_s`` seconds of the server's time.

    Args:
        timeout_s: the limit, seconds.
        context: the call's circumstances.

    Yields:
        the scope, whose ``cancelled_caught`` says afterwards whether the limit was met, and the circumstances in which
        the limit can be paused, for the call inside.
    """
    limit = _Limit(timeout_s, context)
    with limit.scope:
        yield limit.scope, replace(context, pause=limit.pause)
