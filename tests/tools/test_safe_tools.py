"""``safe_tools``: what its owner knows of a tool and its server does not say."""

from __future__ import annotations

import sys

import anyio
import pytest

from rkllm_mcp.tools.tool_servers import open_toolbox
from tests.support.mcp_servers.specs import local_server

pytestmark = pytest.mark.anyio


async def test_tools_that_their_owner_calls_safe_only_read() -> None:
    tiny = ("-m", "tests.support.mcp_servers.tiny")
    spec = local_server("tiny", command=sys.executable, args=tiny, inherit_env=True, safe_tools=("add", "env*"))
    with anyio.fail_after(60):
        async with open_toolbox([spec]) as toolbox:
            await toolbox.wait_until_connected()
            safe = [tool.name for tool in toolbox.tools() if tool.read_only]
    assert safe == ["add", "environment"]
