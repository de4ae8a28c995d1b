"""A server that lives in this process: no pipes, no messages, 2 ms to connect.

What is served is an ``MCPServer`` (or low-level ``Server``) of the SDK, a function that makes one, or the text
``module:name`` of either.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.tools.servers import ServerSpec

if TYPE_CHECKING:
    from mcp.client import Transport


class InProcessChannel:
    """The server itself."""

    def __init__(self, served: Any) -> None:
        self.served = served

    def streams(self) -> Transport:
        """There are none: the client is given ``served``.

        Raises:
            ServerUnavailableError: always.
        """
        raise ServerUnavailableError("a server in this process is not spoken to by streams; this is a bug to report")

    def ending(self) -> str:
        """It ends with this process."""
        return ""


@asynccontextmanager
async def open_inprocess(spec: ServerSpec) -> AsyncGenerator[InProcessChannel]:
    """Find or make the server.

    Raises:
        ServerUnavailableError: what is named is no server.
    """
    from mcp.server import Server
    from mcp.server.mcpserver import MCPServer

    served: Any = _named(spec.served) if isinstance(spec.served, str) else spec.served
    if callable(served) and not isinstance(served, (Server, MCPServer)):
        served = served()
    if not isinstance(served, (Server, MCPServer)):
        raise ServerUnavailableError(
            f"{spec.served!r} is no MCP server; name an MCPServer or a function that makes one"
        )
    yield InProcessChannel(served)


def _named(entry: str) -> Any:
    module, _, name = entry.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ServerUnavailableError(f"{entry!r} cannot be loaded: {error}; write it as module:name") from None
