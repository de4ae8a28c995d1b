"""``ToolServer``: one interface for MCP servers, built-in tools and REST APIs, and the function that creates them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from rkllm_mcp.calling import CallContext
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.tools.builtin.source import open_builtin
from rkllm_mcp.tools.loaded import Loaded, LoadedSource, Opener
from rkllm_mcp.tools.openapi.source import open_openapi
from rkllm_mcp.tools.servers import ServerSpec, ServerState, State
from rkllm_mcp.tools.session.host import Host
from rkllm_mcp.tools.session.tokened import connection_for
from rkllm_mcp.tools.transports.lines import LastLines

_OPENERS: Mapping[str, Opener] = {"builtin": open_builtin, "openapi": open_openapi}


class Source(Protocol):
    """A server as the toolbox uses it. One task runs ``run``; the other methods may be called from any task."""

    @property
    def spec(self) -> ServerSpec:
        """Settings of the server."""
        ...

    @property
    def state(self) -> State:
        """Current state."""
        ...

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """Tools under the server's own names."""
        ...

    @property
    def notes(self) -> LastLines:
        """Recent output and log lines of the server, redacted."""
        ...

    def describe(self) -> ServerState:
        """Return the server's current state."""
        ...

    def explanation(self) -> str:
        """Return the reason why the server is not ready and the remedy; empty if it is ready."""
        ...

    async def run(self) -> None:
        """Connect and serve calls until ``stop``."""
        ...

    def stop(self) -> None:
        """Make ``run`` close everything and return."""
        ...

    async def settled(self) -> None:
        """Wait until the first connection attempt has succeeded or failed."""
        ...

    async def available(self) -> None:
        """Wait until the server can take a call; raises ServerUnavailableError if it cannot."""
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any], context: CallContext = ...) -> dict[str, Any]:
        """Call a tool by the server's own name; return the JSON of a ``tools/call`` result.

        Raises:
            ServerUnavailableError: the server is not available, or was lost during the call.
        """
        ...


@asynccontextmanager
async def _open_problem(spec: ServerSpec, notes: LastLines) -> AsyncGenerator[Loaded]:
    """Fail with the configured ``problem`` of a server that cannot be used."""
    del notes
    raise ServerUnavailableError(spec.problem)
    yield  # makes this function a generator


def source_of(
    spec: ServerSpec, host: Host | None = None, *, on_change: Callable[[Source], None] | None = None
) -> Source:
    """Create the tool server for ``spec``.

    ``on_change`` runs in the server's own task after its state or tools changed; it must not block or raise.
    """
    opener = _open_problem if spec.problem else _OPENERS.get(spec.transport)
    if opener is not None:
        return LoadedSource(spec, opener, on_change=on_change)
    return connection_for(spec, host or Host(), on_change)
