"""Time limits that pause while a person or the model is asked, and the call that a server's request belongs to."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import anyio

from rkllm_mcp.protocols import CallContext, Deadline

# The active call of a task. Inherited by child tasks, such as those in which the SDK runs callbacks of a call.
OWN_CALL: ContextVar[CallContext | None] = ContextVar("active call context", default=None)


def active_call(in_flight: Sequence[CallContext]) -> CallContext | None:
    """Return the call that a request belongs to, of those on its connection, newest last; None without any."""
    call = OWN_CALL.get()
    if call is not None and any(call is context for context in in_flight):
        return call
    return in_flight[-1] if in_flight else None


@contextmanager
def time_limit(timeout_s: float, context: CallContext) -> Generator[CallContext]:
    """Cancel the block after ``timeout_s`` seconds, not counting pauses of the yielded context."""
    deadline = Deadline(timeout_s, anyio.current_time)
    with deadline.bind(anyio.CancelScope()):
        yield deadline.within(context)
