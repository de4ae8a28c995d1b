"""Two steps for the smallest models: choose by name, then fill in the arguments knowing that one tool's parameters."""

from __future__ import annotations

import pytest

from rkllm_mcp.agent.rounds import LoopSettings
from rkllm_mcp.agent.tool_set import SelectionSettings, ToolSet, named
from rkllm_mcp.catalogue import translate
from rkllm_mcp.events import End, Text, ToolCallDetected, ToolFinished
from rkllm_mcp.messages import ToolCall, ToolSpec
from rkllm_mcp.prompt.tool_list import tool_json
from tests.support.asked import TOKENS_EACH, Desk, statuses
from tests.support.scripted_toolbox import ScriptedToolbox, takes

pytestmark = pytest.mark.anyio
WEATHER = takes("get_weather", "Weather of a place. Knows all of Japan.", "sky", location="string")
TIME = takes("get_time", "The time.", "clock")
TELL = ToolSpec(
    "tell", "Tell somebody.", {"type": "object", "properties": {"whom": {"type": "string"}}}, "post", "tell"
)
TOLD = "get_weather(location: string) — Weather of a place. Knows all of Japan.\nCall it again with its arguments."


def desk(max_rounds: int = 8) -> Desk:
    texts = {"get_weather": "sunny", "get_time": "noon", "tell": "told"}
    toolbox = ScriptedToolbox(specs=[WEATHER, TIME, TELL], texts=texts)
    return Desk(toolbox, SelectionSettings(10_000, two_steps=True), LoopSettings(max_rounds=max_rounds))


def call(name: str = "get_weather", **arguments: str) -> ToolCallDetected:
    return ToolCallDetected(name, arguments)


def test_a_list_of_names_says_what_a_tool_is_for_and_no_more() -> None:
    assert tool_json(named(WEATHER)) == (
        '{"type":"function","function":{"name":"get_weather","description":"Weather of a place."}}'
    )
    japanese = ToolSpec("t", "天気を調べる。地名が要る。", {"type": "object"})
    assert named(japanese).description == "天気を調べる。"


async def test_the_first_call_is_answered_with_the_parameters_and_the_second_one_is_forced_and_run() -> None:
    at = desk()
    events = await at.ask("Weather?", [call()], [call(location="東京")], [Text("Sunny.")])
    assert at.listed == [("get_weather", "get_time", "tell")] * 3
    assert [options.forced_tool for _, _, options in at.model.asked] == [None, "get_weather", None]
    assert [message.results[0].text for message in at.conversation.messages if message.results] == [TOLD, "sunny"]
    assert [made.arguments for made in at.toolbox.calls] == [{"location": "東京"}]
    assert statuses(events)[:2] == ["[MCP: Detected 1 tool call]", "[MCP: Telling the parameters of 'get_weather']"]
    assert [event.text for event in events if isinstance(event, ToolFinished)] == [TOLD, "sunny"]
    assert at.conversation.messages[0].text == translate("model.two_steps")


async def test_parameters_are_shown_once_in_a_conversation() -> None:
    at = desk()
    await at.ask("Weather?", [call()], [call(location="東京")], [Text("Sunny.")])
    await at.ask("And in Osaka?", [call(location="大阪")], [Text("Sunny.")])
    assert len(at.toolbox.calls) == 2
    await at.ask("Anywhere?", [call()], [Text("Sunny.")])
    assert at.toolbox.calls[-1].arguments == {}


async def test_a_tool_without_parameters_and_a_call_that_happens_to_fit_are_run_at_once() -> None:
    at = desk()
    await at.ask("Time and weather?", [call("get_time"), call(location="東京")], [Text("Noon.")])
    assert [made.name for made in at.toolbox.calls] == ["get_time", "get_weather"]


@pytest.mark.parametrize("arguments", [{"city": "東京"}, {"location": ""}, {"location": "a", "b": "c"}])
def test_a_call_that_guesses_wrong_is_not_run(arguments: dict[str, str]) -> None:
    tool_set = ToolSet([named(WEATHER)], [WEATHER], two_steps=True)
    runs = tool_set.parameters_before(ToolCall("1", "get_weather", arguments)) == ""
    assert runs == (arguments == {"location": ""})


async def test_of_several_tools_all_are_shown_and_none_is_forced() -> None:
    at = desk()
    rounds = ([call(), call("tell")], [call(location="東京"), call("tell", whom="Bob")], [Text("Done.")])
    await at.ask("Tell Bob the weather", *rounds)
    assert [options.forced_tool for _, _, options in at.model.asked] == [None, None, None]
    assert [made.name for made in at.toolbox.calls] == ["get_weather", "tell"]


async def test_showing_parameters_is_no_round_of_tools() -> None:
    at = desk(max_rounds=1)
    events = await at.ask("Weather?", [call()], [call(location="東京")], [Text("Sunny.")])
    assert [made.arguments for made in at.toolbox.calls] == [{"location": "東京"}]
    assert events[-1] == End("round_limit")


async def test_names_are_chosen_and_found_as_well() -> None:
    at = desk()
    at.selection = SelectionSettings(TOKENS_EACH + TOKENS_EACH // 5, auto_select=True, two_steps=True)
    rounds = ([call("find_tools", query="time")], [call("get_time")], [Text("Noon.")])
    await at.ask("東京の天気と時刻", *rounds)
    assert at.listed[0] == ("find_tools", "get_weather")
    assert [made.name for made in at.toolbox.calls] == ["get_time"]
    # find_tools is in the list with its parameters.
    assert "find_tools" not in [tool.name for tool in at.model.asked[0][2].others]
