"""The readers of all APIs: one conversation is one request, and a refusal names the field that was sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rkllm_mcp.completions.anthropic import MessagesBody, messages_request
from rkllm_mcp.completions.chat_completions import ChatBody, CompletionBody, chat_request, completion_request
from rkllm_mcp.completions.ollama import OllamaChat, ollama_request
from rkllm_mcp.completions.request import ChatRequest, RequestContext, RequestRefusedError
from rkllm_mcp.completions.responses import ResponsesBody, StoredItems, responses_request
from rkllm_mcp.completions.structured_output import SchemaCheck

Json = dict[str, Any]
# The signature of a PNG file, in base64.
PNG = "iVBORw0KGgo="
OSLO, SCHEMA = {"city": "Oslo"}, {"type": "object", "properties": {"city": {"type": "string"}}}
URL = f"data:image/png;base64,{PNG}"


def read_responses(body: ResponsesBody, context: RequestContext) -> ChatRequest:
    return responses_request(body, StoredItems(), context)


Reader = tuple[type[Any], Callable[[Any, RequestContext], ChatRequest]]
CHAT: Reader = (ChatBody, chat_request)
TEXT: Reader = (CompletionBody, lambda body, context: completion_request(body, body.prompts[0], context))
RESPONSES: Reader = (ResponsesBody, read_responses)
MESSAGES: Reader = (MessagesBody, messages_request)
OLLAMA: Reader = (OllamaChat, ollama_request)


def request(reader: Reader, body: Json) -> ChatRequest:
    model, read = reader
    return read(model.model_validate_json(json.dumps(body)), RequestContext(SchemaCheck(), sees=True))


def called(**function: Any) -> Json:
    return {"type": "function", "function": function}


TALK: dict[str, tuple[Reader, Json]] = {
    "chat completions": (
        CHAT,
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Weather?"},
                {
                    "role": "assistant",
                    "content": "Let me see.",
                    "tool_calls": [{"id": "call_1", **called(name="sky.now", arguments=json.dumps(OSLO))}],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
                {"role": "assistant", "content": "Sunny."},
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": URL}}]},
            ],
            "tools": [called(name="sky.now", description="Look up", parameters=SCHEMA)],
            "tool_choice": called(name="sky.now"),
            "max_tokens": 7,
            "temperature": 0.5,
            "reasoning_effort": "none",
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        },
    ),
    "Responses": (
        RESPONSES,
        {
            "instructions": "Be brief.",
            "input": [
                {"role": "user", "content": "Weather?"},
                {"role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
                {"type": "reasoning", "summary": []},
                {"type": "function_call", "call_id": "call_1", "name": "sky.now", "arguments": json.dumps(OSLO)},
                {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
                {"role": "assistant", "content": "Sunny."},
                {"role": "user", "content": [{"type": "input_image", "image_url": URL}]},
            ],
            "tools": [{"type": "function", "name": "sky.now", "description": "Look up", "parameters": SCHEMA}],
            "tool_choice": {"type": "function", "name": "sky.now"},
            "max_output_tokens": 7,
            "temperature": 0.5,
            "reasoning": {"effort": "none"},
            "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}},
        },
    ),
    "Messages": (
        MESSAGES,
        {
            "model": "m",
            "system": "Be brief.",
            "messages": [
                {"role": "user", "content": "Weather?"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "Let me see."},
                        {"type": "tool_use", "id": "call_1", "name": "sky.now", "input": OSLO},
                    ],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "sunny"}]},
                {"role": "assistant", "content": "Sunny."},
                {
                    "role": "user",
                    "content": [{"type": "image", "source": {"type": "base64", "data": PNG}}],
                },
            ],
            "tools": [{"name": "sky.now", "description": "Look up", "input_schema": SCHEMA}],
            "tool_choice": {"type": "tool", "name": "sky.now"},
            "max_tokens": 7,
            "temperature": 0.5,
            "thinking": {"type": "disabled"},
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        },
    ),
}


@pytest.mark.parametrize("name", ["Responses", "Messages"])
def test_one_conversation_is_the_same_request_in_every_api(name: str) -> None:
    chat, other = request(*TALK["chat completions"]), request(*TALK[name])
    assert (other.messages, other.tools, other.options, other.form) == (
        chat.messages,
        chat.tools,
        chat.options,
        chat.form,
    )
    assert [message.role for message in other.messages] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert (len(other.messages[-1].pictures), other.options.forced_tool) == (1, "sky_now")


def test_results_of_ollamas_api_belong_to_the_calls_of_the_same_round() -> None:
    weather = {"function": {"name": "weather", "arguments": OSLO}}
    asked = request(
        OLLAMA,
        {
            "model": "m",
            "messages": [
                {"role": "user", "content": "Weather?"},
                {"role": "assistant", "tool_calls": [weather]},
                # A client that cut the result of the first round.
                {"role": "assistant", "tool_calls": [weather, {"id": "x", **weather}]},
                {"role": "tool", "content": "rain", "tool_call_id": "x"},
                {"role": "tool", "content": "sun", "tool_name": "weather"},
            ],
        },
    )
    results = [[(result.call_id, result.text) for result in message.results] for message in asked.messages]
    assert results == [[], [], [("call_1", "(no result)")], [], [("call_2", "sun"), ("call_3", "rain")]]


BAD = {"type": 5}
PATH = {"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}}
SCHEMA_FORM = {"type": "json_schema", "schema": BAD}


@pytest.mark.parametrize(
    ("reader", "body", "field"),
    [
        (
            CHAT,
            {"messages": [{"role": "user", "content": "x"}], "response_format": SCHEMA_FORM},
            "response_format.schema",
        ),
        (RESPONSES, {"input": "x", "text": {"format": SCHEMA_FORM}}, "text.format.schema"),
        (RESPONSES, {"input": "x", "text": {"format": {"type": "json_schema"}}}, "text.format"),
        (RESPONSES, {"input": [{"role": "user", "content": [PATH]}]}, "input[0].content[0]"),
        (RESPONSES, {"input": [{"type": "reasoning"}, {"role": "user", "content": [PATH]}]}, "input[1].content[0]"),
        (MESSAGES, {"output_config": {"format": SCHEMA_FORM}}, "output_config.format.schema"),
        (MESSAGES, {"stop_sequences": ["x"] * 17}, "stop_sequences"),
        (MESSAGES, {"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        (
            MESSAGES,
            {"messages": [{"role": "user", "content": [{"type": "tool_result"}, {"type": "text", "text": "x"}, PATH]}]},
            "messages[0].content[2]",
        ),
        (TEXT, {"prompt": "x", "stop": ["x"] * 17}, "stop"),
    ],
)
def test_a_refusal_names_the_field_as_the_client_sends_it(reader: Reader, body: Json, field: str) -> None:
    if reader is MESSAGES:
        body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}], **body}
    with pytest.raises(RequestRefusedError) as refused:
        request(reader, body)
    assert refused.value.param == field
