"""Calls of an API's operations as tests make them: a specification in a few words, and what came of a call."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio

from rkllm_mcp.config.servers import OpenAPIServer
from rkllm_mcp.openapi.source import open_openapi
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.tools.tool_servers import LocalToolServer

PATIENCE_S = 60


def specification(paths: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": paths, **more}


@asynccontextmanager
async def opened(document: Any, url: str, **settings: Any) -> AsyncGenerator[LocalToolServer]:
    """A source for a specification, ready or failed."""
    entry: dict[str, Any] = {"name": "api", "openapi_base_url": url or None, "openapi_spec": document, **settings}
    server = OpenAPIServer.model_validate(entry)
    source = LocalToolServer(server, partial(open_openapi, server))
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(source.run)
            await source.wait_until_settled()
            try:
                yield source
            finally:
                source.stop()


async def call(
    source: LocalToolServer, tool: str, /, *, tokens: Mapping[str, str] | None = None, **arguments: Any
) -> str:
    """The text of a result, ``error: `` before it when it is one."""
    result = await source.call(tool, arguments, CallContext(tokens=tokens or {}))
    text = result["content"][0]["text"]
    return f"error: {text}" if result["isError"] else text


async def echo(source: LocalToolServer, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """How the API says it was called."""
    return json.loads(await call(source, tool, **arguments))
