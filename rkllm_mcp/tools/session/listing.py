"""A server's list of tools, all pages of it, becomes ``ToolSpec`` values under the server's own names.

Which tools are offered is decided here once.
"""

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
    """A server taken for one of 2026-07-28 has answered like an older one."""


async def list_tools(
    client: Client, spec: ServerSpec, note: Callable[[str], None], *, must_be_modern: bool = False
) -> tuple[ToolSpec, ...]:
    """The tools a server offers, in its order.

    Args:
        client: a connected client.
        spec: whose ``allowed_tools`` and ``excluded_tools`` decide.
        note: called with a line about each tool that is left out although it was allowed.
        must_be_modern: whether that it is of 2026-07-28 is only remembered, and so to be checked.

    Raises:
        MCPError: the server refuses.
        ValidationError: its answer cannot be read.
        NotOfThisEraError: it is an older one now.
    """
    offered: dict[str, ToolSpec] = {}

    async def fetch(cursor: str | None) -> ListToolsResult:
        page = await client.list_tools(cursor=cursor)
        # Required since 2026-07-28, unknown before. An older server may well answer a request without a handshake.
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
