"""What a call leaves in the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from rkllm_mcp.config.servers import StdioServer
from rkllm_mcp.messages import ToolCall, ToolResult, ToolSpec
from rkllm_mcp.protocols import NO_CONTEXT, CallContext
from rkllm_mcp.records import CallRecord
from rkllm_mcp.tools.execution import ExecutionPolicies, call_record, execute_call
from tests.support.mcp_servers.specs import local_server

pytestmark = pytest.mark.anyio

SERVER = local_server("s")
TOOL = ToolSpec("shown", server="s", wire_name="tool")
SECRET = "tok-4711-secret"


@dataclass
class Notebook:
    calls: list[CallRecord] = field(default_factory=list[CallRecord])

    def record(self, call: CallRecord) -> None:
        self.calls.append(call)


def recorded(result: ToolResult, arguments: dict[str, object]) -> CallRecord:
    context = CallContext(tokens={"jira": SECRET}, conversation_id="c1")
    return call_record(TOOL, ToolCall("call_1", "shown", arguments), context, result, 1000.0)


async def test_a_call_leaves_a_record() -> None:
    result = ToolResult("call_1", "shown", "晴れ\n18度", seconds=0.12345, ruling="once")
    assert recorded(result, {"city": "東京"}) == CallRecord(
        1000.0, "s", "tool", '{"city":"東京"}', "once", result_chars=6, seconds=0.123, conversation="c1"
    )


async def test_a_failure_leaves_its_first_line() -> None:
    call = recorded(ToolResult("call_1", "shown", "\nno such city\nTraceback …", is_error=True), {})
    assert (call.is_error, call.error, call.ruling) == (True, "no such city", "free")


@dataclass
class Clock:
    seconds: float = 100.0

    def __call__(self) -> float:
        return self.seconds


@dataclass(frozen=True)
class Asking:
    """Works for 3 s, asks its owner for 60, works for 2, and asks again for as long as there is."""

    clock: Clock
    spec: StdioServer = SERVER

    async def call(self, tool: str, arguments: Mapping[str, Any], context: CallContext = NO_CONTEXT) -> dict[str, Any]:
        self.clock.seconds += 3
        with context.pause():
            self.clock.seconds += 60
        self.clock.seconds += 2
        with context.pause():
            self.clock.seconds += 600
            await anyio.sleep_forever()
        raise AssertionError


async def stopped(now: Callable[[], float], server: Asking) -> CallRecord:
    """The record of a call that is cancelled while it asks."""
    notebook = Notebook()
    policies = ExecutionPolicies(recorder=notebook.record)
    with anyio.move_on_after(0):
        await execute_call(server, TOOL, ToolCall("call_1", "shown", {"a": 1}), NO_CONTEXT, policies, now=now)
    (call,) = notebook.calls
    return call


async def test_a_call_that_is_stopped_at_a_question_is_recorded_with_the_time_it_worked() -> None:
    clock = Clock()
    call = await stopped(clock, Asking(clock))
    assert (call.is_error, call.error, call.ruling) == (True, "cancelled before it finished", "stopped")
    assert call.seconds == 5.0


async def test_secrets_are_replaced_wherever_they_are() -> None:
    arguments: dict[str, object] = {
        "api_key": "hunter2",
        "header": f"Bearer {SECRET}",
        "nested": [{"password": "hunter2"}, {"url": "https://u:hunter2@h/?token=hunter2"}],
        "key": "sk-abcdefgh12345",
        "text": "plain",
    }
    failure = ToolResult("call_1", "shown", f"401: {SECRET} is wrong", is_error=True)
    call = recorded(failure, arguments)
    assert SECRET not in repr(call)
    assert "hunter2" not in repr(call)
    assert "sk-abc" not in repr(call)
    assert '"text":"plain"' in call.arguments
    assert call.error == "401: [REDACTED] is wrong"


async def test_long_arguments_are_cut() -> None:
    call = recorded(ToolResult("call_1", "shown", "x" * 9000, is_error=True), {"content": "y" * 9000})
    assert (len(call.arguments), len(call.error), call.result_chars) == (2000, 300, 9000)
