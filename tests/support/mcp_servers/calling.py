"""Calls a toolbox as the loop does."""

from __future__ import annotations

from typing import Any

from rkllm_mcp.messages import ToolCall, ToolResult
from rkllm_mcp.tools.toolbox import Toolbox


async def call(toolbox: Toolbox, name: str, /, **arguments: Any) -> ToolResult:
    return await toolbox.call(ToolCall("call_1", name, arguments))


async def said(toolbox: Toolbox, name: str, /, **arguments: Any) -> tuple[str, bool]:
    result = await call(toolbox, name, **arguments)
    return result.text, result.is_error
