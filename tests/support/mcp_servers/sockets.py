"""A server behind a WebSocket: the tools of ``tiny``, one message per text frame."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from rkllm_base.listener import listening_socket
from tests.support.mcp_servers.tiny import HANDLERS, LEGACY, MODERN, TOOLS, Arguments, TinyServer, tool


class Sockets:
    """A WebSocket server of tiny's tools; ``leave`` closes the socket in the middle of a call."""

    def __init__(self, *eras: str) -> None:
        self.eras = eras or (MODERN, LEGACY)
        self.headers: list[str | None] = []
        self.subprotocols: list[str | None] = []
        self.status = 0
        self.clients: list[ServerConnection] = []

    async def handle(self, client: ServerConnection) -> None:
        assert client.request is not None
        self.clients.append(client)
        self.headers.append(client.request.headers.get("Authorization"))
        self.subprotocols.append(client.subprotocol)
        leaving = False

        def leave(_: TinyServer, __: Arguments) -> str:
            nonlocal leaving
            leaving = True
            return ""

        class Framed(TinyServer):
            def send(self, **message: Any) -> None:
                waiting.append(json.dumps({"jsonrpc": "2.0", **message}))

        waiting: list[str] = ["not a message", '{"jsonrpc":']
        server = Framed([*TOOLS, tool("leave")], {**HANDLERS, "leave": leave}, self.eras)
        try:
            async for frame in client:
                server.handle(json.loads(frame))
                if leaving:
                    await client.close(1011, "overloaded")
                while waiting:
                    await client.send(waiting.pop(0))
        except ConnectionClosed:
            return

    def refuse(self, client: ServerConnection, request: Request) -> Response | None:
        return client.respond(self.status, request.path) if self.status else None


@asynccontextmanager
async def sockets(server: Sockets) -> AsyncGenerator[str]:
    silent = logging.Logger("server", logging.CRITICAL)  # noqa: LOG001  (this server alone)
    listener = listening_socket("127.0.0.1", 0)
    async with serve(
        server.handle,
        sock=listener,
        subprotocols=[Subprotocol("mcp")],
        process_request=server.refuse,
        logger=silent,
        close_timeout=1,
    ):
        yield f"ws://127.0.0.1:{listener.getsockname()[1]}/mcp"
