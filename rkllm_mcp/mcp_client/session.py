"""One MCP session: list tools and call them through ``mcp.Client``, page by page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import anyio

from rkllm_base.json_values import is_long, size_of
from rkllm_mcp.config.servers import MCPServerConfig, is_offered, matches_any
from rkllm_mcp.mcp_client import sdk
from rkllm_mcp.mcp_client.callbacks import visit_urls
from rkllm_mcp.mcp_client.message_filter import MOST_ITEMS, MOST_LIST_BYTES
from rkllm_mcp.messages import ANSWER, HELPER, QUESTION_ARGUMENT, TEXTS, TUNING, ToolSpec, as_list, as_mapping
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.tasks import run_costly
from rkllm_mcp.text import LANGUAGES
from rkllm_mcp.toolcalls.schemas import SchemaCostError, measure_schema

if TYPE_CHECKING:
    from mcp import Client
    from mcp.shared.dispatcher import ProgressFnT
    from mcp_types import ListToolsResult, RequestParamsMeta, Tool


# The largest known servers have some hundreds of tools or resources.
MAX_PAGES = 100
# Resources by whose names the search finds the tools that read them. A server that lists none in this time has none.
_NAMED_RESOURCES = 50
_RESOURCES_PATIENCE_S = 5.0


class _PageOfList(Protocol):
    next_cursor: str | None


_Page = TypeVar("_Page", bound=_PageOfList)
_Item = TypeVar("_Item")


async def all_pages(
    fetch: Callable[..., Awaitable[_Page]],
    items_of: Callable[[_Page], Sequence[_Item]],
    note: Callable[[str], None],
    what: str,
) -> list[_Item]:
    """Return the items of all pages; write a line to ``note`` if the list does not end.

    ``fetch`` requests the page at its argument ``cursor``, ``items_of`` returns the items of a page, ``what`` names
    them in the note.
    """
    items: list[_Item] = []
    cursors: set[str | None] = {None}
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        try:
            page = await fetch(cursor=cursor)
        except sdk.mcp.MCPError as error:
            if error.error.code == sdk.types.METHOD_NOT_FOUND and not items:
                return []
            raise
        items += items_of(page)
        cursor = page.next_cursor
        if cursor is None:
            return items
        if cursor in cursors or len(items) > MOST_ITEMS:
            break
        cursors.add(cursor)
    note(f"(its list of {what} does not end; the first {min(len(items), MOST_ITEMS)} are used)")
    return items[:MOST_ITEMS]


class NotOfThisEraError(Exception):
    """A server whose cached revision is 2026-07-28 answered like an older one."""


async def list_tools(
    client: Client, spec: MCPServerConfig, note: Callable[[str], None], *, must_be_modern: bool = False
) -> tuple[ToolSpec, ...]:
    """Return the tools that a server offers, in its order; ``note`` receives a line about each that is left out.

    Raises:
        MCPError: the server refused.
        ValidationError: the response is invalid.
        NotOfThisEraError: the revision must be 2026-07-28 (``must_be_modern``), and the server speaks an older one now.
    """

    async def fetch(cursor: str | None) -> ListToolsResult:
        page = await client.list_tools(cursor=cursor)
        # result_type is required since 2026-07-28. Older servers may answer without a handshake, but do not send it.
        if must_be_modern and "result_type" not in page.model_fields_set:
            raise NotOfThisEraError
        return page

    tools = await all_pages(fetch, lambda page: page.tools, note, "tools")
    notes: list[str] = []
    if is_long([[tool.description, tool.input_schema] for tool in tools]):
        offered = await run_costly(_offered_tools, tools, spec, notes.append)
    else:
        offered = _offered_tools(tools, spec, notes.append)
    for line in notes:
        note(line)
    return offered


def _offered_tools(tools: Sequence[Tool], spec: MCPServerConfig, note: Callable[[str], None]) -> tuple[ToolSpec, ...]:
    offered: dict[str, ToolSpec] = {}
    room = MOST_LIST_BYTES
    for tool in tools:
        if not is_offered(spec, tool.name):
            continue
        if tool.name in offered:
            note(f"(tool {tool.name!r} is listed twice; the first is used)")
            continue
        try:
            measure_schema(tool.input_schema)
        except SchemaCostError as error:
            note(f"(tool {tool.name!r} is left out: its input schema takes too much work: {error})")
            continue
        hints = tool.annotations
        # The arguments that a server says no model needs to read, of those that are not required.
        required = as_list(tool.input_schema.get("required"))
        names = as_list((tool.meta or {}).get(TUNING))
        tuning = tuple(name for name in names if isinstance(name, str) and name not in required)
        # Its texts by language, without what is not a text.
        texts_by_language: dict[str, dict[str, Any]] = {}
        for language in LANGUAGES:
            entry = as_mapping(as_mapping((tool.meta or {}).get(TEXTS)).get(language))
            texts = {name: entry[name] for name in ("title", "description") if isinstance(entry.get(name), str)}
            words = as_mapping(entry.get("parameters"))
            parameters = {name: text for name, text in words.items() if isinstance(text, str)}
            if texts or parameters:
                texts_by_language[language] = {**texts, "parameters": parameters}
        # The argument that takes the user's words, if its schema lists it as a text.
        stated_name = (tool.meta or {}).get(QUESTION_ARGUMENT)
        question = stated_name if isinstance(stated_name, str) else ""
        schema = as_mapping(as_mapping(tool.input_schema.get("properties")).get(question))
        tool_spec = ToolSpec(
            name=tool.name,
            description=tool.description or tool.title or "",
            input_schema=tool.input_schema,
            server=spec.name,
            wire_name=tool.name,
            read_only=hints.read_only_hint if hints else None,
            destructive=hints.destructive_hint if hints else None,
            as_task=tool.execution is not None and tool.execution.task_support == "required",
            title=tool.title or (hints.title if hints else None) or "",
            texts=texts_by_language,
            question_argument=question if schema.get("type") == "string" else "",
            is_helper=(tool.meta or {}).get(HELPER) is True,
            tuning=tuning,
        )
        room -= size_of([tool_spec.name, tool_spec.title, tool_spec.description, tool_spec.input_schema], room + 1)
        if room < 0:
            note(f"(its tools have more than {MOST_LIST_BYTES // 1024**2} MB; the first {len(offered)} are used)")
            break
        offered[tool.name] = (
            replace(tool_spec, read_only=True) if matches_any(tool.name, spec.safe_tools) else tool_spec
        )
    return tuple(offered.values())


async def resource_names(client: Client) -> tuple[str, ...]:
    """Return names and URIs of a server's first resources; empty if it has none, or does not list them in time."""
    if client.server_capabilities.resources is None:
        return ()
    try:
        with anyio.move_on_after(_RESOURCES_PATIENCE_S):
            resources = (await client.list_resources()).resources
            if resources:
                return tuple(f"{entry.title or entry.name} {entry.uri}" for entry in resources[:_NAMED_RESOURCES])
            templates = (await client.list_resource_templates()).resource_templates
            return tuple(f"{entry.title or entry.name} {entry.uri_template}" for entry in templates[:_NAMED_RESOURCES])
    except Exception:  # noqa: BLE001  (the SDK raises several unrelated types; the tools serve without resources)
        return ()
    return ()


