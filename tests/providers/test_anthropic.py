"""A model behind Anthropic's interface, asked over real HTTP."""

from __future__ import annotations

import anyio
import pytest

from rkllm_mcp.events import Status, Text, Thinking, ToolCallDetected, ToolCallFailed, Usage
from rkllm_mcp.generation import ForcedTool, ModelOptions
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolResult
from rkllm_mcp.sampling import SamplingOverrides
from tests.support.chat_service import ChatService, Reply, anthropic_call, anthropic_stream, anthropic_text, cut_up
from tests.support.remote_models import KEY, WEATHER, asked, question, round_of, without_usage

pytestmark = pytest.mark.anyio

THOUGHT = {
    "start": {"type": "thinking", "thinking": "", "signature": ""},
    "deltas": [
        {"type": "thinking_delta", "thinking": "Rain"},
        {"type": "thinking_delta", "thinking": "?"},
        {"type": "signature_delta", "signature": "sig"},
    ],
}


@pytest.mark.parametrize("size", [3, 4096])
async def test_words_thinking_calls_and_the_cost_come_as_events(size: int) -> None:
    call = anthropic_call("get_weather", '{"loc', 'ation": "東京", "da', 'ys": "3"}')
    usage = {"input_tokens": 10, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 30}
    stream = anthropic_stream(THOUGHT, anthropic_text("Let me ", "see."), call, call, stop="tool_use", usage=usage)
    conversation = question()
    with ChatService(Reply(pieces=cut_up(stream, size))) as service, anyio.fail_after(60):
        async with asked(service, "anthropic") as model:
            events = await round_of(model, conversation, [WEATHER])
    raw = 'get_weather({"location": "東京", "days": "3"})'
    arguments = {"location": "東京", "days": 3}
    assert without_usage(events) == [
        Thinking("Rain?"),
        Text("Let me see."),
        ToolCallDetected("get_weather", arguments, raw, repaired=True, id="call_1"),
        ToolCallDetected("get_weather", arguments, raw, repaired=True, id="call_2"),
    ]
    (cost,) = [event for event in events if isinstance(event, Usage)]
    assert (cost.prompt_tokens, cost.cached_tokens, cost.prefilled_tokens, cost.generated_tokens) == (240, 200, 40, 7)
    request = service.requests[0]
    assert (request.path, request.headers["x-api-key"]) == ("/v1/messages", KEY)
    assert request.body == {
        "model": "model-x",
        "max_tokens": 4096,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "How is the weather?"}]}],
        "tools": [
            {"name": "get_weather", "description": "Today's weather", "input_schema": dict(WEATHER.input_schema)}
        ],
    }


async def test_the_thought_before_a_call_goes_back_with_its_result_and_not_after_the_answer() -> None:
    call = anthropic_call("get_weather", '{"location": "A"}')
    replies = [anthropic_stream(THOUGHT, call, stop="tool_use"), anthropic_stream(anthropic_text("Sunny."))]
    conversation = question()
    with ChatService(*(Reply(pieces=pieces) for pieces in [*replies, replies[1]])) as service, anyio.fail_after(60):
        async with asked(service, "anthropic") as model:
            await round_of(model, conversation, [WEATHER])
            result = ToolResult("call_1", "get_weather", "", is_error=True)
            conversation.add(Message("tool", "Answer now.", results=(result,)))
            await round_of(model, conversation, [WEATHER])
            model.over(conversation.id)
            conversation.add(Message("user", "Thanks."))
            await round_of(model, conversation, [WEATHER])
    _, assistant, back = service.bodies[1]["messages"]
    (use,) = [block for block in assistant["content"] if block["type"] == "tool_use"]
    assert assistant["content"][0] == {"type": "thinking", "thinking": "Rain?", "signature": "sig"}
    assert (use["name"], use["input"]) == ("get_weather", {"location": "A"})
    assert back["content"] == [
        {"type": "tool_result", "tool_use_id": use["id"], "is_error": True},
        {"type": "text", "text": "Answer now."},
    ]
    assert "thinking" not in str(service.bodies[2]["messages"])


async def test_turns_alternate_and_none_is_empty_after_any_history() -> None:
    conversation = Conversation(
        messages=[
            Message("assistant", "Welcome."),
            Message("user", "A"),
            Message("assistant", ""),
            Message("user", "B"),
            Message("assistant", "", calls=(ToolCall("call_9", "gone", {"x": 1}),)),
            Message("user", "C"),
        ]
    )
    with ChatService(Reply(pieces=anthropic_stream(anthropic_text("D")))) as service, anyio.fail_after(60):
        async with asked(service, "anthropic") as model:
            await round_of(model, conversation)
    said = [(turn["role"], turn["content"][0]["text"]) for turn in service.bodies[0]["messages"]]
    assert said == [
        ("user", "[The conversation begins.]"),
        ("assistant", "Welcome."),
        ("user", "A\n\nB"),
        ("assistant", '[Called gone with {"x": 1}]'),
        ("user", "C"),
    ]


@pytest.mark.parametrize(
    ("options", "choice"),
    [
        (ModelOptions(tool_choice=ForcedTool("get_weather")), {"type": "tool", "name": "get_weather"}),
        (ModelOptions(tool_choice="required", single_call=True), {"type": "any", "disable_parallel_tool_use": True}),
        (ModelOptions(single_call=True), {"type": "auto", "disable_parallel_tool_use": True}),
        (ModelOptions(tool_choice="none"), {"type": "none"}),
    ],
)
async def test_the_choice_of_a_tool_reaches_the_service(options: ModelOptions, choice: object) -> None:
    with ChatService(Reply(pieces=anthropic_stream(anthropic_text("x")))) as service, anyio.fail_after(60):
        async with asked(service, "anthropic") as model:
            await round_of(model, question(), [WEATHER], options)
    assert service.bodies[0]["tool_choice"] == choice


async def test_limits_and_sampling_reach_the_service() -> None:
    options = ModelOptions(max_new_tokens=9, stop=("#",), sampling=SamplingOverrides(temperature=1.7, top_p=0.4))
    stream = anthropic_stream(anthropic_text("x"), stop="max_tokens")
    conversation = question()
    with ChatService(Reply(pieces=stream)) as service, anyio.fail_after(60):
        async with asked(service, "anthropic") as model:
            await round_of(model, conversation, (), options)
    body = service.bodies[0]
    assert (body["max_tokens"], body["stop_sequences"], body["temperature"], body["top_p"]) == (9, ["#"], 1.0, 0.4)
    assert conversation.messages[-1].cut


async def test_a_call_that_the_limit_cut_is_described_and_a_refusal_is_text() -> None:
    cut = anthropic_stream(anthropic_call("get_weather", '{"location": "T'), stop="max_tokens")
    refused = anthropic_stream(anthropic_text("I"), stop="refusal")
    with ChatService(Reply(pieces=cut), Reply(pieces=refused)) as service, anyio.fail_after(60):
        async with asked(service, "anthropic") as model:
            (failed,) = without_usage(await round_of(model, question(), [WEATHER]))
            said, held_back = without_usage(await round_of(model, question(), [WEATHER]))
    assert isinstance(failed, ToolCallFailed)
    assert (said, type(held_back)) == (Text("I"), Status)


async def test_a_key_of_the_environment_is_never_sent_to_a_service_of_ones_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of-the-environment")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "of-the-environment")
    with ChatService(Reply(pieces=anthropic_stream(anthropic_text("x")))) as service, anyio.fail_after(60):
        async with asked(service, "anthropic", api_key=None) as model:
            await round_of(model, question())
    assert "of-the-environment" not in str(service.requests[0].headers)
