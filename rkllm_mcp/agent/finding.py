"""``find_tools``: the tool by which a model reaches the tools that are not in its list.

It is the host's own. What it finds is told in its result, behind everything that was said, so the front of the prompt
stays as it is; a tool that was found may be called at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rkllm_mcp.calling import NO_CONTEXT, CallContext
from rkllm_mcp.messages import ToolCall, ToolResult, ToolSpec
from rkllm_mcp.prompt.signatures import signature

# What one search tells; more costs more prefill than another search.
FOUND_TOOLS = 5
_NAMES = ("find_tools", "find_more_tools", "host_find_tools")
# A list of servers says what there may be to find; a long one says nothing more.
_SERVERS_NAMED = 12


class Search(Protocol):
    """What finds tools."""

    async def search(self, request: str, tools: Sequence[ToolSpec]) -> Sequence[tuple[ToolSpec, float]]:
        """The tools that have anything to do with ``request``, the best first, with a score between 0 and about 1."""
        ...


class ToolCaller(Protocol):
    """What runs calls."""

    async def call(self, call: ToolCall, context: CallContext = NO_CONTEXT) -> ToolResult:
        """Run a call; a failing tool is a result, never an exception."""
        ...


def find_tools_spec(tools: Sequence[ToolSpec]) -> ToolSpec:
    """The tool itself, which says how many tools of which servers there are to find."""
    taken = {tool.name for tool in tools}
    name = next(name for name in (*_NAMES, "mcp__host__find_tools") if name not in taken)
    servers = list(dict.fromkeys(tool.server for tool in tools if tool.server))
    named = ", ".join(servers[:_SERVERS_NAMED]) + (", …" if len(servers) > _SERVERS_NAMED else "")
    return ToolSpec(
        name,
        f"Find more tools when no listed one fits. There are {len(tools)} tools, of: {named}.",
        {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "what the tool should do"}},
            "required": ["query"],
        },
        read_only=True,
    )


def is_host_tool(tool: ToolSpec) -> bool:
    """Whether a tool is the host's own; all others belong to a server."""
    return not tool.server


class Finder:
    """A way to run calls that answers ``find_tools`` itself.

    Args:
        inner: runs all other calls.
        search: finds tools.
        find: ``find_tools`` as the model was told of it.
        tools: the tools there are to find.
        told: by name, the tools whose parameters the conversation told; what is found is added.
    """

    def __init__(
        self, inner: ToolCaller, search: Search, find: ToolSpec, tools: Sequence[ToolSpec], told: dict[str, ToolSpec]
    ) -> None:
        self._inner = inner
        self._search = search
        self._find = find
        self._tools = tools
        self._told = told

    async def call(self, call: ToolCall, context: CallContext = NO_CONTEXT) -> ToolResult:
        """The tools that fit, as one line each; whatever else is called goes on."""
        if call.name != self._find.name:
            return await self._inner.call(call, context)
        query = str(call.arguments.get("query", ""))
        found = [tool for tool, _ in (await self._search.search(query, self._tools))[:FOUND_TOOLS]]
        if not found:
            return ToolResult(call.id, call.name, f"No tool fits '{query}'. Try other words, or answer without a tool.")
        self._told.update({tool.name: tool for tool in found})
        lines = "\n".join(map(signature, found))
        return ToolResult(call.id, call.name, f"{lines}\nCall one of these if it helps.")
