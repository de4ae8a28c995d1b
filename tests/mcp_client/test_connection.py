"""One server's life: coming up or not, serving, dying, coming back."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.messages import ToolCall
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.tools.execution import ExecutionPolicies
from rkllm_mcp.tools.tool_servers import open_toolbox
from rkllm_mcp.tools.toolbox import Toolbox
from tests.support.clock import standing_clock, turn
from tests.support.mcp_servers.calling import call, said
from tests.support.mcp_servers.specs import PATIENCE_S, hostile, local_server, remote_server, timed, tiny

pytestmark = pytest.mark.anyio


async def test_a_server_that_fails_is_left_out_with_its_last_words_and_the_rest_go_on() -> None:
    heard: list[str] = []
    servers = [
        hostile("exits"),
        hostile("silent", connect_timeout_s=0.5),
        local_server("missing", command="no-such-program-here"),
        remote_server("elsewhere", "websocket", url="ws://127.0.0.1:1"),
        tiny(),
    ]
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox(servers, on_status=heard.append) as toolbox:
            await toolbox.wait_until_connected()
            states = {state.name: state for state in toolbox.servers()}
            assert await said(toolbox, "add", a=1, b=1) == ("2", False)
    assert {name: state.state for name, state in states.items()} == {
        "exits": "failed",
        "silent": "failed",
        "missing": "failed",
        "elsewhere": "failed",
        "tiny": "ready",
    }
    assert states["exits"].reason.startswith("it exited with code 3 before it was ready")
    assert states["exits"].last_lines == ("reading settings", "fatal: no API key")
    assert states["silent"].reason.startswith("it was not ready within 0.5 s")
    assert states["missing"].reason.startswith("'no-such-program-here' was not found; install it")
    assert states["elsewhere"].reason.startswith("ws://127.0.0.1:1 cannot be used: ")
    (line,) = [line for line in heard if "'exits'" in line]
    assert line.startswith("[MCP: Server 'exits' is left out: it exited with code 3")
    assert line.endswith("\n    reading settings\n    fatal: no API key")
    assert "[MCP: Server 'tiny' is ready: 7 tools]" in heard


async def test_a_server_that_is_killed_in_a_call_costs_that_call_and_is_started_again_at_the_next() -> None:
    heard: list[str] = []
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox(
            [hostile("dying")], host=timed(restart_pause_s=1000), on_status=heard.append
        ) as toolbox:
            await toolbox.wait_until_connected()
            text, is_error = await said(toolbox, "die")
            assert is_error
            assert "'dying' was lost during the call: it was killed by SIGKILL" in text
            assert [state.state for state in toolbox.servers()] == ["died"]
            assert heard[-1].startswith("[MCP: Server 'dying' is gone: it was killed by SIGKILL; it is started again")
            assert heard[-1].endswith("\n    about to go")
            assert await said(toolbox, "echo", text="back") == ("back", False)
            assert [state.state for state in toolbox.servers()] == ["ready"]


async def test_a_server_that_never_stays_up_is_not_started_again_at_once() -> None:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([hostile("dying")], host=timed(restart_pause_s=1000)) as toolbox:
            await toolbox.wait_until_connected()
            await call(toolbox, "die")
            await call(toolbox, "die")
            text, is_error = await said(toolbox, "echo", text="x")
            assert is_error
            assert text == "Server 'dying' is down and can be tried again in 60 s: it was killed by SIGKILL."


async def test_a_dead_server_keeps_its_tools_and_several_callers_wait_for_the_same_restart() -> None:
    texts: list[str] = []

    async def echo(toolbox: Toolbox, text: str) -> None:
        texts.append((await call(toolbox, "echo", text=text)).text)

    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([hostile("dying")]) as toolbox:
            await toolbox.wait_until_connected()
            await call(toolbox, "die")
            assert [tool.name for tool in toolbox.tools()] == ["die", "echo"]
            # What a question may use while it starts again.
            assert [tool.name for tool in toolbox.connections[0].remembered_tools] == ["die", "echo"]
            async with anyio.create_task_group() as callers:
                for text in ("a", "b", "c"):
                    callers.start_soon(echo, toolbox, text)
    assert sorted(texts) == ["a", "b", "c"]


async def test_a_server_that_stops_listening_is_noticed_and_started_again() -> None:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([hostile("deaf")], host=timed(stop_grace_s=0.5)) as toolbox:
            await toolbox.wait_until_connected()
            assert await said(toolbox, "stop_listening") == ("closed", False)
            text, is_error = await said(toolbox, "echo", text="x")
            assert is_error
            assert "was lost during the call" in text
            assert await said(toolbox, "echo", text="x") == ("x", False)


@standing_clock
async def test_a_slow_tool_is_stopped_and_its_server_stays_usable() -> None:
    async def wait(toolbox: Toolbox) -> None:
        assert await said(toolbox, "wait") == ("Tool 'wait' did not answer within 30 s and was stopped.", True)

    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([tiny(timeout_s=30.0)]) as toolbox:
            await toolbox.wait_until_connected()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait, toolbox)
                # Served in order: when this has its answer, the server has the other call.
                await turn(0)
                await said(toolbox, "add", a=1, b=1)
                await turn(30.0)
            assert await said(toolbox, "cancellations") == ("wait", False)


async def test_cancelling_the_caller_cancels_the_call_and_nothing_else() -> None:
    async def wait(toolbox: Toolbox) -> None:
        await call(toolbox, "wait")

    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([tiny()]) as toolbox:
            await toolbox.wait_until_connected()
            async with anyio.create_task_group() as callers:
                callers.start_soon(wait, toolbox)
                # Served in order: when this has its answer, the server has the other call.
                await anyio.lowlevel.checkpoint()
                await call(toolbox, "add", a=1, b=1)
                callers.cancel_scope.cancel()
            assert await said(toolbox, "cancellations") == ("wait", False)


async def test_progress_is_passed_on_in_order() -> None:
    reports: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total, message))

    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([tiny()]) as toolbox:
            await toolbox.wait_until_connected()
            result = await toolbox.call(ToolCall("call_1", "steps", {"count": 3}), CallContext(on_progress=note))
    assert result.text == "done"
    assert reports == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_changed_tools_are_listed_again_and_only_a_change_is_announced(era: str) -> None:
    changed = anyio.Event()
    heard: list[str] = []

    def hear(line: str) -> None:
        heard.append(line)
        if "8 tools" in line:
            changed.set()

    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([tiny("t", era)], on_status=hear) as toolbox:
            await toolbox.wait_until_connected()
            assert await said(toolbox, "learn", name="add") == ("learnt", False)
            # The list that was announced is asked for before this is.
            assert await said(toolbox, "add", a=1, b=1) == ("2", False)
            assert await said(toolbox, "learn", name="juggle") == ("learnt", False)
            await changed.wait()
            assert toolbox.tools()[-1].name == "juggle"
    assert [line.rpartition(": ")[2] for line in heard] == ["7 tools]", "8 tools]"]


async def test_noise_on_stdout_and_a_flood_on_stderr_harm_no_other_server() -> None:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([hostile("noisy")]) as toolbox:
            await toolbox.wait_until_connected()
            assert await said(toolbox, "echo", text="hi") == ("hi", False)
            assert len(toolbox.servers()[0].last_lines) == 40


async def test_half_a_character_does_not_lose_its_answer() -> None:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([hostile("halves")]) as toolbox:
            await toolbox.wait_until_connected()
            assert await said(toolbox, "echo", text="HALF") == ("?", False)


async def test_a_huge_result_is_cut_and_one_beyond_all_measure_ends_the_connection() -> None:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([hostile("huge")], policies=ExecutionPolicies(result_chars=150)) as toolbox:
            await toolbox.wait_until_connected()
            result = await call(toolbox, "say_much", megabytes=6)
            remark = "… truncated, 999850 more characters; call it again for a smaller part to see them"
            assert result.text == "あ" * 150 + f"\n{remark}"
            assert result.truncated
            text, is_error = await said(toolbox, "say_much", megabytes=40)
            assert is_error
            assert "it sent a message of more than 32 MB" in text
            assert await said(toolbox, "echo", text="x") == ("x", False)


async def test_a_server_gets_only_the_environment_it_is_given() -> None:
    with anyio.fail_after(PATIENCE_S):
        servers = [tiny("bare", env={"TOKEN": "t"}), tiny("rich", inherit_env=True)]
        async with open_toolbox(servers) as toolbox:
            await toolbox.wait_until_connected()
            names, _ = await said(toolbox, "mcp__bare__environment")
            assert set(names.split(",")) <= {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LC_CTYPE", "TOKEN"}
            assert "TOKEN" in names
            assert await said(toolbox, "mcp__rich__environment", name="PYTEST_CURRENT_TEST") != ("(no output)", False)


async def test_log_messages_are_stored_as_last_lines() -> None:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([hostile("logging")]) as toolbox:
            await toolbox.wait_until_connected()
            assert await said(toolbox, "work") == ("worked", False)
            assert toolbox.servers()[0].last_lines == ("warning: disk: almost full",)


async def test_what_cannot_be_started_says_what_to_correct(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("not executable")
    servers = [
        local_server("folder", command=sys.executable, cwd=str(tmp_path / "nowhere")),
        local_server("denied", command=str(program)),
        local_server("nul", command=sys.executable, args=("\0",)),
        local_server("cat", command="echo", args=("hello",)),
        local_server("words", command="echo", args=("two words",)),
    ]
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox(servers) as toolbox:
            await toolbox.wait_until_connected()
            folder, denied, nul, cat, words = toolbox.servers()
    nowhere = str(tmp_path / "nowhere")
    assert folder.reason == f"the folder {nowhere!r} does not exist; create it, or correct the server's cwd"
    assert denied.reason.startswith(f"{str(program)!r} cannot be started: [Errno 13] Permission denied")
    assert nul.reason.endswith("embedded null byte; correct the server's command, args, env or cwd")
    assert cat.reason == "it exited with code 0 before it was ready; run 'echo hello' in a terminal to see why"
    assert cat.last_lines == ("stdout: hello",)
    assert words.reason == "it exited with code 0 before it was ready; run its command in a terminal to see why"
