"""``MCPClient``: one MCP server for a program that wants nothing else of this package.

A plain ``async with`` around one connection; values are the plain JSON of MCP. It holds no task group and no cancel
scope, so several clients may be opened and closed in any order, in any task, under a plain ``asyncio.run``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import anyio

from rkllm_mcp.errors import ServerStartTimeoutError, ServerUnavailableError, ToolTimeoutError
from rkllm_mcp.tools.content import result_text
from rkllm_mcp.tools.servers import ServerSpec, Transport
from rkllm_mcp.tools.session.connection import Connection


class MCPClient:
    """A connection to one MCP server, open inside ``async with``.

    Args:
        command: the program to start (stdio); or give ``url``.
        args: its arguments.
        env: environment variables for it, besides HOME, LOGNAME, PATH, SHELL, TERM and USER.
        url: the address of a server that runs elsewhere: Streamable HTTP, or SSE where it is an older one; a WebSocket
            for ``ws://`` and ``wss://``.
        headers: HTTP headers for it.
        ca_file: a file with certificates to trust besides the system's.
        cwd: the folder the program starts in.
        timeout_s: the longest a call, and the start with its handshake, may each take, seconds.
        connect_timeout_s: the longest the start may take, where it differs.
        transport: ``stdio``, ``http``, ``sse`` or ``websocket``; taken from ``command`` or ``url`` when not given.

    Raises:
        ConnectionError: entering fails because the server cannot start or is not ready in time; a method fails because
            the session is not open or was lost.
        TimeoutError: a call outlasts ``timeout_s``. A start that does is a ConnectionError and a TimeoutError.
    """

    def __init__(
        self,
        command: str | None = None,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        *,
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
        ca_file: str | None = None,
        cwd: str | None = None,
        timeout_s: float = 30.0,
        connect_timeout_s: float | None = None,
        transport: Transport | None = None,
    ) -> None:
        if (command is None) == (url is None):
            raise ValueError("MCPClient needs either a command or a url")
        self._spec = ServerSpec(
            name=command or url or "",
            transport=transport or _transport(url),
            command=command or "",
            args=tuple(args),
            env=dict(env or {}),
            cwd=cwd,
            url=url or "",
            headers=dict(headers or {}),
            ca_file=ca_file,
            timeout_s=timeout_s,
            connect_timeout_s=timeout_s if connect_timeout_s is None else connect_timeout_s,
        )
        self._connection: Connection | None = None
        self._life: asyncio.Task[None] | None = None

    async def __aenter__(self) -> MCPClient:
        """Start the server and open the session."""
        if self._life is not None:
            raise ServerUnavailableError(
                f"the client of {self._spec.name!r} is open already; use one client per 'async with'"
            )
        self._connection = Connection(self._spec, restarts=False)
        self._life = asyncio.create_task(self._connection.run(), name=f"MCP client of {self._spec.name}")
        try:
            await self._started(self._connection)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session and end the server and everything it started."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close the session; a second time does nothing."""
        connection, life = self._connection, self._life
        self._connection = self._life = None
        if connection is None or life is None:
            return
        connection.stop()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([life])

    async def list_tools(self) -> list[dict[str, Any]]:
        """The server's tools: ``name``, ``description`` and ``inputSchema`` of each.

        Raises:
            ConnectionError: the session is not open.
        """
        connection = await self._open()
        return [
            {"name": tool.wire_name, "description": tool.description, "inputSchema": dict(tool.input_schema)}
            for tool in connection.tools
        ]

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Run a tool.

        Returns:
            ``{"content": [...], "isError": bool}`` with MCP's content blocks; a tool that fails, is unknown or
            refuses its arguments has ``isError`` true.

        Raises:
            ConnectionError: the session is not open, or was lost.
            TimeoutError: the call outlasted ``timeout_s``; the session stays open.
        """
        connection = await self._open()
        with anyio.move_on_after(self._spec.timeout_s):
            result = await connection.call(name, arguments or {})
            content = result["content"]
            if not content and "structuredContent" in result:
                content = [{"type": "text", "text": result_text(result)}]
            return {"content": content, "isError": result["isError"]}
        raise ToolTimeoutError(
            f"tool {name!r} of {self._spec.name!r} did not answer within {self._spec.timeout_s:g} s; "
            "raise timeout_s if it needs longer"
        )

    async def _open(self) -> Connection:
        if self._connection is None:
            raise ServerUnavailableError(
                f"the session with {self._spec.name!r} is not open; use 'async with MCPClient(...)'"
            )
        await self._connection.available()
        return self._connection

    async def _started(self, connection: Connection) -> None:
        await connection.settled()
        if connection.state == "ready":
            return
        said = "".join(f"\n    {line}" for line in connection.notes.shown()[-5:])
        message = f"{self._spec.name!r} is not available: {connection.reason}{said}"
        raise (ServerStartTimeoutError if connection.timed_out else ServerUnavailableError)(message)


def _transport(url: str | None) -> Transport:
    if url is None:
        return "stdio"
    return "websocket" if url.startswith(("ws://", "wss://")) else "http"
