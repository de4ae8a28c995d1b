from __future__ import annotations

import anyio
import pytest

from rkllm_mcp.tools.tool_servers import open_toolbox
from rkllm_mcp.tools.toolbox import report_slow_servers
from tests.support.mcp_servers.specs import hostile, tiny


@pytest.mark.anyio
async def test_who_waits_is_told_once_which_servers_are_still_connecting() -> None:
    silent = [hostile("silent", name, connect_timeout_s=limit_s) for name, limit_s in (("a", 20.0), ("b", 45.0))]
    lines: list[str] = []
    with anyio.fail_after(60):
        async with open_toolbox([tiny(), *silent]) as toolbox:
            await toolbox.connections[0].settled()
            await report_slow_servers(toolbox.connections, lines.append, 0)
            await report_slow_servers(toolbox.connections[:1], lines.append, 0)
    assert lines == ["[MCP: Still waiting for 'a', 'b', at most 45 s in all]"]
