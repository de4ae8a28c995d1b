"""The rounds of a client that runs its own tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import anyio
import pytest

from rkllm_mcp.agent.handlers import CALL_NOTE, TOGETHER_NOTE, ReturnCalls
from rkllm_mcp.agent.loop import LoopSettings, run_agent
from rkllm_mcp.agent.tool_set import ToolSet, without_parameters
from rkllm_mcp.catalogue import status_line
from rkllm_mcp.events import EndReason, Event, ModelEvent, Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.generation import ForcedTool, ModelOptions
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolResult, ToolSpec
from rkllm_mcp.prompt.tool_list import wrapped_tool
from rkllm_mcp.protocols import Turn
from tests.support.scripted_model import Round, ScriptedModel
from tests.support.turn_events import FunctionSink

PLACE = {"type": "object", "properties": {"location": {"type": "string"}}}
WEATHER = ToolSpec("get_weather", "Weather", PLACE, server="program")
TIME = ToolSpec("get_time", "Time", PLACE, server="program")
WRONG = ToolCallFailed("<wrong", "not readable")
SETTINGS = LoopSettings(max_rounds=4, repair_rounds=2)
pytestmark = pytest.mark.anyio


def call(name: str = "get_weather", **arguments: str) -> ToolCallDetected:
    return ToolCallDetected(name, arguments, raw=f"<{name}>")


class Answered:
    """One answer with the client's tools; ``two_steps`` lists them by name."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.conversation = Conversation(messages=[Message("user", "Weather?")])
        self.model = ScriptedModel([])

    async def by(
        self,
        *rounds: Sequence[ModelEvent],
        options: ModelOptions | None = None,
        must_call: bool = False,
        two_steps: bool = False,
    ) -> tuple[EndReason, Turn]:
        sink = FunctionSink(self.events.append)
        tools = [WEATHER, TIME]
        tool_set = ToolSet([without_parameters(tool) for tool in tools], tools, {}) if two_steps else ToolSet(tools)
        self.model.rounds[:] = map(Round, rounds)
        calls = ReturnCalls(self.conversation, tool_set, sink, must_call=must_call)
        with anyio.fail_after(60):
            return await run_agent(self.model, self.conversation, calls, options or ModelOptions(), SETTINGS, sink)

    @property
    def returned(self) -> list[list[tuple[str, str]]]:
        """Names and texts of the results that the model received."""
        messages = [message for message in self.conversation.messages if message.role == "tool"]
        return [[(result.name, result.text) for result in message.results] for message in messages]

    @property
    def forced(self) -> list[str | None]:
        return [options.forced_tool for _, _, options in self.model.asked]


async def test_after_the_last_repair_the_answer_ends_without_another_round() -> None:
    answered = Answered()
    options = ModelOptions(tool_choice=ForcedTool("get_weather"))
    reason, turn = await answered.by([WRONG], [WRONG], [WRONG], options=options, must_call=True)
    assert (reason, turn.failures, answered.events) == ("answered", (WRONG,), [])
    assert answered.returned == [[("tool_call", "not readable")]] * 2
    assert answered.forced == ["get_weather"] * 3


async def test_an_answer_that_has_to_be_a_call_is_requested_again() -> None:
    answered = Answered()
    await answered.by([Text("Sunny.")], [call(location="a")], must_call=True)
    assert answered.returned == [[("tool_call", CALL_NOTE)]]


async def test_parameters_are_revealed_before_the_client_sees_a_call() -> None:
    answered = Answered()
    await answered.by([call()], [call(location="a")], two_steps=True)
    assert [(event.id, event.arguments) for event in answered.events if isinstance(event, ToolCallDetected)] == [
        ("call_1", {"location": "a"})
    ]
    assert [name for ((name, _),) in answered.returned] == ["get_weather"]
    assert answered.forced == [None, "get_weather"]


async def test_calls_of_one_round_are_returned_together() -> None:
    answered = Answered()
    await answered.by(
        [call(), call("get_time", location="b")], [call(location="a"), call("get_time", location="b")], two_steps=True
    )
    ((_, together),) = answered.returned
    assert together == ("get_time", TOGETHER_NOTE)
    assert answered.forced == [None, None]
    assert len(answered.events) == 2


async def test_repairs_are_counted_without_rounds_that_reveal_parameters() -> None:
    answered = Answered()
    await answered.by([WRONG], [call()], [WRONG], [call(location="a")], two_steps=True)
    assert len(answered.returned) == 3
    assert len(answered.events) == 1


def result_of(call_id: str, text: str = "sunny") -> Message:
    return Message("tool", results=(ToolResult(call_id, "get_weather", text),))


async def test_a_call_repeated_after_its_result_becomes_an_answer_from_the_result() -> None:
    answered = Answered()
    await answered.by([call(location="a")])
    answered.conversation.add(result_of("call_1"))
    answered.events.clear()
    reason, turn = await answered.by([call(location="a")], [Text("Sunny.")])
    assert (reason, turn.calls) == ("answered", ())
    assert answered.events == [status_line("facts"), Text("Sunny.")]
    messages, listed, _ = answered.model.asked[-1]
    assert messages == [Message("user", "Weather?\n\nFacts:\nsunny\n\nAnswer from the facts in one sentence.")]
    assert listed == ()
    assert [message.role for message in answered.conversation.messages] == ["user", "assistant", "tool", "assistant"]
    assert answered.conversation.calls_made == 1


async def test_a_call_repeated_after_another_one_is_returned() -> None:
    """Programs read a file again once they have changed it."""
    answered = Answered()
    for number, name in enumerate(["get_weather", "get_time"], start=1):
        await answered.by([call(name, location="a")])
        answered.conversation.add(result_of(f"call_{number}"))
    _, turn = await answered.by([call(location="a")])
    assert [(each.id, each.name) for each in turn.calls] == [("call_3", "get_weather")]


async def test_other_arguments_and_a_new_call_next_to_a_repeated_one_are_returned() -> None:
    for calls in ([call(location="b")], [call(location="a"), call("get_time", location="a")]):
        answered = Answered()
        await answered.by([call(location="a")])
        answered.conversation.add(result_of("call_1"))
        answered.events.clear()
        _, turn = await answered.by(calls)
        assert len(turn.calls) == len(calls)
        assert [event.name for event in answered.events if isinstance(event, ToolCallDetected)] == [
            each.name for each in calls
        ]


async def test_a_client_that_demands_a_call_gets_the_repeated_one() -> None:
    answered = Answered()
    await answered.by([call(location="a")])
    answered.conversation.add(result_of("call_1"))
    _, turn = await answered.by([call(location="a")], must_call=True)
    assert len(turn.calls) == 1


def test_a_list_of_names_says_what_a_tool_is_for_and_no_more() -> None:
    weather = ToolSpec("get_weather", "Weather of a place. Knows all of Japan.", WEATHER.input_schema)
    assert wrapped_tool(without_parameters(weather))[0].text == (
        '{"type":"function","function":{"name":"get_weather","description":"Weather of a place."}}'
    )
    weather = replace(weather, description="天気を調べる。地名が要る。")
    assert without_parameters(weather).description == "天気を調べる。"


@pytest.mark.parametrize("arguments", [{"city": "東京"}, {"location": ""}, {"location": "a", "b": "c"}])
def test_a_call_that_guesses_wrong_is_not_run(arguments: dict[str, str]) -> None:
    tool_set = ToolSet([without_parameters(WEATHER)], [WEATHER], {})
    runs = tool_set.parameters_before(ToolCall("1", "get_weather", arguments)) == ""
    assert runs == (arguments == {"location": ""})