# Our knowledge server returns to such a call only what probably answers the question; other servers may do the same.
_AUTOMATIC: RequestParamsMeta = cast("RequestParamsMeta", {"io.github.rkllm-mcp/automatic": True})


async def call_tool(
    client: Client,
    spec: MCPServerConfig,
    tool: str,
    arguments: Mapping[str, Any],
    context: CallContext,
    *,
    as_task: bool,
) -> dict[str, Any]:
    """Call a tool by its wire name, as a task if it requires one (2025-11-25); return the JSON of the result."""
    is_again = False
    while True:
        try:
            if as_task and client.session.discover_result is None:
                from rkllm_mcp.mcp_client.tasks import call_as_task

                result = await call_as_task(client, tool, arguments, context, spec.task_timeout_s)
            else:
                # The SDK passes the values by position.
                on_progress = cast("ProgressFnT | None", context.on_progress)
                meta = _AUTOMATIC if context.is_automatic else None
                result = await client.call_tool(tool, dict(arguments), progress_callback=on_progress, meta=meta)
            break
        except sdk.mcp.MCPError as error:
            if is_again or not await visit_urls(error, spec, context):
                raise
            is_again = True
    answer: dict[str, Any] = {
        "content": [block.model_dump(by_alias=True, exclude_none=True, mode="json") for block in result.content],
        "isError": result.is_error,
    }
    if result.structured_content is not None:
        answer["structuredContent"] = result.structured_content
    if own_meta := {key: value for key, value in (result.meta or {}).items() if key in (ANSWER, TEXTS)}:
        answer["_meta"] = own_meta
    return answer
