"""The questions as MCP tools: one for each vendor whose key is set.

The tools say little about themselves, because a small model pays for every token of it; what they say first is that a
question leaves the device. They change nothing, and they reach out into the world: that is what their hints say.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, cast

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from mcp_servers.cloud.asking import Asking, open_asking
from mcp_servers.cloud.errors import CloudError
from mcp_servers.cloud.settings import NO_KEY, Settings, Vendor, version

Cloud = Context[Asking, Any]
Ask = Callable[..., Awaitable[CallToolResult]]

_QUESTION = "The whole question; the other model knows nothing of this conversation"


def create_server(settings: Settings) -> MCPServer[Asking]:
    """The server, ready to be run on a transport or given to an in-process client.

    Args:
        settings: who may be asked, and how much.
    """

    @asynccontextmanager
    async def lifespan(_: MCPServer[Asking]) -> AsyncGenerator[Asking, None]:
        async with open_asking(settings) as asking:
            yield asking

    return MCPServer(
        "rkllm-mcp-cloud",
        title="クラウドの大規模モデル",
        instructions=None if settings.vendors else NO_KEY,
        version=version(),
        tools=[_tool(vendor, settings) for vendor in settings.vendors],
        lifespan=lifespan,
        log_level="WARNING",
    )


def _tool(vendor: Vendor, settings: Settings) -> Tool:
    async def ask(
        question: Annotated[str, Field(description=_QUESTION)],
        ctx: Cloud,
        system: Annotated[str, Field(description="How to answer")] = "",
        model: Annotated[str, Field(description="Which model")] = "",
        max_tokens: Annotated[int, Field(description="The longest answer, in tokens")] = 0,
    ) -> CallToolResult:
        asking = ctx.request_context.lifespan_context
        try:
            text = await asking.ask(vendor, question, system, model, max_tokens)
        except CloudError as error:
            return CallToolResult(content=[TextContent(type="text", text=str(error))], is_error=True)
        return CallToolResult(content=[TextContent(type="text", text=text)])

    name = vendor.interface.name
    tool = Tool.from_function(
        ask,
        name=vendor.interface.tool,
        description=f"Ask a large AI model of {name} what you cannot answer. The question leaves this device.",
        annotations=ToolAnnotations(title=f"{name}に質問", read_only_hint=True, open_world_hint=True),
    )
    return tool.model_copy(update={"parameters": _bare(tool.parameters, vendor, settings)})


def _bare(schema: dict[str, Any], vendor: Vendor, settings: Settings) -> dict[str, Any]:
    """The schema of the arguments without the titles pydantic adds, and with what may be chosen.

    The limits are in the schema only: the service refuses other values in a sentence, pydantic would in four lines.
    """
    properties = cast("dict[str, dict[str, Any]]", schema["properties"])
    bare = {name: {key: value for key, value in part.items() if key != "title"} for name, part in properties.items()}
    bare["model"] = {**bare["model"], "enum": list(vendor.models), "default": vendor.models[0]}
    limits = {"minimum": 1, "maximum": settings.most_tokens, "default": settings.usual_tokens}
    bare["max_tokens"] = {**bare["max_tokens"], **limits}
    return {key: value for key, value in schema.items() if key != "title"} | {"properties": bare}
