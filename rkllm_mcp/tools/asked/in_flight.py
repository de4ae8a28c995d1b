"""Match a server-initiated request to the tool call that caused it.

Since 2026-07-28 a request is part of the call (the client repeats the call with the answers) and runs in the call's
task. Until 2025-11-25 a request names no call: the newest active call is taken.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from rkllm_mcp.calling import CallContext

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


def present(in_flight: Sequence[CallContext]) -> CallContext | None:
    """Return the context of the call that a request belongs to; None without an active call.

    ``in_flight`` are the active calls on the connection, newest last.
    """
    own = _OWN.get()
    if own is not None and any(own is context for context in in_flight):
        return own
    return in_flight[-1] if in_flight else None
