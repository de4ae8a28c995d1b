"""Time limits that pause while a person or the model is asked, and the call that a server's request belongs to."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from rkllm_mcp.protocols import CallContext

# Inherited by child tasks, such as those in which the SDK runs callbacks of a call.
_OWN: ContextVar[CallContext | None] = ContextVar("active call context", default=None)


@contextmanager
def own_call(context: CallContext) -> Generator[None]:
    """Set the active call of this task and its child tasks, for requests that the server makes meanwhile."""
    token = _OWN.set(context)
    try:
        yield
    finally:
        _OWN.reset(token)


def active_call(in_flight: Sequence[CallContext]) -> CallContext | None:
    """Return the context of the call that a request belongs to; None without an active call.

    ``in_flight`` are the active calls on the connection, newest last.
    """
    own = _OWN.get()
    if own is not None and any(own is context for context in in_flight):
        return own
    return in_flight[-1] if in_flight else None


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


@contextmanager
def time_limit(timeout_s: float, context: CallContext) -> Generator[tuple[anyio.CancelScope, CallContext]]:
    """Cancel the block after ``timeout_s`` seconds, not counting pauses.

    Yields the scope, whose ``cancelled_caught`` is True after a timeout, and the context whose ``pause`` stops this
    limit.
    """
    limit = _Limit(timeout_s, context)
    with limit.scope:
        yield limit.scope, replace(context, pause=limit.pause)
