"""MCP server on stdio for a trial of a model: six tools with the same results every day.

``python -m rkllm_mcp.diagnostics.six_tools``. ``call`` is the same for a client that runs the tools itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations

from rkllm_mcp.builtin.calculator import calculate
from rkllm_mcp.builtin.function import LocalToolError

# Name, description, the only parameter, which is a text, and its description.
_TOOLS = (
    ("get_weather", "Get the current weather of a city.", "location", "Name of the city"),
    ("get_current_time", "Get the current time in a time zone.", "timezone", "IANA time zone name"),
    ("calculate", "Evaluate an arithmetic expression.", "expression", "The expression"),
    ("list_directory", "List the files of a directory.", "path", "Path of the directory"),
    ("read_text_file", "Read a text file.", "path", "Path of the file"),
    ("search_documents", "Search the company documents.", "query", "Words to search for"),
)
# Name, description and schema.
TOOLS = tuple(
    (
        name,
        description,
        {
            "type": "object",
            "properties": {parameter: {"type": "string", "description": about}},
            "required": [parameter],
        },
    )
    for name, description, parameter, about in _TOOLS
)
# The results that do not depend on the arguments; ``{value}`` is the argument.
_RESULTS: dict[str, Any] = json.loads(Path(__file__).with_name("six_results.json").read_text("utf-8"))


def call(name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the result of a call, and True for an error."""
    value = str(next(iter(arguments.values()), ""))
    if name == "calculate":
        try:
            return calculate(re.sub(r"[^\d\s.+\-*/()%×÷^,]", "", value)), False
        except LocalToolError as error:
            return str(error), True
    if name not in _RESULTS:
        return f"There is no tool {name}.", True
    result = _RESULTS[name]
    if isinstance(result, str):
        return result, False
    fields = {key: value if text == "{value}" else text for key, text in result.items()}
    return json.dumps(fields, ensure_ascii=False), False


async def _list_tools(_context: Any, _params: Any) -> ListToolsResult:
    hints = ToolAnnotations(read_only_hint=True)
    return ListToolsResult(
        tools=[
            Tool(name=name, description=text, input_schema=schema, annotations=hints) for name, text, schema in TOOLS
        ]
    )


async def _call_tool(_context: Any, params: Any) -> CallToolResult:
    text, is_error = call(params.name, params.arguments or {})
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)


async def _serve() -> None:
    server: Server[Any] = Server("six-tools", on_list_tools=_list_tools, on_call_tool=_call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(_serve)
