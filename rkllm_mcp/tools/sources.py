"""Where tools come from: one face for MCP servers, built-in tools and REST APIs.

``source_of`` is the one place that tells them apart.
"""

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
    """A server as the toolbox sees it; ``run`` is its one task, everything else may be called from any other."""

    @property
    def spec(self) -> ServerSpec:
        """Its settings."""
        ...

    @property
    def state(self) -> State:
        """How it is."""
        ...

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools it offers, under its own names."""
        ...

    @property
    def notes(self) -> LastLines:
        """What it said outside its answers, and what was left out of it."""
        ...

    def describe(self) -> ServerState:
        """How it is now."""
        ...

    def explanation(self) -> str:
        """Why it is not ready, and what to do or what will be done; empty when it is."""
        ...

    async def run(self) -> None:
        """Live until ``stop``."""
        ...

    def stop(self) -> None:
        """Ask ``run`` to end everything and return."""
        ...

    async def settled(self) -> None:
        """Wait until the first attempt to have it has come to something."""
        ...

    async def available(self) -> None:
        """Wait until it can take a call; raises ServerUnavailableError when it cannot."""
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any], context: CallContext = ...) -> dict[str, Any]:
        """Run a tool, by its own name; the JSON of a ``tools/call`` result.

        Raises:
            ServerUnavailableError: it is not there, or was lost during the call.
        """
        ...


@asynccontextmanager
async def _open_problem(spec: ServerSpec, notes: LastLines) -> AsyncGenerator[Loaded]:
    """A server that cannot be had: fails with its reason."""
    del notes
    raise ServerUnavailableError(spec.problem)
    yield  # a context manager needs one


def source_of(
    spec: ServerSpec, host: Host | None = None, *, on_change: Callable[[Source], None] | None = None
) -> Source:
    """The source for a server.

    Args:
        spec: which server.
        host: what MCP servers may use of the host.
        on_change: called after its state or tools have changed, in its own task; must not wait or raise.
    """
    opener = _open_problem if spec.problem else _OPENERS.get(spec.transport)
    if opener is not None:
        return LoadedSource(spec, opener, on_change=on_change)
    return connection_for(spec, host or Host(), on_change)
