"""``MCPClient``: a public client for one MCP server.

It holds no task group and no cancel scope, so several clients may be opened and closed in any order, in any task, under
plain ``asyncio.run``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypeAlias

import anyio
from pydantic import ValidationError

from rkllm_mcp.config.servers import RemoteServer, StdioServer
from rkllm_mcp.errors import ServerStartTimeoutError, ServerUnavailableError, ToolTimeoutError
from rkllm_mcp.mcp_client.connection import Connection
from rkllm_mcp.toolcalls.results import result_text

Transport: TypeAlias = Literal["stdio", "http", "sse", "websocket"]


class MCPClient:
    """A connection to one MCP server, open inside ``async with``.

    Args:
        command: program to start (stdio); give either this or ``url``.
        args: arguments of the program.
        env: environment variables for the program, added to HOME, LOGNAME, PATH, SHELL, TERM and USER.
        url: address of a remote server: Streamable HTTP with a fallback to SSE, or WebSocket for ``ws://`` and
            ``wss://``.
        headers: HTTP headers to send to ``url``.
        ca_file: file with CA certificates to trust in addition to the system's.
        cwd: working directory of the program.
        timeout_s: limit for each call, and for start and handshake together, seconds.
        connect_timeout_s: limit for start and handshake if it differs from ``timeout_s``, seconds.
        transport: ``stdio``, ``http``, ``sse`` or ``websocket``; derived from ``command`` or ``url`` by default.

    Raises:
        ValueError: an argument cannot be used.
        ConnectionError: on entering, the server cannot start or is not ready in time; in a method, the session is not
            open or was lost.
        TimeoutError: a call takes longer than ``timeout_s``. A start that times out raises an error that is both a
            ConnectionError and a TimeoutError.
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
        settings: dict[str, Any] = {
            "name": command or url,
            **({} if transport is None else {"transport": transport}),
            "timeout_s": timeout_s,
            "connect_timeout_s": timeout_s if connect_timeout_s is None else connect_timeout_s,
        }
        if command is not None:
            settings |= {"command": command, "args": tuple(args), "env": dict(env or {}), "cwd": cwd}
        else:
            by_url = "websocket" if str(url).startswith(("ws://", "wss://")) else "http"
            settings = {"transport": by_url, **settings, "url": url, "ca_file": ca_file}
        kind = RemoteServer if command is None else StdioServer
        try:
            self._spec = kind.model_validate(settings)
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            setting = ".".join(map(str, first["loc"])) or "this"
            raise ValueError(f"MCPClient cannot use {setting}: {first['msg']}") from None
        # Sent as they are: nothing in them is a placeholder.
        self._headers = dict(headers or {})
        self._connection: Connection | None = None
        self._life: asyncio.Task[None] | None = None

    async def __aenter__(self) -> MCPClient:
        """Start the server and open the session."""
        if self._life is not None:
            message = f"the client of {self._spec.name!r} is already open; create one MCPClient per 'async with'"
            raise ServerUnavailableError(message)
        self._connection = Connection(self._spec, restarts=False, headers=self._headers)
        self._life = asyncio.create_task(self._connection.run(), name=f"MCP client of {self._spec.name}")
        connection = self._connection
        try:
            await connection.wait_until_settled()
        except BaseException:
            await self.aclose()
            raise
        if connection.state == "ready":
            return self
        output = "".join(f"\n    {line}" for line in connection.notes.shown()[-5:])
        message = f"{self._spec.name!r} is not available: {connection.reason}{output}"
        await self.aclose()
        raise (ServerStartTimeoutError if connection.timed_out else ServerUnavailableError)(message)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session and terminate the server's process group."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close the session; calling it again does nothing."""
        connection, life = self._connection, self._life
        self._connection = self._life = None
        if connection is None or life is None:
            return
        connection.stop()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([life])

    async def list_tools(self) -> list[dict[str, Any]]:
        """Return the server's tools: ``name``, ``description`` and ``inputSchema`` of each.

        Raises:
            ConnectionError: the session is not open.
        """
        connection = await self._open()
        return [
            {"name": tool.wire_name, "description": tool.description, "inputSchema": dict(tool.input_schema)}
            for tool in connection.tools
        ]

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Call a tool.

        Returns:
            ``{"content": [...], "isError": bool}`` with MCP content blocks, and ``structuredContent`` if the tool has
                one; ``isError`` is true for a tool that fails, is unknown or rejects its arguments.

        Raises:
            ConnectionError: the session is not open, or was lost.
            TimeoutError: the call took longer than ``timeout_s``; the session stays open.
        """
        connection = await self._open()
        with anyio.move_on_after(self._spec.timeout_s):
            result = await connection.call(name, arguments or {})
            content = result["content"]
            if not content and "structuredContent" in result:
                content = [{"type": "text", "text": result_text(result)}]
            return {**result, "content": content}
        problem = f"tool {name!r} of {self._spec.name!r} did not answer within {self._spec.timeout_s:g} s"
        raise ToolTimeoutError(f"{problem}; raise timeout_s if it needs longer")

    async def _open(self) -> Connection:
        if self._connection is None:
            message = f"the session with {self._spec.name!r} is not open; use 'async with MCPClient(...)'"
            raise ServerUnavailableError(message)
        await self._connection.available()
        return self._connection
