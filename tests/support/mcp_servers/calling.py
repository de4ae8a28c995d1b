"""Connects a toolbox to servers, and calls it as the loop does."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from rkllm_mcp.config.servers import StdioServer
from rkllm_mcp.messages import ToolCall, ToolResult
from rkllm_mcp.tools.tool_servers import open_toolbox
from rkllm_mcp.tools.toolbox import Toolbox
from tests.support.mcp_servers.specs import PATIENCE_S


@asynccontextmanager
async def toolbox_with(*specs: StdioServer, **options: Any) -> AsyncGenerator[Toolbox]:
    """A toolbox whose servers are connected; the options are those of ``open_toolbox``."""
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox(specs, **options) as toolbox:
            await toolbox.wait_until_connected()
            yield toolbox


async def call(toolbox: Toolbox, name: str, /, **arguments: Any) -> ToolResult:
    return await toolbox.call(ToolCall("call_1", name, arguments))


async def said(toolbox: Toolbox, name: str, /, **arguments: Any) -> tuple[str, bool]:
    result = await call(toolbox, name, **arguments)
    return result.text, result.is_error
