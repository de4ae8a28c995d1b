"""A server without a process: what is loaded once and then called, under the same face as a connection.

    connecting ──▶ ready                 every state ──▶ stopped
         └───────▶ failed ──▶ connecting …      (again at the next use, after a pause that doubles)

``run`` is its one task: it loads within ``connect_timeout_s``, holds what was opened, and closes it at the end. What is
loaded (built-in tools, a REST API) is the opener's business; a failure of it stays with this server.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

import anyio

from rkllm_mcp.calling import NO_CONTEXT, CallContext
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.tools.policy import is_offered
from rkllm_mcp.tools.servers import ServerSpec, ServerState, State
from rkllm_mcp.tools.session.lifetime import Backoff
from rkllm_mcp.tools.transports.lines import LastLines


class Loaded(Protocol):
    """Tools that are there, and how to call them."""

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """The tools, under their own names."""
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        """Run one; the JSON of a ``tools/call`` result. A failing tool is such a result too."""
        ...


Opener: TypeAlias = Callable[[ServerSpec, LastLines], AbstractAsyncContextManager[Loaded]]


class LoadedSource:
    """A server without a process, as the toolbox sees it.

    Args:
        spec: which server.
        opener: loads it; what it raises is the reason why there is none.
        on_change: called after ``state`` or ``tools`` has changed, in the source's own task; must not wait or raise.
    """

    def __init__(
        self, spec: ServerSpec, opener: Opener, *, on_change: Callable[[LoadedSource], None] | None = None
    ) -> None:
        self.spec = spec
        self.state: State = "connecting"
        self.reason = ""
        self.tools: tuple[ToolSpec, ...] = ()
        self.notes = LastLines()
        self._opener = opener
        self._on_change = on_change
        self._loaded: Loaded | None = None
        self._seconds = 0.0
        self._announced = ""
        self._stopping = False
        self._backoff = Backoff(spec.restart_pause_s)
        self._scope = anyio.CancelScope()
        self._first, self._settled = anyio.Event(), anyio.Event()
        self._wanted, self._over = anyio.Event(), anyio.Event()

    def describe(self) -> ServerState:
        """How it is now."""
        return ServerState(
            name=self.spec.name,
            state=self.state,
            reason=self.explanation(),
            last_lines=self.notes.shown(),
            tool_count=len(self.tools),
            connect_seconds=self._seconds,
        )

    def explanation(self) -> str:
        """Why it is not ready, and what to do; empty when it is."""
        return self.reason

    async def run(self) -> None:
        """Live until ``stop``; the task that runs this owns what is loaded."""
        try:
            while not self._stopping:
                self._wanted = anyio.Event()
                await self._live_once()
                if not self._stopping:
                    await self._wanted.wait()
        finally:
            self._become("stopped", "it was stopped")
            self._settle()

    def stop(self) -> None:
        """Ask ``run`` to close everything and return; callable from any task, any number of times."""
        self._stopping = True
        self._over.set()
        self._wanted.set()
        if self._loaded is None:
            self._scope.cancel()

    async def settled(self) -> None:
        """Wait until the first attempt to load it has come to something.

        One that failed is tried again, without being waited for.
        """
        if self.state == "failed" and not self._backoff.wait_s():
            self._want()
        await self._first.wait()

    async def available(self) -> None:
        """Wait until it can take a call, loading it again when that had failed.

        Raises:
            ServerUnavailableError: it cannot.
        """
        await self._available()

    async def call(self, tool: str, arguments: Mapping[str, Any], context: CallContext = NO_CONTEXT) -> dict[str, Any]:
        """Run a tool by its own name. Cancelling the caller cancels the call and nothing else.

        Returns:
            the JSON of a ``tools/call`` result: ``content``, ``isError`` and perhaps ``structuredContent``.

        Raises:
            ServerUnavailableError: it could not be loaded, or was stopped.
        """
        loaded = await self._available()
        return await loaded.call(tool, arguments, context)

    async def _available(self) -> Loaded:
        if self.state == "failed":
            wait_s = self._backoff.wait_s()
            if wait_s > 0:
                raise ServerUnavailableError(
                    f"Server '{self.spec.name}' is down and can be tried again in {math.ceil(wait_s)} s: {self.reason}."
                )
            self._want()
        await self._settled.wait()
        if self._loaded is None:
            raise ServerUnavailableError(f"Server '{self.spec.name}' is not available: {self.reason}.")
        return self._loaded

    def _want(self) -> None:
        # From here on other callers wait for the same attempt.
        self.state = "connecting"
        self._settled = anyio.Event()
        self._wanted.set()

    async def _live_once(self) -> None:
        started = anyio.current_time()
        self._become("connecting")
        error: Exception | None = None
        with anyio.CancelScope(deadline=started + self.spec.connect_timeout_s) as self._scope:
            try:
                async with self._opener(self.spec, self.notes) as loaded:
                    self._scope.deadline = math.inf
                    self.tools = self._offered(loaded.tools)
                    self._loaded, self._seconds = loaded, anyio.current_time() - started
                    self._become("ready")
                    self._settle()
                    await self._over.wait()
            except Exception as caught:  # noqa: BLE001  (whatever goes wrong with one server stays with that server)
                error = caught
        self._loaded = None
        if not self._stopping:
            self._backoff.ended()
            self._become("failed", _reason(error, self.spec.connect_timeout_s))
        self._settle()

    def _settle(self) -> None:
        self._first.set()
        self._settled.set()

    def _offered(self, tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
        return tuple(
            replace(tool, server=self.spec.name, wire_name=tool.name)
            for tool in tools
            if is_offered(self.spec, tool.name)
        )

    def _become(self, state: State, reason: str = "") -> None:
        self.state, self.reason = state, reason
        # One that is tried again with every question and fails as before is not worth a line each time.
        is_news = state != "failed" or reason != self._announced
        if state != "connecting":
            self._announced = reason
        if self._on_change is not None and is_news:
            self._on_change(self)


def _reason(error: Exception | None, limit_s: float) -> str:
    if error is None:
        return f"it was not loaded within {limit_s:g} s; raise connect_timeout_s if it only needs longer"
    return str(error) or type(error).__name__
