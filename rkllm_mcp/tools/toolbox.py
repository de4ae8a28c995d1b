"""Every server's tools under one set of names, and the way to call them.

``open_toolbox`` owns the task of every connection: all connect at once, a server that fails only marks itself, and when
the block is left every server and its process group is gone. A call never raises for a failing tool; what failed is the
result's text.
"""

from __future__ import annotations

import difflib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import anyio

from rkllm_mcp.calling import NO_CONTEXT, CallContext
from rkllm_mcp.errors import ServerUnavailableError, ToolboxError
from rkllm_mcp.messages import ToolCall, ToolResult, ToolSpec
from rkllm_mcp.tools.connection import Connection
from rkllm_mcp.tools.content import result_text
from rkllm_mcp.tools.names import long_name, safe_name, shown_names
from rkllm_mcp.tools.policy import Caller, SizeLimited, Timed, TimeLimited
from rkllm_mcp.tools.servers import ServerSpec, ServerState

RESULT_CHARS = 4000
# An answer to a wrong name is read by a model, which pays for every name in it.
_NAMED_TOOLS = 12
# How many of a failed server's last lines go into the status line about it.
_SHOWN_LINES = 5


@dataclass(frozen=True)
class ServerCaller:
    """Runs a call on a server and reads the result; the innermost ``Caller``."""

    connection: Connection

    async def call(self, tool: ToolSpec, call: ToolCall, context: CallContext) -> ToolResult:
        """What the server answers, or why it does not."""
        try:
            result = await self.connection.call(tool.wire_name or tool.name, call.arguments, context)
        except ServerUnavailableError as error:
            return ToolResult(call.id, call.name, str(error), is_error=True)
        return ToolResult(call.id, call.name, result_text(result), is_error=bool(result.get("isError")))


@dataclass(frozen=True)
class _Index:
    """The tools at one moment: by the name they are shown under, and by every other name they answer to."""

    tools: Mapping[str, ToolSpec]
    aliases: Mapping[str, str]


