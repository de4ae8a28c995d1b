"""Convert a server's tools/list result, all pages, to ``ToolSpec`` values, filtered by the configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.toolcalls.schemas import SchemaCostError, measure_schema
from rkllm_mcp.tools.policy import is_offered, is_safe
from rkllm_mcp.tools.servers import ServerSpec
from rkllm_mcp.tools.session.paging import all_pages

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import ListToolsResult, Tool


class NotOfThisEraError(Exception):
    """A server whose cached revision is 2026-07-28 answered like an older one."""


async def list_tools(
    client: Client, spec: ServerSpec, note: Callable[[str], None], *, must_be_modern: bool = False
) -> tuple[ToolSpec, ...]:
    """Return the tools that a server offers, in its order.

    ``must_be_modern`` checks a cached revision of 2026-07-28. ``note`` receives a line about each duplicate tool.

    Raises:
        MCPError: the server refused.
        ValidationError: the response is invalid.
        NotOfThisEraError: the server speaks an older revision now.
    """
    offered: dict[str, ToolSpec] = {}

    async def fetch(cursor: str | None) -> ListToolsResult:
        page = await client.list_tools(cursor=cursor)
        # result_type is required since 2026-07-28. Older servers may answer without a handshake, but do not send it.
        if must_be_modern and "result_type" not in page.model_fields_set:
            raise NotOfThisEraError
        return page

    for tool in await all_pages(fetch, lambda page: page.tools, note, "tools"):
        if not is_offered(spec, tool.name):
            continue
        if tool.name in offered:
            note(f"(tool {tool.name!r} is listed twice; the first is used)")
        else:
            try:
                measure_schema(tool.input_schema)
            except SchemaCostError as error:
                note(f"(tool {tool.name!r} is left out: its input schema takes too much work: {error})")
                continue
            listed = _spec(tool, spec.name)
            offered[tool.name] = replace(listed, read_only=True) if is_safe(spec, tool.name) else listed
    return tuple(offered.values())


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
        as_task=tool.execution is not None and tool.execution.task_support == "required",
    )
