"""What a call leaves in the history."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio
import pytest

from rkllm_mcp.mcp_client.timeouts import Stopwatch
from rkllm_mcp.messages import ToolCall, ToolResult, ToolSpec
from rkllm_mcp.protocols import NO_CONTEXT, CallContext
from rkllm_mcp.records import CallRecord
from rkllm_mcp.tools.execution import Recorded

pytestmark = pytest.mark.anyio

TOOL = ToolSpec("shown", server="s", wire_name="tool")
SECRET = "tok-4711-secret"


@dataclass
class Notebook:
    calls: list[CallRecord] = field(default_factory=list[CallRecord])

    def record(self, call: CallRecord) -> None:
        self.calls.append(call)


@dataclass(frozen=True)
class Answers:
    result: ToolResult | None

    async def call(self, tool: ToolSpec, call: ToolCall, context: CallContext) -> ToolResult:
        if self.result is None:
            await anyio.sleep_forever()
            raise AssertionError
        return self.result


async def recorded(result: ToolResult | None, arguments: dict[str, object]) -> CallRecord:
    notebook = Notebook()
    way = Recorded(Answers(result), notebook, clock=lambda: 1000.0)
    context = CallContext(tokens={"jira": SECRET}, conversation_id="c1")
    with anyio.move_on_after(0 if result is None else 10):
        assert await way.call(TOOL, ToolCall("call_1", "shown", arguments), context) == result
    (call,) = notebook.calls
    return call


async def test_a_call_leaves_a_record() -> None:
    result = ToolResult("call_1", "shown", "晴れ\n18度", seconds=0.12345, ruling="once")
    assert await recorded(result, {"city": "東京"}) == CallRecord(
        1000.0, "s", "tool", '{"city":"東京"}', "once", result_chars=6, seconds=0.123, conversation="c1"
    )


async def test_a_failure_leaves_its_first_line() -> None:
    call = await recorded(ToolResult("call_1", "shown", "\nno such city\nTraceback …", is_error=True), {})
    assert (call.is_error, call.error, call.ruling) == (True, "no such city", "free")


async def test_a_call_that_is_stopped_is_recorded_all_the_same() -> None:
    call = await recorded(None, {"a": 1})
    assert (call.is_error, call.error, call.ruling) == (True, "cancelled before it finished", "stopped")


@dataclass
class Clock:
    seconds: float = 100.0

    def __call__(self) -> float:
        return self.seconds


@dataclass(frozen=True)
class Asking:
    """Works for 3 s, asks its owner for 60, works for 2, and asks again for as long as there is."""

    clock: Clock

    async def call(self, tool: ToolSpec, call: ToolCall, context: CallContext) -> ToolResult:
        self.clock.seconds += 3
        with context.pause():
            self.clock.seconds += 60
        self.clock.seconds += 2
        with context.pause():
            self.clock.seconds += 600
            await anyio.sleep_forever()
        raise AssertionError


async def test_a_call_that_is_stopped_at_a_question_took_as_long_as_it_worked() -> None:
    notebook, clock = Notebook(), Clock()
    with anyio.move_on_after(0):
        await Recorded(Asking(clock), notebook, now=clock).call(TOOL, ToolCall("call_1", "shown", {}), NO_CONTEXT)
    (call,) = notebook.calls
    assert (call.ruling, call.seconds) == ("stopped", 5.0)


async def test_a_stopped_call_whose_question_is_still_open_elsewhere_is_not_charged_for_it() -> None:
    clock = Clock()
    watch = Stopwatch(NO_CONTEXT, clock)
    clock.seconds += 4
    with watch.context.pause():
        clock.seconds += 60
        assert watch.seconds() == 4.0


async def test_secrets_are_replaced_wherever_they_stand() -> None:
    arguments: dict[str, object] = {
        "api_key": "hunter2",
        "header": f"Bearer {SECRET}",
        "nested": [{"password": "hunter2"}, {"url": "https://u:hunter2@h/?token=hunter2"}],
        "key": "sk-abcdefgh12345",
        "text": "plain",
    }
    failure = ToolResult("call_1", "shown", f"401: {SECRET} is wrong", is_error=True)
    call = await recorded(failure, arguments)
    assert SECRET not in repr(call)
    assert "hunter2" not in repr(call)
    assert "sk-abc" not in repr(call)
    assert '"text":"plain"' in call.arguments
    assert call.error == "401: [REDACTED] is wrong"


async def test_what_is_long_is_cut() -> None:
    call = await recorded(ToolResult("call_1", "shown", "x" * 9000, is_error=True), {"content": "y" * 9000})
    assert (len(call.arguments), len(call.error), call.result_chars) == (2000, 300, 9000)
