"""In-process transport: ``mcp.Client`` calls the server object directly, without messages.

The server is an ``MCPServer`` (or low-level ``Server``) of the SDK, a function that makes one, or ``module:name`` of
either.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from rkllm_mcp.config.server_spec import ServerSpec
from rkllm_mcp.errors import ServerUnavailableError

if TYPE_CHECKING:
    from mcp.client import Transport


class InProcessChannel:
    """Channel of an in-process server."""

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
async def open_inprocess(spec: ServerSpec) -> AsyncGenerator[InProcessChannel]:
    """Import or create the server.

    Raises:
        ServerUnavailableError: the configured object is not an MCP server.
    """
    from mcp.server import Server
    from mcp.server.mcpserver import MCPServer

    served: Any = _imported(spec.served) if isinstance(spec.served, str) else spec.served
    if callable(served) and not isinstance(served, (Server, MCPServer)):
        served = served()
    if not isinstance(served, (Server, MCPServer)):
        raise ServerUnavailableError(
            f"{spec.served!r} is not an MCP server; name an MCPServer or a function that makes one"
        )
    yield InProcessChannel(served)


def _imported(entry: str) -> Any:
    module, _, name = entry.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ServerUnavailableError(f"{entry!r} cannot be loaded: {error}; write it as module:name") from None
