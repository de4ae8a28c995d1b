"""Calls of the weather server's tools, as a client makes them."""

from __future__ import annotations

from typing import Any

import anyio
from mcp import Client
from mcp_types import TextContent


class Answered:
    """A tool result, as a client sees it."""

    def __init__(self, text: str, is_error: bool, structured: Any) -> None:
        self.text, self.is_error, self.structured = text, is_error, structured


async def call(client: Client, tool: str, /, **arguments: Any) -> Answered:
    with anyio.fail_after(60):
        result = await client.call_tool(tool, arguments)
    (content,) = result.content
    assert isinstance(content, TextContent)
    return Answered(content.text, result.is_error, result.structured_content)