class Toolbox:
    """The tools of all servers; ``open_toolbox`` makes one."""

    def __init__(self, specs: Sequence[ServerSpec], result_chars: int, on_status: Callable[[str], None] | None) -> None:
        self._on_status = on_status
        self._connections = {spec.name: Connection(spec, on_change=self._changed) for spec in specs}
        self._callers: dict[str, Caller] = {
            name: Timed(SizeLimited(TimeLimited(ServerCaller(connection), connection.spec.timeout_s), result_chars))
            for name, connection in self._connections.items()
        }
        self._disabled: set[tuple[str, str]] = set()
        self._index: _Index | None = None

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connections, in the order of the configuration."""
        return tuple(self._connections.values())

    async def connected(self) -> None:
        """Wait until every server is ready or has failed; their connect timeouts bound it."""
        for connection in self._connections.values():
            await connection.settled()

    def servers(self) -> tuple[ServerState, ...]:
        """How each server is, in the order of the configuration."""
        return tuple(connection.describe() for connection in self._connections.values())

    def tools(self, *, disabled: bool = False) -> tuple[ToolSpec, ...]:
        """The tools a model may be shown: in the order of the configuration, then in each server's.

        Args:
            disabled: the ones that were switched off instead.
        """
        tools = self._current().tools.values()
        return tuple(tool for tool in tools if ((tool.server, tool.wire_name) in self._disabled) == disabled)

    def resolve(self, name: str) -> ToolSpec | None:
        """The tool of that name, short or long, switched off or not; None when there is none or several share it."""
        index = self._current()
        return index.tools.get(index.aliases.get(name, name))

    def suggest(self, name: str) -> str | None:
        """The shown name most like ``name``, for whoever misspelt it; None when none is alike."""
        shown = {tool.name.lower(): tool.name for tool in self.tools()}
        for tool in self.tools():
            shown.setdefault(safe_name(tool.wire_name).lower(), tool.name)
        for wanted in (name, name.rsplit("__", 1)[-1]):
            close = difflib.get_close_matches(safe_name(wanted).lower(), shown, n=1)
            if close:
                return shown[close[0]]
        return None

    def disable(self, name: str) -> tuple[ToolSpec, ...]:
        """Switch a tool, or all tools of a server, off; returns them.

        Raises:
            ToolboxError: there is neither a tool nor a server of that name.
        """
        tools = self._named(name)
        self._disabled.update((tool.server, tool.wire_name) for tool in tools)
        return tools

    def enable(self, name: str) -> tuple[ToolSpec, ...]:
        """Switch a tool, or all tools of a server, on again; returns them.

        Raises:
            ToolboxError: there is neither a tool nor a server of that name.
        """
        tools = self._named(name)
        self._disabled.difference_update((tool.server, tool.wire_name) for tool in tools)
        return tools

    async def call(self, call: ToolCall, context: CallContext = NO_CONTEXT) -> ToolResult:
        """Run a call. Whatever goes wrong is an error result; only cancellation passes through.

        Args:
            call: its name short or long.
            context: who is told and asked, and which tokens the call may use.
        """
        tool = self.resolve(call.name)
        if tool is None:
            return ToolResult(call.id, call.name, self._unknown(call.name), is_error=True)
        if (tool.server, tool.wire_name) in self._disabled:
            return ToolResult(
                call.id, call.name, f"Tool '{call.name}' is switched off; answer without it.", is_error=True
            )
        return await self._callers[tool.server].call(tool, call, context)

    # --- what the configuration says about servers, for the prompt ---------------------------------------------------

    def system_instructions(self) -> tuple[str, ...]:
        """The ``system_instruction`` of every server that has one and is there."""
        there = (c.spec.system_instruction for c in self.connections if c.state not in ("failed", "stopped"))
        return tuple(instruction for instruction in there if instruction)

    def response_instruction(self, name: str) -> str:
        """The ``response_instruction`` of the server of a tool; empty when there is none."""
        tool = self.resolve(name)
        return self._connections[tool.server].spec.response_instruction if tool else ""

    def auto_context_tools(self) -> tuple[ToolSpec, ...]:
        """The tools to call with every question."""
        wanted = {(c.spec.name, c.spec.auto_context_tool) for c in self.connections}
        return tuple(tool for tool in self.tools() if (tool.server, tool.wire_name) in wanted)

    # --- names -------------------------------------------------------------------------------------------------------

    def _current(self) -> _Index:
        if self._index is None:
            self._index = _index([tool for connection in self.connections for tool in connection.tools])
        return self._index

    def _named(self, name: str) -> tuple[ToolSpec, ...]:
        tool = self.resolve(name)
        if tool is not None:
            return (tool,)
        if name in self._connections:
            return tuple(tool for tool in self._current().tools.values() if tool.server == name)
        raise ToolboxError(self._unknown(name))

    def _unknown(self, name: str) -> str:
        sharing = [
            tool.name for tool in self._current().tools.values() if name in (tool.wire_name, safe_name(tool.wire_name))
        ]
        if sharing:
            return f"Several servers have a tool '{name}'; name one of {', '.join(sharing)}."
        close = self.suggest(name)
        if close:
            return f"There is no tool '{name}'; did you mean '{close}'?"
        names = ", ".join(tool.name for tool in self.tools()[:_NAMED_TOOLS])
        return (
            f"There is no tool '{name}'; the tools are: {names}."
            if names
            else f"There is no tool '{name}'; there are none."
        )

    # --- status ------------------------------------------------------------------------------------------------------

    def _changed(self, connection: Connection) -> None:
        self._index = None
        if self._on_status is None or connection.state in ("connecting", "stopped"):
            return
        if connection.state == "ready":
            count = len(connection.tools)
            self._on_status(f"[MCP: Server '{connection.spec.name}' is ready: {count} tool{'' if count == 1 else 's'}]")
            return
        what = "is left out" if connection.state == "failed" else "is gone"
        lines = connection.notes.shown()[-_SHOWN_LINES:]
        said = "".join(f"\n    {line}" for line in lines)
        self._on_status(f"[MCP: Server '{connection.spec.name}' {what}: {connection.explanation()}]{said}")


@asynccontextmanager
async def open_toolbox(
    specs: Sequence[ServerSpec],
    *,
    result_chars: int = RESULT_CHARS,
    on_status: Callable[[str], None] | None = None,
) -> AsyncGenerator[Toolbox]:
    """Start all servers at once, without waiting for them; on leaving, all of them are gone.

    Args:
        specs: the servers; no two of one name.
        result_chars: what is longer of a result is cut before the model reads it, characters.
        on_status: called with a status line when a server is ready, has new tools, fails or dies; below the last two
            come the server's last words.

    Raises:
        ToolboxError: two servers have the same name.
    """
    names = [spec.name for spec in specs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ToolboxError(f"two servers are called {twice!r}; give each a name of its own")
    toolbox = Toolbox(specs, result_chars, on_status)
    failure: Exception | None = None
    async with anyio.create_task_group() as lives:
        for connection in toolbox.connections:
            lives.start_soon(connection.run, name=f"server {connection.spec.name}")
        try:
            yield toolbox
        except Exception as error:  # noqa: BLE001  (raised again below: the task group would wrap it in a group)
            failure = error
        finally:
            for connection in toolbox.connections:
                connection.stop()
    if failure is not None:
        raise failure


def _index(listed: Sequence[ToolSpec]) -> _Index:
    names = shown_names([(tool.server, tool.wire_name) for tool in listed])
    tools = {name: replace(tool, name=name) for name, tool in zip(names, listed, strict=True)}
    # A name that several tools answer to belongs to none of them.
    aliases: dict[str, str | None] = {}
    for name, tool in tools.items():
        for alias in {tool.wire_name, long_name(tool.server, tool.wire_name), tool.qualified_name} - {name}:
            aliases[alias] = None if alias in aliases else name
    return _Index(tools, {alias: name for alias, name in aliases.items() if name is not None and alias not in tools})
