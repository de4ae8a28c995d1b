"""Servers behind HTTP: Streamable HTTP and SSE, with headers, and what happens when they are not there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

import anyio
import pytest

from rkllm_mcp import MCPClient
from rkllm_mcp.messages import ToolCall
from rkllm_mcp.tools.servers import ServerSpec
from rkllm_mcp.tools.toolbox import open_toolbox
from tests.support.mcp_servers.specs import PATIENCE_S
from tests.support.shared import REPOSITORY

pytestmark = pytest.mark.anyio

HTTP: Literal["http"] = "http"
SSE: Literal["sse"] = "sse"
PATHS = {HTTP: "mcp", SSE: "sse"}


@contextmanager
def remote(transport: Literal["http", "sse"], port: int = 0) -> Generator[str]:
    """The address of a server behind HTTP that lives as long as the block."""
    command = [sys.executable, "-m", "tests.support.mcp_servers.remote", transport, str(port)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/{PATHS[transport]}"
        finally:
            process.kill()


@pytest.mark.parametrize("transport", [HTTP, SSE])
async def test_a_server_behind_http_is_called_with_its_headers(transport: Literal["http", "sse"]) -> None:
    with remote(transport) as url, anyio.fail_after(PATIENCE_S):
        spec = ServerSpec("remote", transport, url=url, headers={"X-Token": "t0k3n"})
        async with open_toolbox([spec]) as toolbox:
            await toolbox.connected()
            result = await toolbox.call(ToolCall("call_1", "header", {"name": "x-token"}))
            assert (result.text, result.is_error) == ("t0k3n", False)


@pytest.mark.parametrize("transport", [HTTP, SSE])
async def test_a_server_behind_http_that_dies_costs_a_call_and_is_connected_again(
    transport: Literal["http", "sse"],
) -> None:
    with anyio.fail_after(PATIENCE_S), remote(transport) as url:
        spec = ServerSpec("remote", transport, url=url)
        async with open_toolbox([spec]) as toolbox:
            await toolbox.connected()
            result = await toolbox.call(ToolCall("call_1", "die", {}))
            assert result.is_error
            with remote(transport, int(url.rsplit(":", 1)[1].split("/")[0])):
                result = await toolbox.call(ToolCall("call_2", "header", {"name": "host"}))
                assert result.is_error is False


async def test_an_address_without_a_server_is_a_connection_error() -> None:
    with anyio.fail_after(PATIENCE_S), pytest.raises(ConnectionError, match=r"http://127.0.0.1:1/mcp cannot be used"):
        async with MCPClient(url="http://127.0.0.1:1/mcp"):
            pass


async def test_the_client_speaks_to_a_url() -> None:
    with remote(HTTP) as url, anyio.fail_after(PATIENCE_S):
        async with MCPClient(url=url) as session:
            assert [tool["name"] for tool in await session.list_tools()] == ["header", "die"]
