"""Rounds of the model and its tools until there is an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import anyio
import pytest

from rkllm_mcp.agent.handlers import RunCalls
from rkllm_mcp.agent.loop import LoopSettings, answer_with_tools
from rkllm_mcp.agent.tool_set import ToolSet
from rkllm_mcp.catalogue import status_line, translate
from rkllm_mcp.errors import PromptTooLongError, RunRejectedError
from rkllm_mcp.events import (
    End,
    Event,
    ModelEvent,
    Status,
    Text,
    Thinking,
    ToolCallDetected,
    ToolCallFailed,
    ToolFinished,
    ToolProgress,
)
from rkllm_mcp.generation import ForcedTool, ModelOptions
from rkllm_mcp.messages import Conversation, Message, ToolResult, ToolSpec
from rkllm_mcp.protocols import CallContext
from tests.support.scripted_model import Round, ScriptedModel, ScriptedTools
from tests.support.turn_events import FunctionSink

WEATHER = ToolSpec("get_weather", "Weather", server="jma")
QUESTION = [Message("user", "Weather?")]
TIME = ToolSpec("get_time", "Time", server="clock")
pytestmark = pytest.mark.anyio


def call(name: str = "get_weather", **arguments: str) -> ToolCallDetected:
    return ToolCallDetected(name, arguments, raw=f"<{name}>")


async def answer(
    rounds: Sequence[Sequence[ModelEvent] | Round],
    *,
    texts: dict[str, str] | None = None,
    tools: ScriptedTools | None = None,
    settings: LoopSettings | None = None,
    conversation: Conversation | None = None,
    options: ModelOptions | None = None,
    question: Sequence[Message] = QUESTION,
    listed: Sequence[ToolSpec] = (WEATHER, TIME),
) -> tuple[list[Event], ScriptedModel, ScriptedTools, Conversation]:
    model = ScriptedModel([r if isinstance(r, Round) else Round(r) for r in rounds])
    tools = tools or ScriptedTools({"get_weather": "sunny", "get_time": "noon"} if texts is None else texts)
    conversation = conversation or Conversation()
    events: list[Event] = []

    @FunctionSink
    def sink(event: Event) -> None:
        events.append(event)

    settings = settings or LoopSettings()
    context = CallContext(sink=sink, request=question[-1].text)
    calls = RunCalls(tools, ToolSet(listed), context, parallel=settings.parallel_tools)
    with anyio.fail_after(60):
        events.append(
            await answer_with_tools(model, conversation, question, calls, options or ModelOptions(), settings, sink)
        )
    return events, model, tools, conversation


async def test_the_notes_of_a_limit_are_in_the_language_of_the_question() -> None:
    for question, (limit, nothing) in {
        "Weather?": (translate("model.round_limit"), "[The model wrote no answer. This is what the tool says:]\nsunny"),
        "天気は？": (
            "[ツール呼び出しの上限に達しました。これ以上ツールを呼び出さず、今ある結果で答えてください。]",
            "[モデルが回答を書かなかったため、ツールの結果をそのまま表示します]\nsunny",
        ),
    }.items():
        settings = LoopSettings(max_rounds=1)
        events, *_, conversation = await answer(
            [[call()], [call()], []], settings=settings, question=[Message("user", question)]
        )
        assert next(message.text for message in conversation.messages if message.results) == limit
        assert Text(nothing) in events


async def test_a_call_is_run_and_its_result_goes_back() -> None:
    events, model, tools, conversation = await answer([[Text("Let me see."), call(location="東京")], [Text("Sunny!")]])
    assert events == [
        Text("Let me see."),
        ToolCallDetected("get_weather", {"location": "東京"}, "<get_weather>", id="call_1", server="jma"),
        Status("[MCP: Detected 1 tool call]"),
        Status("[MCP: Calling tool 'get_weather']"),
        Status("[MCP: Tool 'get_weather' completed]"),
        ToolFinished("call_1", "get_weather", is_error=False, text="sunny", seconds=0.0),
        Text("Sunny!"),
        End("answered"),
    ]
    assert [c.arguments for c in tools.calls] == [{"location": "東京"}]
    assert model.asked[1][0][-1] == Message("tool", results=(ToolResult("call_1", "get_weather", "sunny"),))
    assert conversation.messages[-1] == Message("assistant", "Sunny!")


async def test_a_failing_tool_is_something_the_model_reads() -> None:
    events, model, _, _ = await answer([[call()], [Text("Sorry.")]], texts={})
    assert Status("[MCP: Tool 'get_weather' failed: it broke]") in events
    assert model.asked[1][0][-1].results == (ToolResult("call_1", "get_weather", "it broke\nbadly", is_error=True),)
    assert events[-1] == End("answered")


async def test_an_unreadable_call_goes_back_with_its_reason() -> None:
    failed = ToolCallFailed("<tool_call>{", "the JSON ends too early; call again")
    events, model, _, _ = await answer([[failed], [call(location="a")], [Text("ok")]])
    assert events[0] == failed
    assert model.asked[1][0][-1].results == (
        ToolResult("", "tool_call", "the JSON ends too early; call again", is_error=True),
    )
    assert events[-1] == End("answered")


async def test_after_too_many_unreadable_calls_in_a_row_the_model_must_answer_in_text() -> None:
    failed = ToolCallFailed("x", "no JSON")
    events, model, _, _ = await answer(
        [[failed], [failed], [failed], [Text("In words.")]], settings=LoopSettings(repair_rounds=2)
    )
    assert len(model.asked) == 4
    assert model.asked[3][0][-1].text == translate("model.repair_limit")
    assert events[-2:] == [Text("In words."), End("answered")]


async def test_a_call_that_worked_gives_new_repairs() -> None:
    failed = ToolCallFailed("x", "no JSON")
    rounds = [[failed], [call(location="a")], [failed], [call(location="b")], [Text("ok")]]
    events, _, tools, _ = await answer(rounds, settings=LoopSettings(repair_rounds=1))
    assert len(tools.calls) == 2
    assert events[-1] == End("answered")


async def test_at_the_round_limit_the_model_is_asked_for_text_and_answers() -> None:
    rounds = [[call(location="a")], [call(location="b")], [Text("What I have.")]]
    events, model, _, conversation = await answer(rounds, settings=LoopSettings(max_rounds=2))
    assert model.asked[2][0][-1].text == translate("model.round_limit")
    assert model.asked[2][0][-1].results[0].text == "sunny"
    assert events[-2:] == [Text("What I have."), End("round_limit")]
    assert conversation.messages[-1].role == "assistant"


async def test_a_call_after_the_round_limit_is_not_run_and_the_reason_is_shown() -> None:
    rounds = [[call(location="a")], [call(location="b")], [Text("Sunny.")]]
    events, model, tools, conversation = await answer(rounds, settings=LoopSettings(max_rounds=1))
    assert len(tools.calls) == 1
    assert events[-4:] == [
        ToolCallFailed("<get_weather>", "no more tools are run for this answer"),
        status_line("facts"),
        Text("Sunny."),
        End("round_limit"),
    ]
    assert [message.role for message in conversation.messages] == ["user", "assistant", "tool", "assistant"]
    assert model.asked[2][1] == ()


async def test_an_answer_or_a_call_cut_at_the_token_limit_says_so_and_is_not_tried_again() -> None:
    for cut in (Text("and then"), ToolCallFailed("<tool_call>{", "cut")):
        events, model, _, _ = await answer([Round([cut], cut=True)])
        assert len(model.asked) == 1
        assert events[-1] == End("token_limit")


async def test_a_machine_that_fails_ends_the_answer_and_says_why() -> None:
    error = RunRejectedError("npu on fire")
    events, _, _, conversation = await answer([Round([Text("par")], error=error)])
    assert events == [Text("par"), End("failed", str(error))]
    assert [message.role for message in conversation.messages] == ["user", "assistant"]


async def test_a_question_that_does_not_fit_does_not_hinder_the_next() -> None:
    conversation = Conversation()
    conversation.add(Message("system", "s"))
    events, _, _, _ = await answer([Round([], error=PromptTooLongError(900, 500))], conversation=conversation)
    assert events == [End("failed", str(PromptTooLongError(900, 500)))]
    assert conversation.messages == [Message("system", "s")]


async def test_only_the_first_round_is_forced() -> None:
    _, model, _, _ = await answer([[call()], [Text("ok")]], options=ModelOptions(tool_choice=ForcedTool("get_weather")))
    assert [options.forced_tool for _, _, options in model.asked] == ["get_weather", None]


async def test_a_call_that_failed_is_not_run_again_and_a_sentence_with_its_reason_is_the_answer() -> None:
    rounds = [[call(location="a")], [call(location="a")], [Text("never asked")]]
    events, model, tools, conversation = await answer(rounds, texts={})
    assert (len(tools.calls), len(model.asked)) == (1, 2)
    sentence = translate("answer.could_not", tool="get_weather", reason="it broke")
    assert events[-2:] == [Text(sentence), End("answered")]
    assert conversation.messages[-1] == Message("assistant", sentence)


@pytest.mark.parametrize("parallel", [False, True])
async def test_the_same_call_twice_in_one_round_runs_once(parallel: bool) -> None:
    calls = [call(location="a"), call("get_time"), call(location="a"), call(location="a")]
    events, model, tools, _ = await answer([calls, [Text("ok")]], settings=LoopSettings(parallel_tools=parallel))
    assert [c.name for c in tools.calls] == ["get_weather", "get_time"]
    assert Status("[MCP: Detected 4 tool calls]") in events
    assert events.count(Status("[MCP: Calling tool 'get_weather']")) == 1
    results = model.asked[1][0][-1].results
    assert [result.call_id for result in results] == ["call_1", "call_2", "call_3", "call_4"]
    again = "(Called before with the same arguments; this is the same result.)\nsunny"
    assert [result.text for result in results] == ["sunny", "noon", again, again]
    assert sorted(event.id for event in events if isinstance(event, ToolFinished)) == [
        "call_1",
        "call_2",
        "call_3",
        "call_4",
    ]


async def test_calls_and_unreadable_calls_of_one_round_all_get_their_line() -> None:
    failed = ToolCallFailed("x", "no JSON")
    events, model, _, _ = await answer([[call(location="a"), failed, call("get_time")], [Text("ok")]])
    assert [(r.call_id, r.text) for r in model.asked[1][0][-1].results] == [
        ("call_1", "sunny"),
        ("call_2", "noon"),
        ("", "no JSON"),
    ]
    assert events[-1] == End("answered")


async def test_a_round_that_only_repeats_a_call_is_answered_from_the_result() -> None:
    events, model, tools, conversation = await answer([[call(location="a")], [call(location="a")], [Text("Sunny.")]])
    assert len(tools.calls) == 1
    messages, listed, options = model.asked[2]
    assert messages == [Message("user", "Weather?\n\nFacts:\nsunny\n\nAnswer from the facts in one sentence.")]
    assert (listed, options.others) == ((), (WEATHER, TIME))
    assert events[-3:] == [status_line("facts"), Text("Sunny."), End("answered")]
    assert [message.role for message in conversation.messages] == ["user", "assistant", "tool", "assistant"]
    assert conversation.messages[-1] == Message("assistant", "Sunny.")


async def test_the_facts_are_all_results_and_in_the_language_of_the_question() -> None:
    asked = [Message("user", "天気と時刻は？", context="[note]")]
    calls = [call(location="a"), call("get_time")]
    _, model, _, _ = await answer([calls, [call("get_time")], [Text("晴れ")]], question=asked)
    (facts,) = model.asked[2][0]
    assert facts.text == "天気と時刻は？\n\n資料:\nsunny\nnoon\n\n資料の内容を日本語の文で短く答えてください。"
    assert facts.context == "[note]"


async def test_text_before_a_repeated_call_stays_in_the_answer() -> None:
    again = [Text("Let me look. "), call(location="a")]
    events, _, _, conversation = await answer([[call(location="a")], again, [Text("Sunny.")]])
    assert [event.text for event in events if isinstance(event, Text)] == ["Let me look. ", "\n\n", "Sunny."]
    assert conversation.messages[-1].text == "Let me look.\n\nSunny."


async def test_a_repeated_call_next_to_a_new_one_is_not_a_repetition() -> None:
    rounds = [[call(location="a")], [call(location="a"), call(location="b")], [Text("ok")]]
    events, model, tools, _ = await answer(rounds)
    assert len(tools.calls) == 2
    assert model.asked[2][1] == ("get_weather", "get_time")
    assert status_line("facts") not in events


async def test_an_answer_that_says_nothing_of_the_results_is_followed_by_them_and_not_in_the_history() -> None:
    rounds = [[call(location="a")], [call(location="a")], [Text("It rains.")]]
    events, _, _, conversation = await answer(rounds)
    shown = translate("answer.result", facts="sunny")
    assert events[-3:] == [Text("It rains."), Text(shown), End("answered")]
    assert conversation.messages[-1] == Message("assistant", "It rains.")
    events, _, _, _ = await answer([*rounds[:2], [Text('{"sky": "rain"}')]])
    assert events[-2:] == [Text('{"sky": "rain"}'), End("answered")]


async def test_a_repeated_call_with_the_values_of_its_result_is_a_repetition() -> None:
    place = ToolSpec("get_weather", "Weather", {"type": "object", "properties": {"location": {"type": "string"}}})
    rounds = [[call(location="a")], [call(location="a", sky="sunny")], [Text("Sunny.")]]
    events, _, tools, _ = await answer(rounds, listed=[place])
    assert len(tools.calls) == 1
    assert status_line("facts") in events
    # Of a tool that takes any keys each call is another one.
    open_place = replace(place, input_schema={**place.input_schema, "additionalProperties": True})
    _, _, tools, _ = await answer(rounds, listed=[open_place])
    assert len(tools.calls) == 2


async def test_with_answers_from_facts_no_round_with_tools_follows_a_result() -> None:
    settings = LoopSettings(answers_from="facts")
    events, model, _, conversation = await answer([[call(location="a")], [Text("Sunny.")]], settings=settings)
    assert [listed for _, listed, _ in model.asked] == [("get_weather", "get_time"), ()]
    assert events[-3:] == [status_line("facts"), Text("Sunny."), End("answered")]
    assert [message.role for message in conversation.messages] == ["user", "assistant", "tool", "assistant"]
    # A failed call may be corrected.
    _, model, _, _ = await answer([[call("fly")], [call(location="b")], [Text("Sunny.")]], settings=settings)
    assert [len(listed) for _, listed, _ in model.asked] == [2, 2, 0]


async def test_an_answer_from_facts_that_is_empty_or_a_call_is_replaced_by_the_facts() -> None:
    for third in ([], [call(location="c")], [ToolCallFailed('{"name": "x"}', "unknown")]):
        events, _, tools, conversation = await answer([[call(location="a")], [call(location="a")], third])
        assert len(tools.calls) == 1
        assert events[-2:] == [Text(translate("answer.only_results", facts="sunny")), End("answered")]
        assert conversation.messages[-1] == Message("assistant", translate("answer.only_results", facts="sunny"))


async def test_a_failure_while_answering_from_facts_leaves_every_call_with_a_result() -> None:
    rounds = [
        Round([call(location="a")]),
        Round([call(location="a")]),
        Round([Text("Su")], error=RunRejectedError("x")),
    ]
    events, _, _, conversation = await answer(rounds)
    assert events[-1] == End("failed", str(RunRejectedError("x")))
    assert conversation.messages[-1] == Message("assistant", "Su")


async def test_rounds_that_only_name_tools_that_are_not_there_use_up_the_repairs() -> None:
    rounds = [[call("fly", to=str(number))] for number in range(3)]
    events, model, _, _ = await answer([*rounds, [Text("ok")]], settings=LoopSettings(repair_rounds=2))
    assert model.asked[3][0][-1].text == translate("model.repair_limit")
    assert events[-1] == End("answered")


async def test_an_unreadable_call_in_the_last_round_is_not_taken_for_an_answer() -> None:
    rounds = [[call(location="a")], [ToolCallFailed("<tool_call>{", "no JSON")], []]
    events, _, _, _ = await answer(rounds, settings=LoopSettings(max_rounds=1))
    assert events[-2:] == [Text(translate("answer.only_results", facts="sunny")), End("round_limit")]


async def test_a_last_round_cut_at_its_token_limit_says_so() -> None:
    for last in (Text("What I"), Thinking("hm")):
        rounds = [Round([call(location="a")]), Round([last], cut=True)]
        events, _, _, _ = await answer(rounds, settings=LoopSettings(max_rounds=1))
        assert events[-2:] == [last, End("token_limit")]


async def test_calls_that_were_complete_when_the_limit_came_are_run() -> None:
    events, _, tools, _ = await answer([Round([call(location="a")], cut=True), Round([Text("ok")])])
    assert len(tools.calls) == 1
    assert events[-1] == End("answered")


async def test_an_answer_without_a_word_is_reported_as_empty() -> None:
    for silent in ([], [Text(" \n")], [Thinking("hm")]):
        events, _, _, _ = await answer([silent])
        assert events[len(silent) :] == [status_line("silence"), End("answered")]


async def test_with_no_rounds_for_tools_the_question_stays_as_it_was_asked() -> None:
    rounds = [[call(location="a")], [Text("I cannot look.")]]
    events, model, tools, conversation = await answer(rounds, settings=LoopSettings(max_rounds=0))
    assert tools.calls == []
    assert conversation.messages == [Message("user", "Weather?"), Message("assistant", "I cannot look.")]
    assert model.asked[1][1] == ()
    assert events[-1] == End("round_limit")


async def test_a_round_that_does_not_fit_leaves_its_calls_and_results_in_the_history() -> None:
    rounds = [Round([call(location="a")]), Round([], error=PromptTooLongError(900, 500))]
    events, _, _, conversation = await answer(rounds)
    assert events[-1] == End("failed", str(PromptTooLongError(900, 500)))
    assert [message.role for message in conversation.messages][:3] == ["user", "assistant", "tool"]
    assert conversation.messages[2].results[0].text == "sunny"


async def test_progress_of_a_call_carries_its_id() -> None:
    events, _, _, _ = await answer(
        [[call(location="a")], [Text("ok")]], tools=ScriptedTools({"get_weather": "sunny"}, progress=2)
    )
    assert [event for event in events if isinstance(event, ToolProgress)] == [
        ToolProgress("call_1", 0.0, 2.0, None),
        ToolProgress("call_1", 1.0, 2.0, None),
    ]
