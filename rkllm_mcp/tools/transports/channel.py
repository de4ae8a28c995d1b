"""How a server is reached: each transport opens a ``Channel``, whose ``streams()`` an ``mcp.Client`` speaks through.

A channel is opened before the SDK is imported, so that a server's start and that import (0.6 s) happen side by side. A
new transport is one more line in ``open_channel``. Nothing here knows what is said over it; ``tap`` looks at that.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.tools.login.signin import SignIn
from rkllm_mcp.tools.servers import ServerSpec
from rkllm_mcp.tools.transports.inprocess import open_inprocess
from rkllm_mcp.tools.transports.lines import LastLines
from rkllm_mcp.tools.transports.remote import open_remote
from rkllm_mcp.tools.transports.stdio import open_stdio
from rkllm_mcp.tools.transports.websocket import open_websocket

if TYPE_CHECKING:
    from mcp.client import Transport

AVAILABLE = ("stdio", "http", "sse", "websocket", "inprocess")


class Channel(Protocol):
    """A way to a server that is open."""

    @property
    def served(self) -> Any:
        """The server itself where it is in this process; None where it is spoken to by ``streams``."""
        ...

    def streams(self) -> Transport:
        """The transport for one ``mcp.Client``; needs the SDK."""
        ...

    def ending(self) -> str:
        """How the server ended, such as ``exited with code 3``; empty when that cannot be known or is our doing."""
        ...


def open_channel(
    spec: ServerSpec,
    notes: LastLines,
    sign_in: SignIn,
    waiting_for_person: Callable[[], AbstractContextManager[None]],
    transport: str = "",
) -> AbstractAsyncContextManager[Channel]:
    """Open the way to a server.

    Args:
        spec: which server.
        notes: gets what it says outside the protocol: stderr, and stdout that is no message.
        sign_in: how it is logged in to, where it wants OAuth.
        waiting_for_person: entered while somebody logs in, who may take longer than a server.
        transport: another transport than the configured one.

    Raises:
        ServerUnavailableError: there is no such transport.
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
        f"transport {transport!r} is not one that servers are connected by; "
        f"use one of {', '.join(AVAILABLE)}, or set enabled = false"
    )
