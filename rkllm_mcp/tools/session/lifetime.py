"""When a server is started again, asked whether it is still there, and ended for want of use.

``Backoff`` paces restarts, ``Use`` knows which calls are under way, ``answers`` asks. They decide nothing about a
connection: that acts on what they say.

Followed: MCP 2025-11-25, ping; 2026-07-28 has none, and its ``server/discover`` must be answered by every server.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

from rkllm_mcp.calling import CallContext
from rkllm_mcp.tools.asked.in_flight import own_call
from rkllm_mcp.tools.session.failures import is_connection_closed

if TYPE_CHECKING:
    from mcp import Client

# A server that does nothing else answers in milliseconds; one that has just been given up may be finishing first.
PING_PATIENCE_S = 30.0
# What never stays up is tried once a minute.
_LONGEST_PAUSE_S = 60.0


class Backoff:
    """Paces restarts: the first comes at once, the next after a pause that doubles.

    Args:
        pause_s: the pause before the second in a row, seconds.
    """

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._ends_in_a_row = 0
        self._not_before = -math.inf

    def ended(self) -> None:
        """It has ended, or did not come up."""
        self._ends_in_a_row += 1
        pause_s = self._pause_s * 2 ** (self._ends_in_a_row - 2) if self._ends_in_a_row > 1 else 0.0
        self._not_before = anyio.current_time() + min(pause_s, _LONGEST_PAUSE_S)

    def worked(self) -> None:
        """It has done something useful."""
        self._ends_in_a_row = 0

    def wait_s(self) -> float:
        """How long to wait before the next start, seconds; 0 when it may come now."""
        return max(0.0, self._not_before - anyio.current_time())


class Use:
    """Whether a connection is used.

    Attributes:
        contexts: the circumstances of the calls under way, newest last.
        given_up: set when one was cancelled, which may mean that the server hangs.
    """

    def __init__(self) -> None:
        self.contexts: list[CallContext] = []
        self.given_up = anyio.Event()
        self._ended_at = -math.inf
        self._none_left = anyio.Event()

    @contextmanager
    def during(self, context: CallContext) -> Generator[None]:
        """Count the call that is made in this block."""
        self.contexts.append(context)
        try:
            with own_call(context):
                yield
        except anyio.get_cancelled_exc_class():
            self.given_up.set()
            raise
        finally:
            # By identity, and one only: calls may share their circumstances.
            del self.contexts[next(i for i, other in enumerate(self.contexts) if other is context)]
            self._ended_at = anyio.current_time()
            if not self.contexts:
                self._none_left.set()

    async def none(self) -> None:
        """Wait until no call is under way."""
        while self.contexts:
            self._none_left = anyio.Event()
            await self._none_left.wait()

    async def none_for(self, seconds: float) -> None:
        """Wait until there has been no call for so long."""
        started_at = anyio.current_time()
        while True:
            await self.none()
            left_s = max(self._ended_at, started_at) + seconds - anyio.current_time()
            if left_s <= 0:
                return
            await anyio.sleep(left_s)


@contextmanager
def without_deadline(scope: anyio.CancelScope) -> Generator[None]:
    """Stop the clock of ``scope`` inside this block, as while a person is waited for."""
    left_s = scope.deadline - anyio.current_time()
    scope.deadline = math.inf
    try:
        yield
    finally:
        scope.deadline = anyio.current_time() + left_s


async def answers(client: Client, patience_s: float) -> bool:
    """Whether a server still answers; an error is an answer too.

    Args:
        client: a connected client.
        patience_s: how long to wait, seconds.
    """
    from mcp import MCPError

    with anyio.move_on_after(patience_s):
        try:
            if client.session.discover_result is None:
                await client.session.send_ping()
            else:
                await client.session.send_discover(str(client.protocol_version))
        except MCPError as error:
            return not is_connection_closed(error)
        return True
    return False
