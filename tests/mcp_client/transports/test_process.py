"""However a host ends, its servers and everything they started are gone."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.mcp_client.transports.process import environment
from rkllm_mcp.messages import ToolCall
from rkllm_mcp.tools.tool_servers import open_toolbox
from tests.support.mcp_servers.leftovers import Holdings, watched_lives
from tests.support.mcp_servers.specs import PATIENCE_S, hostile, local_server, timed
from tests.support.shared import REPOSITORY


def test_the_environment_consists_of_the_common_variables_and_the_configured_ones() -> None:
    host = {"PATH": "/bin", "HOME": "/h", "LANG": "C", "SECRET": "s", "USER": "() { evil; }"}
    assert environment(local_server("s"), host) == {"PATH": "/bin", "HOME": "/h"}
    assert environment(local_server("s", inherit_env=("LANG", "TZ")), host) == {
        "PATH": "/bin",
        "HOME": "/h",
        "LANG": "C",
    }
    given = local_server("s", inherit_env=True, env={"PATH": "/opt", "NEW": "n"})
    assert environment(given, host) == {"PATH": "/opt", "HOME": "/h", "LANG": "C", "SECRET": "s", "NEW": "n"}


@pytest.mark.anyio
async def test_a_server_that_ignores_every_request_to_leave_is_gone_with_its_helpers(tmp_path: Path) -> None:
    with watched_lives(tmp_path) as lives, anyio.fail_after(PATIENCE_S):
        async with open_toolbox([hostile("stubborn", env=lives.env)], host=timed(stop_grace_s=0.1)) as toolbox:
            await toolbox.wait_until_connected()
            assert [state.state for state in toolbox.servers()] == ["ready"]
        await lives.all_ended()


@pytest.mark.anyio
async def test_what_a_server_leaves_running_is_gone_too(tmp_path: Path) -> None:
    with watched_lives(tmp_path) as lives, anyio.fail_after(PATIENCE_S):
        async with open_toolbox([hostile("orphaning", env=lives.env)]) as toolbox:
            await toolbox.wait_until_connected()
            assert [state.state for state in toolbox.servers()] == ["ready"]
        await lives.all_ended()


@pytest.mark.anyio
async def test_a_dead_server_is_noticed_although_its_helper_holds_its_output(tmp_path: Path) -> None:
    with watched_lives(tmp_path) as lives, anyio.fail_after(PATIENCE_S):
        async with open_toolbox([hostile("orphaning", env=lives.env)]) as toolbox:
            await toolbox.wait_until_connected()
            result = await toolbox.call(ToolCall("call_1", "die", {}))
            assert "it was killed by SIGKILL" in result.text
            await lives.all_ended()


@pytest.mark.anyio
async def test_servers_are_gone_when_the_host_is_cancelled(tmp_path: Path) -> None:
    with watched_lives(tmp_path) as lives, anyio.fail_after(PATIENCE_S):
        with anyio.CancelScope() as scope:
            async with open_toolbox([hostile("stubborn", env=lives.env)], host=timed(stop_grace_s=0.1)) as toolbox:
                await toolbox.wait_until_connected()
                scope.cancel()
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        await lives.all_ended()


@pytest.mark.anyio
async def test_servers_are_gone_when_the_host_is_cancelled_while_they_connect() -> None:
    before = Holdings()
    with anyio.fail_after(PATIENCE_S):
        with anyio.CancelScope() as scope:
            async with open_toolbox([hostile("silent")], host=timed(stop_grace_s=0.1)):
                # One turn, in which the program is started; it has not answered.
                await anyio.lowlevel.checkpoint()
                assert Holdings().children != before.children
                scope.cancel()
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        assert Holdings() == before


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_servers_are_gone_when_the_host_is_terminated(tmp_path: Path, how: signal.Signals) -> None:
    async def end() -> None:
        with anyio.fail_after(PATIENCE_S):
            await lives.all_ended()

    command = [sys.executable, "-m", "tests.support.mcp_servers.host", "stubborn"]
    with watched_lives(tmp_path) as lives:
        environ = {"PATH": "/usr/bin:/bin", **lives.env}
        with subprocess.Popen(
            command, cwd=REPOSITORY, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as host:
            assert host.stdout is not None
            try:
                assert host.stdout.readline() == b"[MCP: Server 'stubborn' is ready: 1 tool]\n"
                host.send_signal(how)
                host.wait(PATIENCE_S)
            finally:
                host.kill()
        anyio.run(end)
