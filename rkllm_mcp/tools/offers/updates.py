"""Notifications that a resource has changed, on their way to whoever waits for them; for servers up to 2025-11-25."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client.session import IncomingMessage, MessageHandlerFnT

# Beyond this, further changes say nothing that those that wait do not say already.
_WAITING_UPDATES = 64


class Updates:
    """Who wants to hear that a resource has changed, by server and address."""

    def __init__(self) -> None:
        self._listeners: list[tuple[str, str, MemoryObjectSendStream[str]]] = []

    def heard_from(self, server: str) -> MessageHandlerFnT:
        """A message handler that passes a server's updates on."""

        async def handle(message: IncomingMessage) -> None:
            from mcp_types import ResourceUpdatedNotification

            if isinstance(message, ResourceUpdatedNotification):
                self.tell(server, str(message.params.uri))

        return handle

    def tell(self, server: str, uri: str) -> None:
        """A resource, or a part of one, has changed."""
        for listening, wanted, stream in self._listeners:
            if listening == server and (uri == wanted or uri.startswith(f"{wanted.rstrip('/')}/")):
                with contextlib.suppress(anyio.WouldBlock):
                    stream.send_nowait(uri)

    @contextmanager
    def listening(self, server: str, uri: str) -> Generator[MemoryObjectReceiveStream[str]]:
        """The addresses that change, while the block runs."""
        send, receive = anyio.create_memory_object_stream[str](_WAITING_UPDATES)
        listener = (server, uri, send)
        self._listeners.append(listener)
        with send, receive:
            try:
                yield receive
            finally:
                self._listeners.remove(listener)
