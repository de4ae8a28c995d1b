"""Calls that a question does not ask for."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from rkllm_mcp.agent.call_check import CallCheck
from rkllm_mcp.agent.facts import without_rounds
from rkllm_mcp.agent.handlers import RunCalls
from rkllm_mcp.agent.loop import LoopSettings, answer_with_tools
from rkllm_mcp.agent.tool_set import ToolSet
from rkllm_mcp.catalogue import status_line
from rkllm_mcp.events import Event, Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.generation import ModelOptions
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolResult, ToolSpec
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.tools.other_script import have_common_words
from rkllm_mcp.tools.search import ToolSearch
from tests.support.scripted_model import Round, ScriptedModel, ScriptedTools
from tests.support.turn_events import FunctionSink

PLACE = {"type": "object", "properties": {"location": {"type": "string", "description": "Name of the city"}}}
SUM = {"type": "object", "properties": {"expression": {"type": "string"}}}
WEATHER = ToolSpec("get_weather", "Get the current weather of a city.", PLACE, server="weather", read_only=True)
CALCULATE = ToolSpec("calculate", "Evaluate an arithmetic expression.", SUM, server="board", read_only=True)
ZONE = {"type": "object", "properties": {"timezone": {"type": "string"}, "time": {"type": "string"}}}
CLOCK = ToolSpec("clock", "Date and time in a time zone.", ZONE, server="board", read_only=True)
LIGHT = ToolSpec("switch_light", "Switch a light.", PLACE, server="home", read_only=False)
FIND = ToolSpec("find_tools", "Find more tools.", SUM, read_only=True)
TOOLS = [WEATHER, CALCULATE, CLOCK, LIGHT, FIND]
pytestmark = pytest.mark.anyio


async def fitting(request: str, tools: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
    return [tool for tool, score in await ToolSearch().search(request, tools) if score >= 0.04]


BEFORE = (
    Message("user", "What is the weather in Osaka?"),
    Message("assistant", calls=(ToolCall("call_1", "get_weather", {"location": "Osaka"}),)),
    Message("tool", results=(ToolResult("call_1", "get_weather", "rain, 17 °C"),)),
    Message("assistant", "It rains in Osaka, 17 °C."),
)
WEATHER_IN = "get_weather", "location"
SUM_OF = "calculate", "expression"
LIGHT_IN = "switch_light", "location"
CASES = {
    "thanks after an answer, the same call again": (BEFORE, "Thank you, that was helpful.", WEATHER_IN, "Osaka", True),
    "thanks, an invented call": ((), "ありがとう、助かりました。", WEATHER_IN, "東京", True),
    "a greeting": ((), "Hello!", WEATHER_IN, "Tokyo", True),
    "a poem": ((), "秋の俳句を一つ作ってください。", WEATHER_IN, "京都", True),
    "a question for the tool": ((), "今日、傘が必要ですか？", WEATHER_IN, "Tokyo", False),
    "only the value says so": ((), "How warm is it in Sapporo?", WEATHER_IN, "sapporo", False),
    "numbers in another form": ((), "How much is 12.5% of 8,640?", SUM_OF, "8640 * 0.125", False),
    "a follow-up": (BEFORE, "And tomorrow?", WEATHER_IN, "Kyoto", False),
    "a value of the conversation": (BEFORE, "And for how long?", SUM_OF, "17 * 2", False),
    "no value": ((), "Hello!", WEATHER_IN, "", False),
    "a tool that changes something": ((), "暗いから何とかして", LIGHT_IN, "kitchen", False),
    "the host's search": ((), "Hello!", ("find_tools", "expression"), "greeting people", False),
}


@pytest.mark.parametrize(("before", "question", "called", "value", "is_unasked"), CASES.values(), ids=CASES.keys())
async def test_a_call_is_unasked_if_neither_its_values_nor_its_tool_have_to_do_with_the_question(
    before: Sequence[Message], question: str, called: tuple[str, str], value: str, is_unasked: bool
) -> None:
    conversation = Conversation(messages=[*before, Message("user", question)])
    name, key = called
    arguments = {key: value} if value else {}
    check = CallCheck(conversation, ToolSet(TOOLS), fitting, have_common_words)
    call = ToolCall("call_2", name, arguments)
    assert await check.are_unasked([call]) is is_unasked
    # The model's own turn follows the question when it is checked, and mentions the value.
    conversation.add(Message("assistant", f"I look it up for {value}.", calls=(call,)))
    assert await check.are_unasked([call]) is is_unasked


@pytest.mark.parametrize(
    ("question", "arguments", "is_doubtful"),
    [
        ("ロンドンは今何時？", {"timezone": "Europe/London"}, False),
        ("ニューヨークの時刻を教えて", {"timezone": "America/New_York"}, False),
        ("リスボンは何時ですか", {"timezone": "Europe/Lisbon"}, False),
        ("ﾍﾙｼﾝｷは何時？", {"timezone": "Europe/Helsinki"}, False),
        ("札幌は寒い？", {"timezone": "Sapporo"}, False),
        ("大阪は何時", {"timezone": "Asia/Tokyo"}, False),
        ("英国はいま何時", {"timezone": "Europe/London"}, False),
        ("今日の予定は", {"time": "today"}, False),
        ("昨日は何があった", {"time": "yesterday"}, False),
        ("What time is it in London?", {"timezone": "ロンドン"}, False),
        ("ロンドンは今何時？", {"timezone": "Asia/Tokyo"}, True),
        ("ありがとう、助かりました。", {"timezone": "Asia/Tokyo"}, True),
        ("秋の俳句を一つ作ってください。", {"timezone": "Kyoto"}, True),
        ("こんにちは", {"timezone": "Europe/London", "time": "09:30"}, True),
        ("コーヒーとケーキのどちらが好き？", {"timezone": "America/Los_Angeles"}, True),
    ],
)
def test_values_in_the_other_script_are_compared_by_sound_place_and_meaning(
    question: str, arguments: dict[str, str], is_doubtful: bool
) -> None:
    conversation = Conversation(messages=[Message("user", question)])
    check = CallCheck(conversation, ToolSet(TOOLS), fitting, have_common_words)
    assert check.is_doubtful("clock", arguments) is is_doubtful


async def test_an_unasked_call_is_neither_shown_nor_run_and_answered_in_words() -> None:
    events: list[Event] = []
    sink = FunctionSink(events.append)
    conversation = Conversation(messages=list(BEFORE))
    tools, tool_set = ScriptedTools({"get_weather": "rain"}), ToolSet(TOOLS)
    model = ScriptedModel([Round([ToolCallDetected("get_weather", {"location": "Osaka"})]), Round([Text("Gladly!")])])
    check = CallCheck(conversation, tool_set, fitting, have_common_words)
    calls = RunCalls(tools, tool_set, CallContext(sink=sink), check=check)
    thanks = [Message("user", "Thank you!")]
    with anyio.fail_after(60):
        await answer_with_tools(model, conversation, thanks, calls, ModelOptions(), LoopSettings(), sink)
    assert events == [status_line("words"), Text("Gladly!")]
    assert tools.calls == []
    messages, listed, _ = model.asked[1]
    assert (messages, listed) == ([BEFORE[0], BEFORE[3], *thanks], ())
    assert conversation.messages[-2:] == [*thanks, Message("assistant", "Gladly!")]


async def test_calls_that_the_host_has_chosen_are_accepted() -> None:
    conversation = Conversation(messages=[Message("user", "Hello!")])
    check = CallCheck(conversation, ToolSet(TOOLS), fitting, have_common_words, accepts_calls=True)
    assert not await check.are_unasked([ToolCall("call_1", "get_weather", {"location": "Tokyo"})])
    assert not await check.fits_none()


FAILURE = ToolCallFailed('{"name": "poem", "arguments": {}}', "unknown tool 'poem'")


@pytest.mark.parametrize(("question", "is_repaired"), [("秋の俳句を一つ作って", False), ("What is the weather?", True)])
async def test_calls_of_no_tool_are_answered_in_words_where_none_has_to_do_with_the_question(
    question: str, *, is_repaired: bool
) -> None:
    events: list[Event] = []
    sink, conversation, tool_set = FunctionSink(events.append), Conversation(), ToolSet(TOOLS)
    model = ScriptedModel([Round([FAILURE]), Round([Text("Leaves.")])])
    check = CallCheck(conversation, tool_set, fitting, have_common_words)
    calls = RunCalls(ScriptedTools({}), tool_set, CallContext(sink=sink), check=check)
    with anyio.fail_after(60):
        await answer_with_tools(
            model, conversation, [Message("user", question)], calls, ModelOptions(), LoopSettings(), sink
        )
    assert (status_line("words") in events) is not is_repaired
    assert [listed for _, listed, _ in model.asked][1] == (tuple(tool.name for tool in TOOLS) if is_repaired else ())
    assert conversation.messages[-1] == Message("assistant", "Leaves.")


def test_a_conversation_in_words_has_neither_calls_nor_results() -> None:
    system = Message("system", "Help.")
    conversation = Conversation(messages=[system, *BEFORE, Message("user", "Thanks")])
    assert without_rounds(conversation, "words").messages == [system, BEFORE[0], BEFORE[3], Message("user", "Thanks")]


def test_a_conversation_in_words_has_no_calls_that_failed() -> None:
    failed = [
        Message("assistant", '{"name": "go_to_school", "arguments": {}}'),
        Message("tool", results=(ToolResult("", "tool_call", "unknown tool 'go_to_school'", is_error=True),)),
    ]
    question = Message("user", "Correct this: He go to school.")
    conversation = Conversation(messages=[BEFORE[0], *failed, BEFORE[3], question, *failed, *failed])
    assert without_rounds(conversation, "words").messages == [BEFORE[0], BEFORE[3], question]
