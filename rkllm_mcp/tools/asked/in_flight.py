"""Whose circumstances a server's question belongs to, among the calls that it runs for us.

Since 2026-07-28 a server asks within the call (the client repeats the call with the answers), so the task that asks is
the call's own. Until 2025-11-25 a server's request names no call; the newest one is taken. A server that asks while
nobody called it finds nobody.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from rkllm_mcp.calling import CallContext

# A task inherits it from the one that started it, as the SDK's tasks do that answer within a call.
_OWN: ContextVar[CallContext | None] = ContextVar("the circumstances of this task's call", default=None)


@contextmanager
def own_call(context: CallContext) -> Generator[None]:
    """Entered around a request to a server; what is asked meanwhile in this task, or in one of it, is asked there."""
    token = _OWN.set(context)
    try:
        yield
    finally:
        _OWN.reset(token)


def present(in_flight: Sequence[CallContext]) -> CallContext | None:
    """The call that a question belongs to.

    Args:
        in_flight: the calls under way on the connection of the server that asks, newest last.

    Returns:
        its circumstances; None when there is no call.
    """
    own = _OWN.get()
    if own is not None and any(own is context for context in in_flight):
        return own
    return in_flight[-1] if in_flight else None
