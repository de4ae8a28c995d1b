"""Deliver resources/updated notifications to subscribers; for servers up to 2025-11-25."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client.session import IncomingMessage, MessageHandlerFnT

# Buffer per subscriber; further updates are dropped, because a read is pending anyway.
_WAITING_UPDATES = 64


class Updates:
    """Subscribers to resource changes, by server and URI."""

    def __init__(self) -> None:
        self._listeners: list[tuple[str, str, MemoryObjectSendStream[str]]] = []

    def heard_from(self, server: str) -> MessageHandlerFnT:
        """Return a message handler that delivers a server's updates."""

        async def handle(message: IncomingMessage) -> None:
            from mcp_types import ResourceUpdatedNotification

            if isinstance(message, ResourceUpdatedNotification):
                self.tell(server, str(message.params.uri))

        return handle

    def tell(self, server: str, uri: str) -> None:
        """Notify the subscribers of a resource or of one of its parents."""
        for listening, wanted, stream in self._listeners:
            if listening == server and (uri == wanted or uri.startswith(f"{wanted.rstrip('/')}/")):
                with contextlib.suppress(anyio.WouldBlock):
                    stream.send_nowait(uri)

    @contextmanager
    def listening(self, server: str, uri: str) -> Generator[MemoryObjectReceiveStream[str]]:
        """Yield a stream of the URIs that change, while the block runs."""
        send, receive = anyio.create_memory_object_stream[str](_WAITING_UPDATES)
        listener = (server, uri, send)
        self._listeners.append(listener)
        with send, receive:
            try:
                yield receive
            finally:
                self._listeners.remove(listener)
