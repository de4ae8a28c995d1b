"""WebSocket transport: one message per text frame, subprotocol ``mcp``.

The library's keep-alive detects a dead peer. Redirects are not followed, because they would send the headers and their
keys to another host.

Follows SEP-1288 (a draft) and the TypeScript SDK's client, which agree on subprotocol and frames; no released
specification has this transport.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import anyio
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from rkllm_mcp.config.servers import RemoteServer
from rkllm_mcp.mcp_client.transports.channel import MAX_MESSAGE_BYTES, Channel, deliver, exchange
from rkllm_mcp.mcp_client.transports.tls import tls_context
from rkllm_mcp.mcp_client.wire_log import LastLines

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

    from rkllm_mcp.mcp_client.transports.channel import Incoming, Outgoing


SUBPROTOCOL = "mcp"


def _ending(socket: ClientConnection) -> str:
    """Return how the peer closed, such as ``closed the connection (1011: overloaded)``; empty without a reason."""
    code, reason = socket.close_code, socket.close_reason
    if code in (None, 1000, 1005, 1006):
        return ""
    return f"closed the connection ({code}{': ' if reason else ''}{reason or ''})"


async def _read_messages(socket: ClientConnection, notes: LastLines, session: Incoming) -> None:
    with session, suppress(ConnectionClosed):
        while await deliver(await socket.recv(), session, notes, "invalid message") is not None:
            pass


async def _write_messages(socket: ClientConnection, session: Outgoing, _incoming: Incoming) -> None:
    async for item in session:
        try:
            await socket.send(item.message.model_dump_json(by_alias=True, exclude_unset=True))
        except ConnectionClosed:
            return  # the reader is notified as well and ends the session


@asynccontextmanager
async def open_websocket(
    spec: RemoteServer, headers: Mapping[str, str], notes: LastLines, stop_grace_s: float
) -> AsyncGenerator[Channel]:
    """Connect; close the socket on exit. An OSError if the host is not reached, else a WebSocketException."""
    # Not from the registry, so that no logging configuration applies to it.
    logger = logging.Logger("websocket", level=logging.CRITICAL + 1)  # noqa: LOG001
    logger.addHandler(logging.NullHandler())

    class Direct(connect):
        """Connects to the given address only."""

        def process_redirect(self, exc: Exception) -> Exception | str:
            return exc

    connecting = Direct(
        spec.url,
        subprotocols=[Subprotocol(SUBPROTOCOL)],
        additional_headers=dict(headers),
        max_size=MAX_MESSAGE_BYTES,
        # The deadline of the connection attempt applies.
        open_timeout=None,
        close_timeout=stop_grace_s,
        ssl=tls_context(spec.ca_file) if spec.url.startswith("wss:") else None,
        # At debug level the library would log the headers.
        logger=logger,
    )
    try:
        socket = await connecting
    except InvalidStatus as error:
        raise HandshakeRefusedError(error.response.status_code) from None
    try:
        streams = partial(exchange, partial(_read_messages, socket, notes), partial(_write_messages, socket))
        yield Channel(streams, ending=partial(_ending, socket))
    finally:
        # Takes close_timeout at most. If it were cancelled, the socket would stay open until the server closes it.
        with anyio.CancelScope(shield=True):
            await socket.close()


class HandshakeRefusedError(ConnectionError):
    """The server answered the handshake with an HTTP error; ``status`` is its code."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the server answered HTTP {status}")
        self.status = status
