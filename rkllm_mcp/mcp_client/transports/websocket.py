"""WebSocket transport: one message per text frame, subprotocol ``mcp``.

The library's keep-alive detects a dead peer. Redirects are not followed, because they would send the headers and their
keys to another host.

Follows SEP-1288 (a draft) and the TypeScript SDK's client, which agree on subprotocol and frames; no released
specification has this transport.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from rkllm_mcp.config.servers import RemoteServer
from rkllm_mcp.mcp_client.message_filter import MAX_MESSAGE_BYTES, message_in
from rkllm_mcp.mcp_client.transports.http import tls_context
from rkllm_mcp.mcp_client.wire_log import LastLines

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage
    from websockets.asyncio.client import ClientConnection, connect


SUBPROTOCOL = "mcp"


class WebSocketChannel:
    """Channel of an open WebSocket; created by ``open_websocket``."""

    served = None
    was_heard = True

    def __init__(self, socket: ClientConnection, notes: LastLines) -> None:
        self._socket = socket
        self._notes = notes

    def ending(self) -> str:
        """Return how the peer closed, such as ``closed the connection (1011: overloaded)``; empty without a reason."""
        code, reason = self._socket.close_code, self._socket.close_reason
        if code in (None, 1000, 1005, 1006):
            return ""
        return f"closed the connection ({code}{': ' if reason else ''}{reason or ''})"

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[TransportStreams]:
        """Exchange the messages of a session as frames."""
        incoming_send, incoming = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
        outgoing, outgoing_receive = anyio.create_memory_object_stream["SessionMessage"](0)
        with incoming_send, incoming, outgoing, outgoing_receive:
            async with anyio.create_task_group() as pumps:
                pumps.start_soon(self._read_messages, incoming_send)
                pumps.start_soon(self._write_messages, outgoing_receive)
                try:
                    yield incoming, outgoing
                finally:
                    pumps.cancel_scope.cancel()

    async def _read_messages(self, session: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        from websockets.exceptions import ConnectionClosed

        with session:
            try:
                while True:
                    frame = await self._socket.recv()
                    message = message_in(frame)
                    if message is None:
                        self._notes.add(f"invalid message: {_shown(frame)}")
                        continue
                    await session.send(message)
            except (ConnectionClosed, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return

    async def _write_messages(self, session: MemoryObjectReceiveStream[SessionMessage]) -> None:
        from websockets.exceptions import ConnectionClosed

        async for item in session:
            try:
                await self._socket.send(item.message.model_dump_json(by_alias=True, exclude_unset=True))
            except ConnectionClosed:
                return  # the reader is notified as well and ends the session


@asynccontextmanager
async def open_websocket(
    spec: RemoteServer, headers: Mapping[str, str], notes: LastLines, stop_grace_s: float
) -> AsyncGenerator[WebSocketChannel]:
    """Connect; close the socket on exit.

    Raises:
        OSError: the host cannot be reached.
        WebSocketException: the peer is not a WebSocket server.
    """
    from websockets.exceptions import InvalidStatus
    from websockets.typing import Subprotocol

    connecting = _connector()(
        spec.url,
        subprotocols=[Subprotocol(SUBPROTOCOL)],
        additional_headers=dict(headers),
        max_size=MAX_MESSAGE_BYTES,
        # The deadline of the connection attempt applies.
        open_timeout=None,
        close_timeout=stop_grace_s,
        ssl=tls_context(spec.ca_file) if spec.url.startswith("wss:") else None,
        # At debug level the library would log the headers.
        logger=_silent(),
    )
    try:
        async with connecting as socket:
            yield WebSocketChannel(socket, notes)
    except InvalidStatus as error:
        raise HandshakeRefusedError(error.response.status_code) from None


class HandshakeRefusedError(ConnectionError):
    """The server answered the handshake with an HTTP error; ``status`` is its code."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the server answered HTTP {status}")
        self.status = status


def _connector() -> type[connect]:
    from websockets.asyncio.client import connect

    class Direct(connect):
        """Connects to the given address only."""

        def process_redirect(self, exc: Exception) -> Exception | str:
            return exc

    return Direct


def _silent() -> logging.Logger:
    # Not from the registry, so that no logging configuration applies to it.
    logger = logging.Logger("websocket", level=logging.CRITICAL + 1)  # noqa: LOG001
    logger.addHandler(logging.NullHandler())
    return logger


def _shown(frame: bytes | str) -> str:
    return frame[:1000].decode("utf-8", "replace") if isinstance(frame, bytes) else frame[:1000]
