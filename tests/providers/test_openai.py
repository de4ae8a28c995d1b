"""A model behind OpenAI's interface, asked over real HTTP."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from rkllm_mcp.errors import ServiceError
from rkllm_mcp.events import Status, Text, Thinking, ToolCallDetected, ToolCallFailed, Usage
from rkllm_mcp.generation import ForcedTool, ModelOptions
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolResult, ToolSpec
from rkllm_mcp.sampling import SamplingOverrides
from tests.support.chat_service import ChatService, Reply, cut_up, openai_call, openai_reply, openai_stream, refusal
from tests.support.remote_models import WEATHER, asked, question, round_of, without_usage
from tests.support.turn_events import events_of

pytestmark = pytest.mark.anyio
TOOLS_REFUSED = (
    (400, "registry.ollama.ai/library/gemma:2b does not support tools"),
    (404, "No endpoints found that support tool use"),
    (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
    (500, "tools param requires --jinja flag"),
    (400, "Unrecognized request argument supplied: tools"),
)


async def test_words_thinking_and_the_cost_come_as_events_and_become_a_turn() -> None:
    usage = {"prompt_tokens": 30, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 12}}
    stream = openai_stream(
        {"reasoning_content": "Hm"}, {"reasoning": "m."}, {"content": "It "}, {"content": "rains."}, usage=usage
    )
    with ChatService(Reply(pieces=stream)) as service, anyio.fail_after(60):
        async with asked(service) as model:
            conversation = question()
            events = await round_of(model, conversation)
    assert without_usage(events) == [Thinking("Hmm."), Text("It rains.")]
    (cost,) = [event for event in events if isinstance(event, Usage)]
    assert (cost.prompt_tokens, cost.cached_tokens, cost.prefilled_tokens, cost.generated_tokens) == (30, 12, 18, 9)
    assert conversation.messages[-1] == Message("assistant", "It rains.", thinking="Hmm.")
    request = service.requests[0]
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer sk-this-is-the-very-secret-key"
    assert request.body == {
        "model": "model-x",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How is the weather?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize("size", [1, 7, 64])
async def test_however_the_stream_is_cut_the_same_calls_come(size: int) -> None:
    stream = openai_stream(
        {"content": "見てみます。"},
        {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "get_", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"name": "weather"}}]},
        *({"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in '{"location":"東京"}'),
        openai_call("get_weather", '{"location": "Kyoto", "days": "2"}', id="b", index=1),
        finish="tool_calls",
    )
    with ChatService(Reply(pieces=cut_up(stream, size))) as service, anyio.fail_after(60):
        async with asked(service) as model:
            conversation = question()
            events = await round_of(model, conversation, [WEATHER])
    assert without_usage(events) == [
        Text("見てみます。"),
        ToolCallDetected("get_weather", {"location": "東京"}, 'get_weather({"location":"東京"})', id="call_1"),
        ToolCallDetected(
            "get_weather",
            {"location": "Kyoto", "days": 2},
            'get_weather({"location": "Kyoto", "days": "2"})',
            repaired=True,
            id="call_2",
        ),
    ]
    assert [call.id for call in conversation.messages[-1].calls] == ["call_1", "call_2"]


@pytest.mark.parametrize(
    "deltas",
    [
        # Every call at the same index, told apart by its id.
        [
            openai_call("get_weather", '{"location": "A"}', id="a"),
            openai_call("get_weather", '{"location": "B"}', id="b"),
        ],
        # No index at all, and arguments as an object.
        [
            {
                "tool_calls": [
                    {"id": "a", "function": {"name": "get_weather", "arguments": {"location": "A"}}},
                    {"id": "b", "function": {"name": "get_weather", "arguments": {"location": "B"}}},
                ]
            }
        ],
        # Name and id repeated with every piece, the calls interleaved.
        [
            openai_call("get_weather", '{"location"', id="a"),
            openai_call("get_weather", '{"location"', id="b", index=1),
            openai_call("get_weather", ': "A"}', id="a"),
            openai_call("get_weather", ': "B"}', id="b", index=1),
        ],
    ],
    ids=["one index", "no index", "repeated names"],
)
async def test_calls_are_separated_with_any_numbering_of_a_service(deltas: list[dict[str, Any]]) -> None:
    with ChatService(Reply(pieces=openai_stream(*deltas, finish="tool_calls"))) as service, anyio.fail_after(60):
        async with asked(service) as model:
            events = await round_of(model, question(), [WEATHER])
    calls = [(e.name, e.arguments) for e in events if isinstance(e, ToolCallDetected)]
    assert calls == [("get_weather", {"location": "A"}), ("get_weather", {"location": "B"})]


async def test_bad_arguments_are_repaired_or_reported_to_the_model() -> None:
    stream = openai_stream(
        openai_call("get_weather", "{'location': 'Tokyo',}", id="a"),
        openai_call("get_weather", '{"location": ', id="b", index=1),
        openai_call("get_whether", '{"location": "Tokyo"}', id="c", index=2),
        openai_call("get_weather", "nonsense {", id="d", index=3),
        finish="tool_calls",
    )
    with ChatService(Reply(pieces=stream)) as service, anyio.fail_after(60):
        async with asked(service) as model:
            events = without_usage(await round_of(model, question(), [WEATHER]))
    repaired, *failed = events
    assert isinstance(repaired, ToolCallDetected)
    assert (repaired.arguments, repaired.repaired) == ({"location": "Tokyo"}, True)
    reasons = [event.reason for event in failed if isinstance(event, ToolCallFailed)]
    assert len(reasons) == 3
    assert "Call again: get_weather(location: string, days?: integer)" in reasons[0]
    assert "did you mean 'get_weather'?" in reasons[1]
    assert reasons[2] == "not valid JSON. Call again: get_weather(location: string, days?: integer)"


async def test_a_call_that_the_token_limit_cut_is_never_completed_by_guessing() -> None:
    stream = openai_stream(openai_call("get_weather", '{"location": "Kyo'), finish="length")
    with ChatService(Reply(pieces=stream)) as service, anyio.fail_after(60):
        async with asked(service) as model:
            conversation = question()
            (failed, *_) = await round_of(model, conversation, [WEATHER])
    assert isinstance(failed, ToolCallFailed)
    assert "cut this call off" in failed.reason
    assert conversation.messages[-1].cut


async def test_thinking_in_the_text_is_taken_out_as_on_the_npu() -> None:
    stream = openai_stream({"content": "<thi"}, {"content": "nk>Hm.</think>\n\nSunny."})
    with ChatService(Reply(pieces=stream)) as service, anyio.fail_after(60):
        async with asked(service) as model:
            events = await round_of(model, question())
    assert without_usage(events) == [Thinking("Hm."), Text("Sunny.")]


async def test_calls_and_results_go_back_in_the_services_own_form() -> None:
    conversation = Conversation(
        messages=[
            Message("user", "Weather?", context="[It is noon.]"),
            Message("assistant", "Let me see.", calls=(ToolCall("call_1", "get_weather", {"location": "東京"}),)),
            Message(
                "tool",
                "Answer now.",
                results=(
                    ToolResult("call_1", "get_weather", "no network", is_error=True),
                    ToolResult("", "tool_call", "bad", is_error=True),
                ),
            ),
        ]
    )
    with ChatService(openai_reply("Sorry.")) as service, anyio.fail_after(60):
        async with asked(service) as model:
            await round_of(model, conversation, [WEATHER])
    user, assistant, tool, rest = service.bodies[0]["messages"]
    assert user == {"role": "user", "content": "[It is noon.]\n\nWeather?"}
    (call,) = assistant["tool_calls"]
    assert assistant["content"] == "Let me see."
    assert call["function"] == {"name": "get_weather", "arguments": '{"location": "東京"}'}
    assert tool == {"role": "tool", "tool_call_id": call["id"], "content": "Error: no network"}
    assert len(call["id"]) == 9
    assert rest == {"role": "user", "content": "[tool_call failed: bad]\n\nAnswer now."}
    (declared,) = service.bodies[0]["tools"]
    assert declared["function"]["name"] == "get_weather"
    assert declared["function"]["parameters"]["required"] == ["location"]


async def test_every_wish_reaches_the_service() -> None:
    options = ModelOptions(
        max_new_tokens=99,
        tool_choice=ForcedTool("get_weather"),
        stop=("###",),
        single_call=True,
        sampling=SamplingOverrides(temperature=0.0, frequency_penalty=0.5),
    )
    twice = openai_stream(
        openai_call("get_weather", '{"location": "A"}'),
        openai_call("get_weather", '{"location": "B"}', id="b", index=1),
    )
    with ChatService(Reply(pieces=twice), openai_reply("x"), openai_reply("x")) as service, anyio.fail_after(60):
        async with asked(service, sampling=SamplingOverrides(temperature=0.9, top_p=0.5)) as model:
            events = await round_of(model, question(), [WEATHER], options)
            await round_of(model, question(), [WEATHER], ModelOptions(tool_choice="required"))
            await round_of(model, question(), [WEATHER], ModelOptions(tool_choice="none"))
    forced, any_tool, none = service.bodies
    assert forced["tool_choice"] == {"type": "function", "function": {"name": "get_weather"}}
    assert (forced["max_tokens"], forced["stop"], forced["parallel_tool_calls"]) == (99, ["###"], False)
    assert (forced["temperature"], forced["top_p"], forced["frequency_penalty"]) == (0.0, 0.5, 0.5)
    assert (any_tool["tool_choice"], any_tool["temperature"], "max_tokens" in any_tool) == ("required", 0.9, False)
    assert none["tool_choice"] == "none"
    assert len([event for event in events if isinstance(event, ToolCallDetected)]) == 1


async def test_names_are_made_safe_without_clashes_and_found_again() -> None:
    tools = [ToolSpec("天気"), ToolSpec("気温"), ToolSpec("x.y"), ToolSpec("x_y"), ToolSpec("l" * 80)]
    with ChatService(Reply(pieces=openai_stream(openai_call("___2", "")))) as service, anyio.fail_after(60):
        async with asked(service) as model:
            events = await round_of(model, question(), tools)
    names = [tool["function"]["name"] for tool in service.bodies[0]["tools"]]
    assert names == ["__", "___2", "x_y", "x_y_2", "l" * 64]
    (call,) = [event for event in events if isinstance(event, ToolCallDetected)]
    assert (call.name, call.arguments) == ("気温", {})


async def test_tools_announced_later_are_declared_and_others_may_be_called() -> None:
    told, other = ToolSpec("told", "Told"), ToolSpec("other", "Other")
    conversation = question()
    conversation.revealed_tools["told"] = told
    stream = openai_stream(openai_call("other", "{}"), finish="tool_calls")
    with ChatService(Reply(pieces=stream)) as service, anyio.fail_after(60):
        async with asked(service) as model:
            events = await round_of(model, conversation, [WEATHER], ModelOptions(others=(told, other)))
    assert [tool["function"]["name"] for tool in service.bodies[0]["tools"]] == ["get_weather", "told"]
    assert [event.name for event in events if isinstance(event, ToolCallDetected)] == ["other"]


@pytest.mark.parametrize(("status", "message"), TOOLS_REFUSED)
async def test_a_model_without_tools_is_asked_without_them_with_one_notice(status: int, message: str) -> None:
    replies = (refusal(status, message), openai_reply("No tools."), openai_reply("Again."))
    conversation = question()
    with ChatService(*replies) as service, anyio.fail_after(60):
        async with asked(service) as model:
            first = await round_of(model, conversation, [WEATHER])
            conversation.add(Message("user", "Still?"))
            second = await round_of(model, conversation, [WEATHER])
    said = Status("[Model: 'model-x' cannot use tools and is asked without them]")
    assert without_usage(first) == [said, Text("No tools.")]
    assert without_usage(second) == [Text("Again.")]
    assert ["tools" in body for body in service.bodies] == [True, False, False]
    assert [message.role for message in conversation.messages] == ["system", "user", "assistant", "user", "assistant"]


async def test_where_tools_are_switched_off_earlier_calls_are_described_in_words() -> None:
    conversation = Conversation(
        messages=[
            Message("user", "Weather?"),
            Message("assistant", calls=(ToolCall("call_1", "get_weather", {"location": "A"}),)),
            Message("tool", results=(ToolResult("call_1", "get_weather", "sunny"),)),
        ]
    )
    with ChatService(openai_reply("Sunny.")) as service, anyio.fail_after(60):
        async with asked(service, tools=False) as model:
            await round_of(model, conversation, [WEATHER])
    assert service.bodies[0]["messages"] == [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": '[Called get_weather with {"location": "A"}]'},
        {"role": "user", "content": "[get_weather answered: sunny]"},
    ]
    assert "tools" not in service.bodies[0]


async def test_a_bad_schema_does_not_lead_to_a_request_without_tools() -> None:
    reply = refusal(400, "Invalid schema for function 'get_weather': in context=(), array schema missing items")
    with ChatService(reply) as service, anyio.fail_after(60):
        async with asked(service) as model:
            with pytest.raises(ServiceError, match="status 400 \\(Invalid schema for function"):
                await round_of(model, question(), [WEATHER])
    assert len(service.requests) == 1


async def test_what_a_service_does_not_know_is_left_out_and_the_limit_gets_its_other_name() -> None:
    replies = (
        refusal(
            400,
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'.",
            param="max_tokens",
        ),
        refusal(400, "Unsupported value: 'temperature' does not support 0.3 with this model.", param="temperature"),
        refusal(422, "stream_options: Extra inputs are not permitted"),
        openai_reply("Yes."),
    )
    with ChatService(*replies) as service, anyio.fail_after(60):
        async with asked(service, sampling=SamplingOverrides(temperature=0.3), max_new_tokens=50) as model:
            events = await round_of(model, question())
    assert without_usage(events) == [
        Status("[Model: 'model-x' takes no temperature and is asked without it]"),
        Text("Yes."),
    ]
    assert set(service.bodies[-1]) == {"model", "messages", "stream", "max_completion_tokens"}


async def test_leaving_in_the_middle_closes_the_connection_and_keeps_what_came() -> None:
    stream = openai_stream({"content": "One"}, finish=None, done=False)
    conversation = question()
    with ChatService(Reply(pieces=stream, ending="hang")) as service, anyio.fail_after(60):
        async with asked(service) as model:
            async with aclosing(events_of(model, conversation, ())) as events:
                assert await anext(events) == Text("One")
            assert conversation.unpaid_tokens > 0
            assert await anyio.to_thread.run_sync(service.left.wait, 5)
    assert conversation.messages[-1] == Message("assistant", "One")


@pytest.mark.parametrize("ending", ["hang", "silence"])
async def test_cancelling_closes_the_connection_at_once_in_every_phase(ending: Any) -> None:
    conversation = question()
    with ChatService(Reply(ending=ending)) as service, anyio.fail_after(60):
        async with asked(service) as model, anyio.create_task_group() as tasks:

            async def leave() -> None:
                await anyio.to_thread.run_sync(service.asked.wait, 5)
                tasks.cancel_scope.cancel()

            tasks.start_soon(leave)
            await round_of(model, conversation)
        assert await anyio.to_thread.run_sync(service.left.wait, 5)
    assert conversation.messages[-1].role == "assistant"


async def test_a_service_that_tells_no_count_is_counted_about() -> None:
    with ChatService(Reply(pieces=openai_stream({"content": "Ja, 東京."}))) as service, anyio.fail_after(60):
        async with asked(service) as model:
            *_, cost = await round_of(model, question())
    assert isinstance(cost, Usage)
    assert cost.prompt_tokens > 5
    assert cost.generated_tokens > 0


async def test_older_turns_are_left_out_where_the_window_is_known() -> None:
    conversation = Conversation(messages=[Message("system", "Be brief.")])
    for number in range(20):
        conversation.messages += [Message("user", f"{number} " + "word " * 40), Message("assistant", "yes " * 20)]
    conversation.add(Message("user", "And now?"))
    with ChatService(openai_reply("Now.")) as service, anyio.fail_after(60):
        async with asked(service, context_tokens=1000, max_new_tokens=100) as model:
            events = await round_of(model, conversation)
    assert isinstance(events[0], Status)
    assert events[0].text.startswith("[Context: left out the ")
    sent = service.bodies[0]["messages"]
    assert sent[0]["role"] == "system"
    assert sent[-1]["content"] == "And now?"
    assert len(json.dumps(sent)) < 3500
    assert len(conversation.messages) == 43


async def test_an_answer_withheld_by_a_service_is_reported() -> None:
    stream = openai_stream({"content": "I"}, finish="content_filter")
    with ChatService(Reply(pieces=stream)) as service, anyio.fail_after(60):
        async with asked(service) as model:
            events = await round_of(model, question())
    assert [event.kind for event in events] == ["text", "status", "usage"]


async def test_a_service_of_ones_own_gets_none_of_the_environments_openai_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "of-the-environment")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")
    with ChatService(openai_reply("Yes.")) as service, anyio.fail_after(60):
        async with asked(service, api_key=None) as model:
            await round_of(model, question())
    assert "of-the-environment" not in str(service.requests[0].headers)
