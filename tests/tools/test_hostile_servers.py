"""Every hostile server at once: none harms the host or the others, and nothing of them is left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest

from rkllm_mcp.config.servers import StdioServer
from rkllm_mcp.mcp_client.message_filter import MOST_ITEMS
from rkllm_mcp.messages import ToolCall
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.tools.tool_servers import open_toolbox
from rkllm_mcp.tools.toolbox import Toolbox
from tests.support.mcp_servers.calling import said
from tests.support.mcp_servers.leftovers import Holdings, watched_lives
from tests.support.mcp_servers.specs import PATIENCE_S, hostile, timed, tiny, unruly

pytestmark = pytest.mark.anyio

# For those that never answer, and for calls that nobody answers.
NEVER_S, CALL_S = 1.0, 1.5
NEVER: dict[str, Any] = {"connect_timeout_s": NEVER_S}
BRIEF: dict[str, Any] = {"timeout_s": CALL_S}

# What becomes of each, and what its worst call says; None where it has none.
ZOO: dict[str, tuple[StdioServer, str, tuple[str, str] | None]] = {
    spec.name: (spec, state, worst)
    for spec, state, worst in (
        (hostile("exits"), "failed", None),
        (hostile("silent", **NEVER), "failed", None),
        (hostile("noisy"), "ready", ("echo", "x")),
        (hostile("malformed"), "ready", ("any_of", "hologram")),
        (hostile("dying"), "ready", ("die", "killed by SIGKILL")),
        (hostile("huge"), "ready", ("say_much", "more than 32 MB")),
        (hostile("endless"), "ready", ("tool_7", "Unknown tool")),
        (hostile("stuck", **BRIEF), "ready", ("hang", "did not answer within 1.5 s")),
        (unruly("cyclic"), "ready", ("echo", "x")),
        (unruly("dies_at:server/discover"), "ready", ("echo", "x")),
        (unruly("dies_at:initialize"), "failed", None),
        (unruly("dies_at:notifications/initialized"), "failed", None),
        (unruly("dies_at:tools/list"), "failed", None),
        (unruly("dies_at:tools/call"), "ready", ("echo", "killed by SIGKILL")),
        (unruly("garbles:server/discover", **NEVER), "failed", None),
        (unruly("garbles:initialize", **NEVER), "failed", None),
        # What is there is read at once; a list of tools that is not one is empty.
        (unruly("garbles:tools/list"), "ready", None),
        (unruly("garbles:tools/call", **BRIEF), "ready", ("echo", "nonsense")),
        (unruly("misaddresses"), "ready", ("echo", "x")),
        (unruly("mistakes_ids", **NEVER), "failed", None),
        (unruly("floods"), "ready", ("echo", "x")),
        (unruly("floods_stderr"), "ready", ("echo", "x")),
        (unruly("floods_stderr:unbroken"), "ready", ("echo", "x")),
        (unruly("endless_progress", **BRIEF), "ready", ("work", "did not answer within 1.5 s")),
        (unruly("hangs_up"), "ready", ("close", "lost during the call")),
    )
}
ARGUMENTS: dict[str, dict[str, Any]] = {"say_much": {"megabytes": 40}, "echo": {"text": "x"}}


async def test_no_hostile_server_harms_the_host_or_the_others_and_nothing_is_left(tmp_path: Path) -> None:
    worst: dict[str, str] = {}
    reports: list[float] = []

    async def count(progress: float, total: float | None, message: str | None) -> None:
        del total, message
        reports.append(progress)

    async def provoke(toolbox: Toolbox, name: str, tool: str) -> None:
        call = ToolCall("call_1", f"mcp__{name}__{tool}", ARGUMENTS.get(tool, {}))
        worst[name] = (await toolbox.call(call, CallContext(on_progress=count))).text

    with watched_lives(tmp_path) as lives, anyio.fail_after(PATIENCE_S):
        stubborn = hostile("stubborn", env=lives.env)
        orphaning = hostile("orphaning", env=lives.env)
        specs = [spec for spec, _, _ in ZOO.values()]
        before, tasks = Holdings(), len(asyncio.all_tasks())
        async with open_toolbox([tiny("good"), stubborn, orphaning, *specs], host=timed(stop_grace_s=0.2)) as toolbox:
            await toolbox.wait_until_connected()
            assert {s.name: s.state for s in toolbox.servers()} == {
                **dict.fromkeys(("good", "stubborn", "orphaning"), "ready"),
                **{name: state for name, (_, state, _) in ZOO.items()},
            }
            reasons = {s.name: s.reason for s in toolbox.servers() if s.state == "failed"}
            async with anyio.create_task_group() as callers:
                for name, (_, _, call) in ZOO.items():
                    if call is not None:
                        callers.start_soon(provoke, toolbox, name, call[0])
                for number in range(20):
                    assert await said(toolbox, "add", a=number, b=1) == (str(number + 1), False)
            assert await said(toolbox, "add", a=1, b=1) == ("2", False)
        await lives.all_ended()
        assert (Holdings(), len(asyncio.all_tasks())) == (before, tasks)
    assert reports == [*range(len(reports))] != []
    expected = {name: call[1] for name, (_, _, call) in ZOO.items() if call is not None}
    assert worst.keys() == expected.keys()
    assert {name: text for name, text in worst.items() if expected[name] not in text} == {}
    assert all(
        "killed by SIGKILL before it was ready" in reason for name, reason in reasons.items() if "dies_at" in name
    )
    assert all(reason.partition("; ")[2] for reason in reasons.values()), reasons


async def test_a_server_that_prints_without_end_is_ended_and_says_why() -> None:
    with anyio.fail_after(PATIENCE_S):
        died = anyio.Event()

        def note(line: str) -> None:
            if "printed" in line:
                died.set()

        async with open_toolbox([unruly("prints")], on_status=note, host=timed(stop_grace_s=0.2)) as toolbox:
            await toolbox.wait_until_connected()
            assert await said(toolbox, "start") == ("from now on", False)
            await died.wait()
            reason = "it printed more than 32 MB that are no message; it is started again when it is next called"
            assert [(state.state, state.reason) for state in toolbox.servers()] == [("died", reason)]


async def test_what_a_server_sprawls_is_cut_before_it_is_read_and_an_unreadable_answer_fails_its_call_at_once() -> None:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([unruly("sprawls"), tiny("good")], host=timed(stop_grace_s=0.2)) as toolbox:
            await toolbox.wait_until_connected()
            tools = {tool.wire_name: tool for tool in toolbox.tools() if tool.server == "sprawls"}
            assert len(tools) == MOST_ITEMS
            assert tools["long"].description == "<tool_call>" * 1333 + "<to…"
            assert "wide" not in tools
            said_of = {name: await said(toolbox, f"mcp__sprawls__{name}", text="x") for name in SPRAWLED}
            assert said_of == SPRAWLED
            assert await said(toolbox, "add", a=1, b=1) == ("2", False)


SPRAWLED = {
    "echo": ("x", False),
    "values": ("The call failed: the response cannot be read: it has more than 200,000 values (code -32603).", True),
    "nest": (
        "The call failed: the response cannot be read: it is no valid JSON, or nested too deeply (code -32603).",
        True,
    ),
    "form": ("{'action': 'cancel'}", False),
    "text": (
        f"{'あ' * 4000}\n… truncated, 4976000 more characters; call it again for a smaller part to see them",
        False,
    ),
    "json": (
        f"[{'[],' * 1333}\n… truncated, 14996003 more characters; call it again for a smaller part to see them",
        False,
    ),
    "leaves": (
        f"{'w ' * 2000}\n… truncated, 9996000 more characters; call it again for a smaller part to see them",
        False,
    ),
    "error": (
        f"{'e' * 4000}\n… truncated, 19996000 more characters; call it again for a smaller part to see them",
        True,
    ),
}
