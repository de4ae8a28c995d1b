"""``list_resources`` and ``read_resource``: resources of all servers, as tools for the model.

Follows mission "RKLLM CLI MCP対応", 3. リソース統合: the model reads a resource because the question needs it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from rkllm_mcp.catalogue import status_line
from rkllm_mcp.config.servers import BuiltinServer
from rkllm_mcp.errors import ToolboxError
from rkllm_mcp.events import ResourceRead
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.protocols import NO_CONTEXT, CallContext
from rkllm_mcp.toolcalls.results import text_result
from rkllm_mcp.toolcalls.untrusted_text import on_one_line

if TYPE_CHECKING:
    from rkllm_mcp.mcp_client.resources import ResourceHub

LIST, READ = "list_resources", "read_resource"
# What one list shows; a longer one is searched.
_LISTED = 20
_TEXT_CHARS = 120
_KEYWORD_CHARS = 2000
_COUNTED_CHARS = 1_000_000  # larger contents are not parsed to count their records


class ResourceTools:
    """The two tools as a server of this process.

    ``offering`` returns names and URIs of resources by server, of the servers that offer any; ``taken_names`` are those
    of other servers; with ``asks_always`` every call needs approval.
    """

    def __init__(
        self,
        hub: ResourceHub,
        offering: Callable[[], Mapping[str, Sequence[str]]],
        taken_names: Sequence[str],
        *,
        asks_always: bool,
    ) -> None:
        name = "resources"
        while name in taken_names:
            name = f"host_{name}"
        self.spec = BuiltinServer(name=name, tools=(), approve="always" if asks_always else "writes")
        self._hub = hub
        self._offering = offering

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools; none while no server offers a resource."""
        offering = self._offering()
        if not offering:
            return ()
        servers = ", ".join(offering)
        keywords = " ".join((servers, *(name for names in offering.values() for name in names)))[:_KEYWORD_CHARS]
        listing = f"List the resources (files, records, data) of: {servers}."
        return (
            self._tool(LIST, listing, {"query": "words of its name; all if omitted"}, keywords),
            self._tool(READ, f"Read a resource of: {servers}.", {"uri": "as list_resources shows it"}, keywords),
        )

    def _tool(self, name: str, description: str, parameters: Mapping[str, str], keywords: str) -> ToolSpec:
        properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
        schema = {"type": "object", "properties": properties, "required": [key for key in properties if name == READ]}
        server = self.spec.name
        return ToolSpec(name, description, schema, server, name, read_only=True, destructive=False, keywords=keywords)

    async def call(self, tool: str, arguments: Mapping[str, Any], context: CallContext = NO_CONTEXT) -> dict[str, Any]:
        """List or read; a resource that cannot be read is an error result."""
        run = self._read_resource if tool == READ else self._list
        try:
            text, is_error = await run(str(arguments.get("uri" if tool == READ else "query", "")), context), False
        except ToolboxError as error:
            text, is_error = f"{str(error)[:1].upper()}{str(error)[1:]}", True
        return text_result(text, is_error=is_error)

    async def _list(self, query: str, context: CallContext) -> str:
        offering = self._offering()
        resources, templates = await self._hub.readable(context=context)
        entries = [(resource.server, resource.uri, resource.name, resource.description) for resource in resources]
        entries += [
            (template.server, template.uri_template, template.name, template.description) for template in templates
        ]
        servers: dict[str, set[str]] = {}
        for server, uri, _, _ in entries:
            servers.setdefault(uri, set()).add(server)
        lines = [
            f"{uri if len(servers[uri]) == 1 else f'{server}:{uri}'} — {': '.join(filter(None, words))[:_TEXT_CHARS]}"
            for server, uri, *words in entries
            if server in offering
        ]
        words = query.lower().split()
        lines.sort(key=lambda line: -sum(word in line.lower() for word in words))
        more = [f"… and {len(lines) - _LISTED} more; name what you look for in a query."][: len(lines) > _LISTED]
        return "\n".join([*lines[:_LISTED], *more]) or "There are no resources."

    async def _read_resource(self, reference: str, context: CallContext) -> str:
        connection, uri = await self._hub.locate(reference, context)
        server = connection.spec.name
        if server not in self._offering():
            raise ToolboxError(f"server '{server}' offers no resources now")
        context.sink.feed([status_line("connecting", server=server)])
        content = await self._hub.read_resource(f"{server}:{uri}", context=context)
        context.sink.feed([ResourceRead(uri), status_line("resource", uri=on_one_line(uri))])
        if (count := _record_count(content.contents)) is not None:
            context.sink.feed([status_line("records_one" if count == 1 else "records", count=count)])
        return content.text


def _record_count(contents: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the number of records of a JSON list or a CSV table; None for other contents."""
    text = contents[0].get("text") if len(contents) == 1 else None
    if not isinstance(text, str) or len(text) > _COUNTED_CHARS:
        return None
    if contents[0].get("mimeType") == "text/csv":
        return max(0, sum(bool(line.strip()) for line in text.splitlines()) - 1)
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    # A list may be the only one of an object: {"users": [...]}.
    values: Iterable[Any] = cast("Mapping[str, Any]", value).values() if isinstance(value, dict) else [value]
    counts = [len(cast("list[Any]", records)) for records in values if isinstance(records, list)]
    return counts[0] if len(counts) == 1 else None
