"""The calls of one round: side by side where they only read, in order otherwise, results in the order asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
import pytest

from rkllm_mcp.agent.handlers import CallRunner, Parallel
from rkllm_mcp.agent.tool_set import ToolSet
from rkllm_mcp.events import Event, ToolFinished
from rkllm_mcp.messages import ToolCall, ToolResult
from rkllm_mcp.protocols import NO_CONTEXT, CallContext
from tests.support.scripted_toolbox import takes
from tests.support.turn_events import FunctionSink

pytestmark = pytest.mark.anyio
TOOLS = [
    takes("read", read_only=True, path="string"),
    takes("look", read_only=True, path="string"),
    takes("write", read_only=False, path="string"),
    takes("ask", path="string"),
]


@dataclass
class Clock:
    """Tools that take as long as their argument says, in steps that all count, and log what they do; 0 steps fail."""

    log: list[str] = field(default_factory=list[str])
    running: int = 0
    most_at_once: int = 0

    async def call(self, call: ToolCall, context: CallContext = NO_CONTEXT) -> ToolResult:
        del context
        self.log.append(f"+{call.id}")
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            for _ in range(int(call.arguments["path"])):
                await anyio.lowlevel.checkpoint()
        except BaseException:
            self.log.append(f"!{call.id}")
            raise
        self.running -= 1
        self.log.append(f"-{call.id}")
        return ToolResult(call.id, call.name, call.id, is_error=call.arguments["path"] == 0)


def calls(*wanted: tuple[str, int]) -> list[ToolCall]:
    return [ToolCall(str(number), name, {"path": steps}) for number, (name, steps) in enumerate(wanted)]


async def run(wanted: Sequence[ToolCall], parallel: Parallel = "auto") -> tuple[Clock, list[ToolResult], list[Event]]:
    clock, events = Clock(), list[Event]()

    @FunctionSink
    def sink(event: Event) -> None:
        events.append(event)

    with anyio.fail_after(60):
        results = await CallRunner(clock, ToolSet(TOOLS), CallContext(sink=sink), parallel).run(wanted)
    return clock, results, events


async def test_tools_that_only_read_run_side_by_side_and_answer_in_the_order_asked() -> None:
    clock, results, events = await run(calls(("read", 30), ("look", 20), ("read", 10)))
    assert clock.log == ["+0", "+1", "+2", "-2", "-1", "-0"]
    assert [result.text for result in results] == ["0", "1", "2"]
    assert [event.id for event in events if isinstance(event, ToolFinished)] == ["2", "1", "0"]


async def test_a_call_that_may_change_something_waits_for_those_before_and_those_after_wait_for_it() -> None:
    wanted = calls(("read", 20), ("look", 10), ("write", 5), ("read", 6), ("look", 3))
    clock, results, _ = await run(wanted)
    assert clock.log == ["+0", "+1", "-1", "-0", "+2", "-2", "+3", "+4", "-4", "-3"]
    assert [result.text for result in results] == ["0", "1", "2", "3", "4"]


async def test_a_tool_of_unknown_effect_runs_alone() -> None:
    clock, _, _ = await run(calls(("ask", 3), ("ask", 2), ("unheard_of", 1)))
    assert clock.log == ["+0", "-0", "+1", "-1", "+2", "-2"]


@pytest.mark.parametrize(("parallel", "most"), [(True, 3), (False, 1), ("auto", 2)])
async def test_the_owner_may_have_all_calls_run_at_once_or_none(parallel: Parallel, most: int) -> None:
    clock, _, _ = await run(calls(("read", 9), ("look", 9), ("write", 9)), parallel)
    assert clock.most_at_once == most


async def test_stopping_an_answer_stops_every_call_of_the_round() -> None:
    clock = Clock()

    runner = CallRunner(clock, ToolSet(TOOLS), NO_CONTEXT, "auto")
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(runner.run, calls(("read", 10**6), ("look", 10**6), ("write", 1)))
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
    assert clock.log[:2] == ["+0", "+1"]
    assert sorted(clock.log[2:]) == ["!0", "!1"]


@pytest.mark.parametrize("changing", ["write", "ask"])
async def test_once_something_may_have_changed_reading_again_is_another_call(changing: str) -> None:
    first, write, again = calls(("read", 1), (changing, 2), ("read", 1))
    clock, results, _ = await run([first, write, again])
    assert clock.log == ["+0", "-0", "+1", "-1", "+2", "-2"]
    assert results[2].text == "2"


@pytest.mark.parametrize("between", [("look", 2), ("write", 0)])
async def test_without_a_change_the_same_call_runs_once(between: tuple[str, int]) -> None:
    clock, results, _ = await run(calls(("read", 1), between, ("read", 1)))
    assert "+2" not in clock.log
    assert results[2].text.startswith("(Called before with the same arguments; this is the same result.)\n0")
