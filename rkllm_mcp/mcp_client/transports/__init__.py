"""``open_channel``: choose and open the transport of a server.

A channel is opened before the SDK is imported, so that the server's start and the import (0.6 s) run in parallel.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from rkllm_mcp.config.server_spec import ServerSpec
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.mcp_client.oauth import SignIn
from rkllm_mcp.mcp_client.transports.http import open_remote
from rkllm_mcp.mcp_client.transports.in_process import open_inprocess
from rkllm_mcp.mcp_client.transports.stdio import open_stdio
from rkllm_mcp.mcp_client.transports.websocket import open_websocket
from rkllm_mcp.toolcalls.untrusted_text import LastLines

if TYPE_CHECKING:
    from mcp.client import Transport


AVAILABLE = ("stdio", "http", "sse", "websocket", "inprocess")


class Channel(Protocol):
    """An open transport to one server."""

    @property
    def served(self) -> Any:
        """The in-process server object; None if ``streams`` is used."""
        ...

    def streams(self) -> Transport:
        """Return the SDK transport for one ``mcp.Client``; imports the SDK."""
        ...

    def ending(self) -> str:
        """Return how the server ended, such as ``exited with code 3``; empty if unknown or if the host ended it."""
        ...


def open_channel(
    spec: ServerSpec,
    notes: LastLines,
    sign_in: SignIn,
    waiting_for_person: Callable[[], AbstractContextManager[None]],
    transport: str = "",
) -> AbstractAsyncContextManager[Channel]:
    """Open the transport of a server.

    ``notes`` receives stderr and invalid output. ``waiting_for_person`` is entered during a login, which may take
    longer than a connect. ``transport`` overrides the configured one.

    Raises:
        ServerUnavailableError: the transport is unknown.
        OSError: the program cannot be started (on entering).
    """
    transport = transport or spec.transport
    if transport == "stdio":
        return open_stdio(spec, notes)
    if transport in ("http", "sse"):
        return open_remote(spec, transport, sign_in.auth(spec, waiting_for_person))
    if transport == "websocket":
        return open_websocket(spec, notes)
    if transport == "inprocess":
        return open_inprocess(spec)
    raise ServerUnavailableError(
        f"transport {transport!r} is not supported for MCP servers; "
        f"use one of {', '.join(AVAILABLE)}, or set enabled = false"
    )
