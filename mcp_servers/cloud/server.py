"""MCP tools that ask a large model: one tool per vendor with an API key.

Descriptions are short, because a small model reads every token of them; they state first that the question leaves the
device. The annotations declare the tools read-only and open-world.
"""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from mcp_servers.cloud.client import CloudClient, CloudError, open_client
from mcp_servers.cloud.settings import NO_KEY, Settings, Vendor
from mcp_servers.program import TEXTS, read_texts, version, without_titles

CloudContext = Context[CloudClient, Any]

_TEXTS = read_texts(__file__)["ask"]

_QUESTION = "The whole question; the other model knows nothing of this conversation"


def create_server(settings: Settings) -> MCPServer[CloudClient]:
    """Create the server, to run on a transport or with an in-process client."""
    return MCPServer(
        "rkllm-mcp-cloud",
        title="クラウドの大規模モデル",
        instructions=None if settings.vendors else NO_KEY,
        version=version(),
        tools=[_tool(vendor, settings) for vendor in settings.vendors],
        lifespan=lambda _: open_client(settings),
        log_level="WARNING",
    )


def _tool(vendor: Vendor, settings: Settings) -> Tool:
    async def ask(
        question: Annotated[str, Field(description=_QUESTION)],
        ctx: CloudContext,
        system: Annotated[str, Field(description="How to answer")] = "",
        model: Annotated[str, Field(description="Which model")] = "",
        max_tokens: Annotated[int, Field(description="The longest answer, in tokens")] = 0,
    ) -> CallToolResult:
        client = ctx.request_context.lifespan_context
        try:
            text = await client.ask(vendor, question, system, model, max_tokens)
        except CloudError as error:
            content = TextContent(type="text", text=str(error))
            return CallToolResult(content=[content], is_error=True, _meta={TEXTS: error.texts})
        return CallToolResult(content=[TextContent(type="text", text=text)])

    name = vendor.api.name
    texts = {
        language: {**entry, **{part: entry[part].format(name=name) for part in ("title", "description")}}
        for language, entry in _TEXTS.items()
    }
    tool = Tool.from_function(
        ask,
        name=vendor.api.tool,
        description=f"Ask a large AI model of {name} what you cannot answer. The question leaves this device.",
        annotations=ToolAnnotations(title=f"{name}に質問", read_only_hint=True, open_world_hint=True),
        meta={TEXTS: texts},
    )
    # The limits are in the schema only: the client reports a violation in one sentence, pydantic in four lines.
    schema = without_titles(tool.parameters)
    schema["properties"]["model"] |= {"enum": list(vendor.models), "default": vendor.models[0]}
    limits = {"minimum": 1, "maximum": settings.max_tokens_limit, "default": settings.default_tokens}
    schema["properties"]["max_tokens"] |= limits
    return tool.model_copy(update={"parameters": schema})
