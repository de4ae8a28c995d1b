"""A server's list of tools, all pages of it, becomes ``ToolSpec`` values under the server's own names.

Bounded: a server that pages for ever, or repeats a cursor, is cut off with a note. Which tools are offered is decided
    here once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.tools.policy import is_offered
from rkllm_mcp.tools.servers import ServerSpec

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Tool

# Far more than a model can be shown; the largest known servers have some hundreds.
_MAX_TOOLS = 2000
_MAX_PAGES = 100


async def list_tools(client: Client, spec: ServerSpec, note: Callable[[str], None]) -> tuple[ToolSpec, ...]:
    """The tools a server offers, in its order.

    Args:
        client: a connected client.
        spec: whose ``allowed_tools`` and ``excluded_tools`` decide.
        note: called with a line about each tool that is left out although it was allowed.

    Raises:
        MCPError: the server refuses.
        ValidationError: its answer cannot be read.
    """
    offered: dict[str, ToolSpec] = {}
    for tool in await _all_pages(client, note):
        if not is_offered(spec, tool.name):
            continue
        if tool.name in offered:
            note(f"(tool {tool.name!r} is listed twice; the first is used)")
        elif tool.execution is not None and tool.execution.task_support == "required":
            note(f"(tool {tool.name!r} only runs as a task, which this version cannot do; it is left out)")
        else:
            offered[tool.name] = _spec(tool, spec.name)
    return tuple(offered.values())


async def _all_pages(client: Client, note: Callable[[str], None]) -> list[Tool]:
    from mcp import MCPError
    from mcp_types import METHOD_NOT_FOUND

    tools: list[Tool] = []
    cursors: set[str | None] = {None}
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        try:
            page = await client.list_tools(cursor=cursor)
        except MCPError as error:
            # A server of prompts and resources alone need not know the method.
            if error.error.code == METHOD_NOT_FOUND and not tools:
                return []
            raise
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return tools
        if cursor in cursors or len(tools) > _MAX_TOOLS:
            break
        cursors.add(cursor)
    note(f"(its list of tools does not end; the first {min(len(tools), _MAX_TOOLS)} are used)")
    return tools[:_MAX_TOOLS]


def _spec(tool: Tool, server: str) -> ToolSpec:
    hints = tool.annotations
    return ToolSpec(
        name=tool.name,
        description=tool.description or tool.title or "",
        input_schema=tool.input_schema,
        server=server,
        wire_name=tool.name,
        read_only=hints.read_only_hint if hints else None,
        destructive=hints.destructive_hint if hints else None,
    )
