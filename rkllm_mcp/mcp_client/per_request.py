"""Servers that need a token of each request: one connection per set of tokens, open only while it is used.

Separate connections ensure that a token never reaches another user's request, session or subscription, over any
transport. Requests with equal headers share one. A connection closes with the last block that uses it: a single call,
or a whole answer (``ResourceHub.attending``). The tool list comes from the first connection and is stored.

Follows mission "MCP統合設計", トークン置換機能 and トークンの取り扱い.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import anyio
from anyio.abc import TaskGroup
from typing_extensions import Never

from rkllm_mcp.config.header_templates import MissingTokenError, fill, placeholders, secrets_of, tokens_for
from rkllm_mcp.config.servers import RemoteServer
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.mcp_client.connection import Connection
from rkllm_mcp.mcp_client.lifecycle import ConnectionServices, ServerState, ToolServer
from rkllm_mcp.mcp_client.server_cache import ServerCache
from rkllm_mcp.protocols import NO_CONTEXT, CallContext

if TYPE_CHECKING:
    from mcp import Client


_Result = TypeVar("_Result")
_Headers = tuple[tuple[str, str], ...]


@dataclass
class _Session:
    connection: Connection
    users: int = 0


class PerRequestConnection(ToolServer[RemoteServer, Never]):
    """A server whose ``headers_template`` needs tokens of the request."""

    def __init__(self, spec: RemoteServer, host: ConnectionServices | None = None) -> None:
        self._host = host or ConnectionServices()
        super().__init__(spec, None, self._host.restart_pause_s)
        names = dict.fromkeys(name for value in spec.headers_template.values() for name in placeholders(value))
        token_names = " and ".join(f"'{name}'" for name in names)
        self.state = "waiting"
        self.reason = (
            f"it is connected by each request that brings its token {token_names}, on a command line with --token"
        )
        self.tools = ServerCache(spec, self._host.remembered).known.tools or ()
        # Nothing is connected before a request brings a token.
        self.life.first.set()
        self._sessions: dict[_Headers, _Session] = {}
        self._last: ServerState | None = None
        self._tasks: TaskGroup | None = None
        self._running = anyio.Event()

    def describe(self) -> ServerState:
        """Return the current state; version and times are those of the last connection."""
        last = self._last or ServerState(self.spec.name, self.state)
        return replace(
            last, state=self.state, reason=self.reason, last_lines=self.notes.shown(), tool_count=len(self.tools)
        )

    async def run(self) -> None:
        """Own all connections until ``stop``."""
        try:
            async with anyio.create_task_group() as self._tasks:
                self._running.set()
                await self.life.over.wait()
                for session in self._sessions.values():
                    session.connection.stop()
        finally:
            self._tasks = None
            self._become("stopped", "it was stopped")
            self._running.set()

    async def available(self) -> Never:
        """Raise a ServerUnavailableError that names the token: no connection is shared by all requests."""
        raise ServerUnavailableError(f"Server '{self.spec.name}' is not available: {self.reason}.")

    async def request(
        self, operation: Callable[[Client], Awaitable[_Result]], context: CallContext = NO_CONTEXT
    ) -> _Result:
        """Run an operation on the connection of the request's tokens; see ``Connection.request`` and ``held``."""
        async with self.held(context.tokens) as connection:
            return await connection.request(operation, context)

    async def call(self, tool: str, arguments: Mapping[str, Any], context: CallContext = NO_CONTEXT) -> dict[str, Any]:
        """Call a tool on the connection of the request's tokens; see ``ToolServer``."""
        async with self.held(context.tokens) as connection:
            return await connection.call(tool, arguments, context)

    @asynccontextmanager
    async def held(self, tokens: Mapping[str, str]) -> AsyncGenerator[Connection]:
        """Open or share the connection of these tokens inside this block, once ``run`` has started.

        Raises:
            ServerUnavailableError: a token is missing.
        """
        await self._running.wait()
        server_tokens = tokens_for(self.spec.name, self.spec.headers_template, tokens)
        try:
            headers = tuple(fill(self.spec.headers_template, server_tokens).items())
        except MissingTokenError as error:
            raise ServerUnavailableError(f"Server '{self.spec.name}' is not available: {error}") from None
        session = self._sessions.get(headers)
        if session is None:
            if self._tasks is None:
                raise ServerUnavailableError(f"Server '{self.spec.name}' is not available: it was stopped.")
            # The connection is needed now and closes after use, so lazy start and idle timeout do not apply.
            spec = self.spec.model_copy(update={"lazy": False, "idle_stop_s": None})
            secrets, on_change = secrets_of({}, server_tokens), self._on_session_change
            connection = Connection(spec, self._host, on_change=on_change, headers=dict(headers), secrets=secrets)
            session = self._sessions[headers] = _Session(connection)
            self._tasks.start_soon(connection.run, name=f"session of {spec.name}")
        session.users += 1
        try:
            yield session.connection
        finally:
            session.users -= 1
            if not session.users:
                self._sessions.pop(headers, None)
                session.connection.stop()

    def _on_session_change(self, connection: Connection) -> None:
        for line in connection.notes.shown() if connection.state in ("failed", "died") else ():
            self.notes.add(line)
        if connection.state != "ready":
            return
        self.tools, self._last = connection.tools, connection.describe()
        self._become("ready")


AnyConnection: TypeAlias = Connection | PerRequestConnection
