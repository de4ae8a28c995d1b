"""MCP tools of the weather service.

MCP results carry the answer twice, as structured content and as text. The text is the same JSON without spaces, or for
a question in words the sentence in its language. Descriptions are short and schemas without titles, because a small
model reads every token of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field

from mcp_servers.program import ANSWER, ERROR, HELPER, QUESTION_ARGUMENT, TEXTS, read_texts, version, without_titles
from mcp_servers.weather.errors import WeatherError
from mcp_servers.weather.service import MAX_DAYS, PlacesAnswer, WeatherAnswer, WeatherService, open_weather
from mcp_servers.weather.settings import Clock, Settings

_TEXTS = read_texts(__file__)

Weather = Context[WeatherService, Any]

Location = Annotated[
    str, Field(description="Place in Japan, as the question names it; with its prefecture if ambiguous")
]
# The limits are in the schema only: the service reports a violation in one sentence, pydantic in four lines.
Days = Annotated[
    int, Field(description="How many days, from today", json_schema_extra={"minimum": 1, "maximum": MAX_DAYS})
]
Name = Annotated[str, Field(description="Place name")]


async def get_weather(location: Location, ctx: Weather) -> Annotated[CallToolResult, WeatherAnswer]:
    """Today's weather at a place in Japan: sky, temperature, chance of rain."""
    return await _result(ctx.request_context.lifespan_context.forecast(location))


async def get_forecast(location: Location, ctx: Weather, days: Days = 3) -> Annotated[CallToolResult, WeatherAnswer]:
    """Weather forecast for the next days at a place in Japan."""
    return await _result(ctx.request_context.lifespan_context.forecast(location, days))


async def find_area(name: Name, ctx: Weather) -> Annotated[CallToolResult, PlacesAnswer]:
    """List the places in Japan that a name can mean."""
    return await _result(ctx.request_context.lifespan_context.places(name))


def create_server(settings: Settings, clock: Clock) -> MCPServer[WeatherService]:
    """Create the server, to run on a transport or with an in-process client."""
    return MCPServer(
        "rkllm-mcp-weather",
        title="気象庁の天気予報",
        version=version(),
        tools=[
            _tool(get_weather, "天気 / Weather"),
            _tool(get_forecast, "天気予報 / Forecast"),
            _tool(find_area, "地名検索 / Find a place"),
        ],
        lifespan=lambda _: open_weather(settings, clock),
        log_level="WARNING",
    )


def _tool(function: Callable[..., Any], title: str) -> Tool:
    annotations = ToolAnnotations(title=title, read_only_hint=True, idempotent_hint=True, open_world_hint=True)
    meta: dict[str, Any] = {TEXTS: _TEXTS[function.__name__]}
    meta |= {HELPER: True} if function is find_area else {QUESTION_ARGUMENT: "location"}
    tool = Tool.from_function(function, annotations=annotations, meta=meta)
    return tool.model_copy(update={"parameters": without_titles(tool.parameters)})


async def _result(answering: Awaitable[BaseModel]) -> CallToolResult:
    """Return an answer as a tool result; a WeatherError becomes an error result without the SDK's prefix."""
    try:
        answer = await answering
    except WeatherError as error:
        content = TextContent(type="text", text=str(error))
        return CallToolResult(content=[content], is_error=True, _meta={ERROR: error.details(), TEXTS: error.texts})
    sentence = answer.sentence() if isinstance(answer, WeatherAnswer) else ""
    return CallToolResult(
        content=[TextContent(type="text", text=sentence or answer.model_dump_json(exclude_none=True))],
        structured_content=answer.model_dump(mode="json", exclude_none=True),
        _meta={ANSWER: True} if sentence else None,
    )
