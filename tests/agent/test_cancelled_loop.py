"""An answer that is stopped, left or broken leaves a conversation that the next question can go on with."""

from __future__ import annotations

from contextlib import suppress

import anyio
import pytest

from rkllm_mcp.agent.handlers import RunCalls
from rkllm_mcp.agent.loop import LoopSettings, answer_with_tools
from rkllm_mcp.agent.tool_set import ToolSet
from rkllm_mcp.events import Event, Text, ToolCallDetected, ToolCallFailed, ToolFinished
from rkllm_mcp.generation import ModelOptions
from rkllm_mcp.messages import Conversation, Message, ToolSpec
from rkllm_mcp.protocols import DISCARD_EVENTS, CallContext
from tests.support.scripted_model import Round, ScriptedModel, ScriptedTools
from tests.support.turn_events import FunctionSink

WEATHER = ToolSpec("get_weather", "Weather", server="jma")
QUESTION = [Message("user", "?")]
TIME = ToolSpec("get_time", "Time", server="clock")
pytestmark = pytest.mark.anyio


def call(name: str = "get_weather", **arguments: str) -> ToolCallDetected:
    return ToolCallDetected(name, arguments, raw=f"<{name}>")


@pytest.mark.parametrize("parallel", [False, True])
async def test_a_tool_port_that_raises_is_raised_as_it_is_and_leaves_no_call_open(parallel: bool) -> None:
    conversation = Conversation()
    with pytest.raises(ZeroDivisionError):
        model = ScriptedModel([Round([call(location="a"), call("get_time")])])
        tools = ScriptedTools({}, error=ZeroDivisionError())
        calls = RunCalls(tools, ToolSet([WEATHER, TIME]), parallel=parallel)
        await answer_with_tools(model, conversation, QUESTION, calls, ModelOptions(), LoopSettings(), DISCARD_EVENTS)
    assert_ready(conversation)


def assert_ready(conversation: Conversation) -> None:
    """Every call of the last answer has a result, in order, after it."""
    last = conversation.messages[-1]
    assert last.role != "user"
    for message, following in zip(conversation.messages, [*conversation.messages[1:], Message("user")], strict=True):
        if message.calls:
            answered = [result.call_id for result in following.results if result.call_id]
            assert answered == [c.id for c in message.calls]


LONG = [
    Round([Text("Let me see."), call(location="a"), call("get_time"), ToolCallFailed("x", "no JSON")]),
    Round([call("get_time", zone="x")]),
    Round([Text("Again."), call(location="a")]),
    Round([Text("Done.")]),
]


class GoneError(Exception):
    """Whoever took the events has gone."""


async def left_at(event_number: int, how: str, *, parallel: bool) -> tuple[list[Event], Conversation]:
    """The events of ``LONG`` up to one, and the conversation that was left there."""
    conversation = Conversation()
    seen: list[Event] = []
    tools = ScriptedTools({"get_weather": "sunny", "get_time": "noon"}, progress=1)
    with anyio.fail_after(60), anyio.CancelScope() as scope:

        @FunctionSink
        def sink(event: Event) -> None:
            seen.append(event)
            if len(seen) == event_number:
                if how == "gone":
                    raise GoneError
                scope.cancel()

        settings = LoopSettings(parallel_tools=parallel)
        with suppress(GoneError):
            calls = RunCalls(tools, ToolSet([WEATHER, TIME]), CallContext(sink=sink), parallel=settings.parallel_tools)
            model = ScriptedModel(list(LONG))
            end = await answer_with_tools(model, conversation, QUESTION, calls, ModelOptions(), settings, sink)
            seen.append(end)
    return seen, conversation


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("how", ["cancelled", "gone"])
async def test_an_answer_left_at_any_event_leaves_a_history_of_the_calls_that_ran(parallel: bool, how: str) -> None:
    whole, _ = await left_at(0, how, parallel=parallel)
    assert len(whole) > 20
    for number in range(1, len(whole)):
        seen, conversation = await left_at(number, how, parallel=parallel)
        assert len(seen) < len(whole)
        assert_ready(conversation)
        results = {result.call_id: result for message in conversation.messages for result in message.results}
        for event in seen:
            # A repetition is left out of the history once its answer is made from the result.
            if isinstance(event, ToolFinished) and (event.id in results or "(Called before" not in event.text):
                assert results[event.id].text == event.text


@pytest.mark.parametrize("parallel", [False, True])
async def test_a_call_that_was_finished_keeps_its_result_when_the_next_one_is_stopped(parallel: bool) -> None:
    tools = ScriptedTools({"get_weather": "sunny"}, hanging=frozenset({"get_time"}))
    model = ScriptedModel([Round([call(location="a"), call("get_time")])])
    conversation = Conversation()

    calls = RunCalls(tools, ToolSet([WEATHER, TIME]), parallel=parallel)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(
                answer_with_tools, model, conversation, QUESTION, calls, ModelOptions(), LoopSettings(), DISCARD_EVENTS
            )
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
    assert [(r.call_id, r.text, r.is_error) for r in conversation.messages[-1].results] == [
        ("call_1", "sunny", False),
        ("call_2", "the user stopped the answer before this call was finished", True),
    ]
