"""Other people's servers: PyPI's mcp-server-time and npm's server-filesystem."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.messages import ToolCall
from rkllm_mcp.tools.servers import ServerSpec
from rkllm_mcp.tools.toolbox import open_toolbox
from tests.support.mcp_servers.npm import npm_server
from tests.support.mcp_servers.specs import PATIENCE_S

pytestmark = pytest.mark.anyio


async def test_the_time_server_converts_between_time_zones() -> None:
    pytest.importorskip("mcp_server_time")
    spec = ServerSpec("time", command=sys.executable, args=("-m", "mcp_server_time", "--local-timezone", "Asia/Tokyo"))
    arguments = {"source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "Asia/Kathmandu"}
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([spec]) as toolbox:
            await toolbox.connected()
            assert [tool.name for tool in toolbox.tools()] == ["get_current_time", "convert_time"]
            result = await toolbox.call(ToolCall("call_1", "convert_time", arguments))
            assert not result.is_error
            assert '"time_difference":"-3.25h"' in result.text
            wrong = await toolbox.call(ToolCall("call_2", "convert_time", {**arguments, "time": "noon"}))
            assert wrong.is_error


async def test_the_filesystem_server_lists_and_reads_files(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    program = npm_server(request.config, "@modelcontextprotocol/server-filesystem", "mcp-server-filesystem")
    (tmp_path / "note.txt").write_text("天気は晴れ\n", encoding="utf-8")
    spec = ServerSpec(
        "files", command=str(program), args=(str(tmp_path),), excluded_tools=("write_*", "edit_*", "move_*")
    )
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([spec]) as toolbox:
            await toolbox.connected()
            names = [tool.name for tool in toolbox.tools()]
            assert "read_text_file" in names
            assert "write_file" not in names
            listing = await toolbox.call(ToolCall("call_1", "list_directory", {"path": str(tmp_path)}))
            assert listing.text == "[FILE] note.txt"
            text = await toolbox.call(ToolCall("call_2", "read_text_file", {"path": str(tmp_path / "note.txt")}))
            assert text.text.strip() == "天気は晴れ"
            missing = await toolbox.call(ToolCall("call_3", "read_text_file", {"path": str(tmp_path / "none")}))
            assert missing.is_error
