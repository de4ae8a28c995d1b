"""What servers are told unasked for: folders, and from which level on their log is wanted."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from rkllm_mcp.config.loading import load_config
from rkllm_mcp.tools.tool_servers import open_toolbox
from tests.support.mcp_servers.calling import said
from tests.support.mcp_servers.specs import PATIENCE_S, asking

pytestmark = pytest.mark.anyio
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


@ERAS
async def test_a_server_receives_its_roots_and_without_any_it_cannot_ask(era: str) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([asking("told", era, roots=("/srv/my data",)), asking("untold", era)]) as toolbox:
            await toolbox.wait_until_connected()
            assert await said(toolbox, "mcp__told__ask_roots") == ("file:///srv/my%20data", False)
            text, is_error = await said(toolbox, "mcp__untold__ask_roots")
            assert is_error
            assert "List roots not supported" in text


@ERAS
async def test_a_log_is_asked_for_from_the_configured_level_on(era: str) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([asking("chatty", era, log_level="warning"), asking("free", era)]) as toolbox:
            await toolbox.wait_until_connected()
            assert await said(toolbox, "mcp__chatty__level") == ("warning", False)
            assert (await said(toolbox, "mcp__free__level"))[0] in ("(no output)", "info")


def test_roots_come_from_the_configuration_and_are_relative_to_it(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        """
        security.roots = ["work", "~/more"]
        [[servers]]
        name = "a"
        command = "x"
        sampling = "allow"
        elicitation = "defaults"
        log_level = "error"
        task_timeout_s = 5.0
        [[servers]]
        name = "b"
        command = "x"
        roots = []
        """,
        encoding="utf-8",
    )
    a, b = load_config(path, env={}).resolved_servers()
    assert a.roots == (tmp_path / "work", Path("~/more").expanduser())
    assert (a.sampling, a.elicitation, a.log_level, a.task_timeout_s) == ("allow", "defaults", "error", 5.0)
    assert (b.roots, b.sampling, b.elicitation, b.log_level) == ((), "ask", "ask", None)
