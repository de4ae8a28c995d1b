"""The tools of all servers under unique names, and the way to call them.

A failing tool is an error result, not an exception. ``tool_servers`` opens the servers; without one it is not imported.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeAlias

import anyio

from rkllm_mcp.catalogue import translate
from rkllm_mcp.config.header_templates import placeholders
from rkllm_mcp.config.servers import OpenAPIServer, RemoteServer, matches_any
from rkllm_mcp.errors import NotOfferedError, ServerUnavailableError
from rkllm_mcp.messages import ToolCall, ToolResult, ToolSpec, long_name, safe_name, shown_names
from rkllm_mcp.protocols import NO_CONTEXT, CallContext
from rkllm_mcp.toolcalls.untrusted_text import on_one_line, presentable
from rkllm_mcp.tools.approvals import Approvals
from rkllm_mcp.tools.execution import CallableServer, ExecutionPolicies, execute_call

if TYPE_CHECKING:
    from rkllm_mcp.mcp_client.lifecycle import AnyToolServer, ServerState
    from rkllm_mcp.mcp_client.resources import ResourceHub
    from rkllm_mcp.tools.resource_tools import ResourceTools

# (server name, wire name of the tool)
ToolKey: TypeAlias = tuple[str, str]
# The error for an unknown name lists at most this many tools: it uses the model's context.
_NAMED_TOOLS = 12
_SHOWN_LINES = 5  # number of a failed server's last output lines in its status line


@dataclass(frozen=True)
class _Index:
    """The tools at one moment, by shown name, and aliases that resolve to shown names."""

    tools: Mapping[str, ToolSpec]
    aliases: Mapping[str, str]


class OwnTools(CallableServer, Protocol):
    """Tools of this process that no configuration names; their server has the rule for approvals."""

    tools: tuple[ToolSpec, ...]


class Toolbox:
    """The tools of all servers; created by ``tool_servers.open_toolbox``.

    Args:
        connections: the servers, by name; their ``on_change`` is set.
        open_resources: creates ``offerings`` on its first use.
        on_status: takes a line about each server that is ready, has new tools, fails or dies.
        policies: approvals, recording, switches and the size limit of tool calls; the defaults when None.
        own: further tools of this process, as servers that are not in the configuration.

    Attributes:
        connections: the servers, in the order of the configuration.
        conversation_grants: approvals that are valid for one conversation.
        switches: on/off switches of tools and servers.
    """

    def __init__(
        self,
        connections: Mapping[str, AnyToolServer],
        open_resources: Callable[[], ResourceHub],
        on_status: Callable[[str], None] | None = None,
        policies: ExecutionPolicies | None = None,
        own: Sequence[OwnTools] = (),
    ) -> None:
        self._own = own
        self._on_status = on_status
        self._policies = policies or ExecutionPolicies()
        self._open_resources = open_resources
        self.conversation_grants = (self._policies.approvals or Approvals()).conversations
        self.switches = self._policies.switches
        self._connections = connections
        self.connections = tuple(connections.values())
        claimed: dict[str, frozenset[str]] = {}
        for name, connection in connections.items():
            connection.on_change = self._on_change
            spec = connection.spec
            headers = spec.headers_template if isinstance(spec, RemoteServer | OpenAPIServer) else {}
            # The token of its name, and those in its headers.
            claimed[name] = frozenset((name, *(token for text in headers.values() for token in placeholders(text))))
        everything = frozenset[str]().union(*claimed.values())
        self._foreign_tokens = {name: everything - own_tokens for name, own_tokens in claimed.items()}
        self._reported: set[ToolKey] = set()
        self._index: _Index | None = None
        self._indexed_resources: Mapping[str, Sequence[str]] = {}

    @cached_property
    def offerings(self) -> ResourceHub:
        """Resources and prompts of the servers."""
        return self._open_resources()

    @cached_property
    def _resource_tools(self) -> ResourceTools:
        from rkllm_mcp.tools.resource_tools import ResourceTools

        needs_approval = any(server.spec.approve == "always" for server in self.connections)
        return ResourceTools(self.offerings, self._offering, tuple(self._connections), asks_always=needs_approval)

    async def wait_until_connected(self) -> None:
        """Wait until every server is ready or has failed; ``connect_timeout_s`` of each bounds the wait."""
        for connection in self.connections:
            await connection.wait_until_settled()

    async def wait(self, limits_s: Mapping[str, float]) -> tuple[AnyToolServer, ...]:
        """Wait until every server is ready or has failed, for each at most its limit; return those that start.

        Lazy servers whose tools are not known are started.
        """
        async with anyio.create_task_group() as waits:
            for server in self.connections:
                waits.start_soon(server.wait_until_settled, limits_s.get(server.spec.name, 0.0))
        return tuple(server for server in self.connections if server.is_starting)

    def retry(self) -> None:
        """Start the servers that have failed again, in the background, if that is due."""
        for connection in self._connections.values():
            connection.retry()

    async def wait_until_started(self) -> None:
        """Wait until every server is ready or has failed; also start the lazy ones."""

        async def start(source: AnyToolServer) -> None:
            with suppress(ServerUnavailableError):
                await source.available()

        await self.wait_until_connected()
        async with anyio.create_task_group() as starts:
            for source in self.connections:
                if source.state == "waiting":
                    starts.start_soon(start, source)

    def attending(self, tokens: Mapping[str, str]) -> AbstractAsyncContextManager[None]:
        """Connect the servers that need a request's tokens and list their tools, inside this block.

        ``tokens`` are values by placeholder of ``headers_template``, or by server name.
        """
        return self.offerings.attending(tokens) if tokens else nullcontext()

    def servers(self) -> tuple[ServerState, ...]:
        """Return the state of each server, in the order of the configuration."""
        return tuple(connection.describe() for connection in self.connections)

    def tools(self, *, disabled: bool = False) -> tuple[ToolSpec, ...]:
        """Return the tools that may be shown to a model, or the ``disabled`` ones.

        They are in the order of the configuration, then in each server's.
        """
        tools = self._current().tools.values()
        return tuple(tool for tool in tools if self.switches.is_on(tool.server, tool.wire_name) != disabled)

    def remembered_tools(self) -> tuple[ToolSpec, ...]:
        """Return the enabled tools as they will be if each server that is starting has those of its last time."""
        sources = (server.remembered_tools if server.is_starting else server.tools for server in self.connections)
        tools = self._indexed([tool for source in sources for tool in source], self._offering()).tools.values()
        return tuple(tool for tool in tools if self.switches.is_on(tool.server, tool.wire_name))

    def resolve(self, name: str) -> ToolSpec | None:
        """Return the tool with that short or long name, also if disabled; None if the name is unknown or ambiguous."""
        index = self._current()
        return index.tools.get(index.aliases.get(name, name))

    def resolve_starting(self, name: str) -> ToolSpec | None:
        """Return the tool of a server that is still starting, by its long name or as it is remembered; None if unknown.

        It may be switched off before it can be called.
        """
        starting = [server for server in self.connections if server.is_starting]
        remembered = [tool for server in starting for tool in server.remembered_tools]
        matches = [tool for tool in remembered if name in (tool.name, tool.wire_name, tool.qualified_name)]
        if len(matches) == 1:
            return matches[0]
        prefixes = ((server.spec.name, f"mcp__{server.spec.name}__") for server in starting)
        long = ((server, name.removeprefix(prefix)) for server, prefix in prefixes if name.startswith(prefix))
        return next((ToolSpec(name, server=server, wire_name=wire) for server, wire in long if wire), None)

    def suggest(self, name: str) -> str | None:
        """Return the shown name most similar to a misspelt ``name``, or None."""
        names = {tool.name.lower(): tool.name for tool in self.tools()}
        for tool in self.tools():
            names.setdefault(safe_name(tool.wire_name).lower(), tool.name)
        for candidate in (name, name.rsplit("__", 1)[-1]):
            close = difflib.get_close_matches(safe_name(candidate).lower(), names, n=1)
            if close:
                return names[close[0]]
        return None

    def switch(self, name: str, *, is_on: bool) -> tuple[ToolSpec, ...]:
        """Enable or disable a tool, or all tools of a server, and return them.

        Raises:
            ToolboxError: no tool or server has that name.
        """
        # The owner chooses server names; a tool that has the name of a server must not take its place.
        if name in self._connections:
            self.switches.turn(name, is_on=is_on)
            return tuple(tool for tool in self._current().tools.values() if tool.server == name)
        tool = self.resolve(name) or self.resolve_starting(name)
        if tool is None:
            raise NotOfferedError(self._unknown(name))
        self.switches.turn(tool.server, tool.wire_name, is_on=is_on)
        return (tool,)

    async def call(self, call: ToolCall, context: CallContext = NO_CONTEXT) -> ToolResult:
        """Run a call. Every failure is an error result; only cancellation is raised.

        Args:
            call: the call, with a short or a long name.
            context: progress and approval callbacks, and the tokens that the call may use.
        """
        tool = self.resolve(call.name)
        if tool is None:
            return ToolResult(call.id, call.name, self._unknown(call.name), is_error=True)
        own_tools = next((tools for tools in self._own if tools.spec.name == tool.server), None)
        return await execute_call(
            self._connections.get(tool.server) or own_tools or self._resource_tools,
            tool,
            call,
            context,
            self._policies,
            foreign_tokens=self._foreign_tokens.get(tool.server, frozenset()),
            is_current=lambda: self.resolve(call.name) == tool,
        )

    # --- configured texts for the prompt ------------------------------------------------------------------------------

    def system_instructions(self) -> tuple[str, ...]:
        """Return the ``system_instruction`` of every available server that has one."""
        usable = (c.spec.system_instruction for c in self.connections if c.state not in ("failed", "stopped"))
        return tuple(instruction for instruction in usable if instruction)

    def response_instruction(self, name: str) -> str:
        """Return the ``response_instruction`` of a tool's server; empty if none is configured."""
        tool = self.resolve(name)
        source = self._connections.get(tool.server) if tool else None
        return source.spec.response_instruction or "" if source else ""

    def auto_context_tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools that are called with every question."""
        configured = {(c.spec.name, c.spec.auto_context_tool) for c in self.connections}
        return tuple(tool for tool in self.tools() if (tool.server, tool.wire_name) in configured)

    async def shares_in_data(self, question: str) -> Mapping[str, float]:
        """Return by tool which part of a question's own words its data has, from 0 to 1, of tools that have data."""
        shares = {server.spec.name: await server.shares_in_data(question) for server in self.connections}
        tools = ((tool, shares.get(tool.server, {})) for tool in self.tools())
        return {tool.name: of_server[tool.wire_name] for tool, of_server in tools if tool.wire_name in of_server}

    # --- names -------------------------------------------------------------------------------------------------------

    def _current(self) -> _Index:
        # Switches change without a notice.
        offering = self._offering()
        if self._index is None or self._indexed_resources != offering:
            tools = [tool for connection in self.connections for tool in connection.tools]
            self._index, self._indexed_resources = self._indexed(tools, offering), offering
        return self._index

    def _indexed(self, tools: Sequence[ToolSpec], offering: Mapping[str, Sequence[str]]) -> _Index:
        others = [*(self._resource_tools.tools if offering else ())]
        others += [tool for own in self._own if own.spec.name not in self._connections for tool in own.tools]
        presented: list[ToolSpec] = []
        for tool in (*tools, *others):
            visible, hidden = presentable(tool, self._policies.escape_description)
            key = (tool.server, tool.wire_name)
            # Removed invisible characters are reported once per tool.
            if hidden and key not in self._reported and self._on_status is not None:
                self._reported.add(key)
                count = f"{hidden} invisible character{'s' if hidden > 1 else ''}"
                subject = f"Tool '{on_one_line(tool.wire_name)}' of server '{tool.server}'"
                self._on_status(f"[MCP: {subject} has {count} in its description; they are left out]")
            connection = self._connections.get(tool.server)
            listed_names = connection.spec.listed_tools if connection else None
            if listed_names is not None:
                visible = replace(visible, on_demand=not matches_any(tool.wire_name, listed_names))
            presented.append(visible)
        names = shown_names([(tool.server, tool.wire_name) for tool in presented])
        by_name = {name: replace(tool, name=name) for name, tool in zip(names, presented, strict=True)}
        # An alias that several tools share resolves to none of them.
        aliases: dict[str, str | None] = {}
        for name, tool in by_name.items():
            for alias in {tool.wire_name, long_name(tool.server, tool.wire_name), tool.qualified_name} - {name}:
                aliases[alias] = None if alias in aliases else name
        unique = {alias: name for alias, name in aliases.items() if name is not None and alias not in by_name}
        return _Index(by_name, unique)

    def _offering(self) -> dict[str, tuple[str, ...]]:
        """Return names of resources by server, of the enabled servers that have any."""
        return {
            name: source.resource_names
            for name, source in self._connections.items()
            if source.resource_names and self.switches.is_on(name)
        }

    def _unknown(self, name: str) -> str:
        tools = self._current().tools.values()
        sharing = [tool.name for tool in tools if name in (tool.wire_name, safe_name(tool.wire_name))]
        if sharing:
            return f"Several servers have a tool '{name}'; name one of {', '.join(sharing)}."
        close = self.suggest(name)
        if close:
            return f"There is no tool '{name}'; did you mean '{close}'?"
        names = ", ".join(tool.name for tool in self.tools()[:_NAMED_TOOLS])
        return f"There is no tool '{name}'; {f'the tools are: {names}' if names else 'no tools are available'}."

    # --- status ------------------------------------------------------------------------------------------------------

    def _on_change(self, connection: AnyToolServer) -> None:
        self._index = None
        if self._on_status is None or connection.state in ("waiting", "connecting", "stopped"):
            return
        language, name = self._policies.language, connection.spec.name
        if connection.state == "ready":
            count = len(connection.tools)
            self._on_status(translate("servers.ready", language, server=name, count=count))
            return
        key = "servers.failed" if connection.state == "failed" else "servers.gone"
        lines = connection.notes.shown()[-_SHOWN_LINES:]
        output = "".join(f"\n    {line}" for line in lines)
        self._on_status(f"{translate(key, language, server=name, reason=connection.explanation())}{output}")
