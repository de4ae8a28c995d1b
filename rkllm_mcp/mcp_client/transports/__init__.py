"""``open_channel``: choose and open the transport of a server; the in-process transport, without messages.

A transport is imported when it is used. A channel is opened before the SDK is imported, so that the server's start and
the import (0.6 s) run in parallel.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from rkllm_mcp.config.servers import MCPServerConfig, StdioServer
from rkllm_mcp.errors import ServerUnavailableError

if TYPE_CHECKING:
    from mcp.client import Transport

    from rkllm_mcp.mcp_client.lifecycle import ConnectionServices
    from rkllm_mcp.mcp_client.wire_log import LastLines


class Channel(Protocol):
    """An open transport to one server."""

    @property
    def served(self) -> Any:
        """The in-process server object; None if ``streams`` is used."""
        ...

    @property
    def was_heard(self) -> bool:
        """False if the server certainly received no message."""
        ...

    def streams(self) -> Transport:
        """Return the SDK transport for one ``mcp.Client``; imports the SDK."""
        ...

    def ending(self) -> str:
        """Return how the server ended, such as ``exited with code 3``; empty if unknown or if the host ended it."""
        ...


def open_channel(
    spec: MCPServerConfig,
    notes: LastLines,
    host: ConnectionServices,
    waiting_for_person: Callable[[], AbstractContextManager[None]],
    transport: str = "",
    *,
    headers: Mapping[str, str] | None = None,
) -> AbstractAsyncContextManager[Channel]:
    """Open the transport of a server.

    ``notes`` receives stderr and invalid output. ``waiting_for_person`` is entered during a login, which may take
    longer than a connect. ``transport`` overrides the configured one. ``headers`` are sent to a remote server.

    Raises:
        OSError: the program cannot be started (on entering).
    """
    grace_s = host.timings.stop_grace_s
    if spec.name in host.in_process:
        return open_inprocess(host.in_process[spec.name])
    if isinstance(spec, StdioServer):
        from rkllm_mcp.mcp_client.transports.stdio import open_stdio

        return open_stdio(spec, notes, grace_s, host.allowed_commands, host.sandbox)
    if (transport or spec.transport) == "websocket":
        from rkllm_mcp.mcp_client.transports.websocket import open_websocket

        return open_websocket(spec, headers or {}, notes, grace_s)
    from rkllm_mcp.mcp_client.transports.http import open_remote

    auth = host.sign_in.auth(spec, waiting_for_person)
    return open_remote(spec, transport or spec.transport, headers or {}, auth, grace_s)


class InProcessChannel:
    """Channel of an in-process server."""

    was_heard = True

    def __init__(self, served: Any) -> None:
        self.served = served

    def streams(self) -> Transport:
        """Not supported: the client takes ``served``.

        Raises:
            ServerUnavailableError: always.
        """
        raise ServerUnavailableError("an in-process server has no streams; please report this bug")

    def ending(self) -> str:
        """Return an empty text: the server ends with this process."""
        return ""


@asynccontextmanager
async def open_inprocess(server: object) -> AsyncGenerator[InProcessChannel]:
    """Open the transport to a server object: ``mcp.Client`` calls it directly.

    ``server`` is an ``MCPServer`` (or low-level ``Server``) of the SDK, a function that makes one, or ``module:name``.

    Raises:
        ServerUnavailableError: the configured object is not an MCP server.
    """
    from mcp.server import Server
    from mcp.server.mcpserver import MCPServer

    served: Any = _imported(server) if isinstance(server, str) else server
    if callable(served) and not isinstance(served, (Server, MCPServer)):
        served = served()
    if not isinstance(served, (Server, MCPServer)):
        raise ServerUnavailableError(f"{server!r} is not an MCP server; name an MCPServer or a function that makes one")
    yield InProcessChannel(served)


def _imported(entry: str) -> Any:
    module, _, name = entry.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ServerUnavailableError(f"{entry!r} cannot be loaded: {error}; write it as module:name") from None
