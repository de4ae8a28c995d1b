"""``open_channel``: choose and open the transport of a server; the in-process transport, without messages.

A transport is imported when it is used. A channel is opened before the SDK is imported, so that the server's start and
the import (0.6 s) run in parallel.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from rkllm_mcp.config.servers import MCPServerConfig, StdioServer
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.mcp_client import sdk
from rkllm_mcp.mcp_client.transports.channel import Channel

if TYPE_CHECKING:
    from rkllm_mcp.mcp_client.lifecycle import ConnectionServices
    from rkllm_mcp.mcp_client.wire_log import LastLines


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
        OSError: the program cannot be started, or the host cannot be reached (on entering).
        ServerUnavailableError: the program is not allowed, or its sandbox or in-process object cannot be used.
    """
    grace_s = host.stop_grace_s
    if spec.name in host.in_process:
        # ``mcp.Client`` calls a server object of the SDK directly; a function makes one, or ``module:name`` names it.
        server = host.in_process[spec.name]
        served: Any = server
        if isinstance(server, str):
            module, _, name = server.partition(":")
            try:
                served = getattr(importlib.import_module(module), name)
            except (ImportError, AttributeError, ValueError) as error:
                problem = f"{server!r} cannot be loaded: {error}; write it as module:name"
                raise ServerUnavailableError(problem) from None
        if callable(served) and not isinstance(served, (sdk.server.Server, sdk.mcpserver.MCPServer)):
            served = served()
        if not isinstance(served, (sdk.server.Server, sdk.mcpserver.MCPServer)):
            raise ServerUnavailableError(
                f"{server!r} is not an MCP server; name an MCPServer or a function that makes one"
            )
        return nullcontext(Channel(None, served))
    if isinstance(spec, StdioServer):
        from rkllm_mcp.mcp_client.transports.stdio import open_stdio

        return open_stdio(spec, notes, grace_s, host.allowed_commands, host.sandbox)
    if (transport or spec.transport) == "websocket":
        from rkllm_mcp.mcp_client.transports.websocket import open_websocket

        return open_websocket(spec, headers or {}, notes, grace_s)
    from rkllm_mcp.mcp_client.transports.http import sse, streamable_http

    auth = host.sign_in.auth(spec, waiting_for_person)
    streams = sse if (transport or spec.transport) == "sse" else streamable_http
    return nullcontext(Channel(partial(streams, spec, headers or {}, auth, grace_s)))
