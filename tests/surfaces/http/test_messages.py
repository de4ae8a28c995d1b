"""POST /v1/messages with Anthropic's own client, on a served instance with the emulated NPU."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any, cast

import anthropic
import httpx2
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from tests.support.chat_script import ANNS_KEY, CITY, OWNERS_KEY, Json, user
from tests.support.demo_model import demo_vocabulary
from tests.support.served import Served

MODEL = "parrot"
WEATHER: Json = {"name": "get_weather", "description": "Weather", "input_schema": CITY}
TIME: Json = {"name": "get_time", "input_schema": {"type": "object"}}
TRIP: Json = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
}
FORM: Json = {"output_config": {"format": {"type": "json_schema", "schema": TRIP}}}
BOARD: Json = {"tools": [{"type": "mcp_toolset", "mcp_server_name": "own"}]}
_EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


@pytest.fixture
def client(scripted: Served) -> Generator[anthropic.Anthropic, None, None]:
    with anthropic.Anthropic(base_url=scripted.url, api_key=OWNERS_KEY, max_retries=0, timeout=120) as it:
        yield it


def ask(client: anthropic.Anthropic, *messages: Json | str, **fields: Any) -> Message:
    return cast("Message", _create(client, messages, fields))


def stream(client: anthropic.Anthropic, *messages: Json | str, **fields: Any) -> list[Any]:
    """The events of an answer, each of which is what Anthropic says it is."""
    events = list(cast("Any", _create(client, messages, {**fields, "stream": True})))
    for event in events:
        _EVENT.validate_python(event.model_dump(), strict=False)
    return events


def _create(client: anthropic.Anthropic, messages: tuple[Json | str, ...], fields: Json) -> object:
    sent: Any = [user(message) if isinstance(message, str) else message for message in messages]
    create: Any = client.messages.create
    return cast("object", create(**{"model": MODEL, "max_tokens": 100, "messages": sent, **fields}))


def joined(events: list[Any]) -> list[Json]:
    """The blocks of a stream, put together."""
    blocks: list[Json] = []
    for event in events:
        if event.type == "content_block_start":
            assert event.index == len(blocks)
            blocks.append(event.content_block.model_dump())
        elif event.type == "content_block_delta":
            delta = event.delta
            if delta.type == "input_json_delta":
                assert blocks[-1]["input"] == {}
                blocks[-1]["input"] = json.loads(delta.partial_json)
            else:
                name = delta.type.removesuffix("_delta")
                blocks[-1][name] += getattr(delta, name)
    return blocks


@pytest.mark.parametrize(
    ("asked", "fields", "reason"),
    [
        ("hello from ann", {}, "end_turn"),
        ("think", {"thinking": {"type": "enabled", "budget_tokens": 1024}}, "end_turn"),
        ("Weather in Oslo and Rome", {"tools": [WEATHER]}, "tool_use"),
        ("at length", {"max_tokens": 3}, "max_tokens"),
        ("count", {"stop_sequences": ["STOP", "never"]}, "stop_sequence"),
        ("trip to Oslo", FORM, "end_turn"),
        ("how much is 2 and 3", BOARD, "end_turn"),
    ],
    ids=["words", "thinking", "calls", "cut", "stop", "a form", "a server's tools"],
)
def test_an_answer_comes_whole_and_in_pieces_and_both_are_the_same(
    client: anthropic.Anthropic, asked: str, fields: Json, reason: str
) -> None:
    whole = ask(client, asked, **fields)
    Message.model_validate(whole.model_dump())
    events = stream(client, asked, **fields)
    assert (events[0].type, events[-1].type) == ("message_start", "message_stop")
    assert (events[0].message.content, events[0].message.stop_reason) == ([], None)
    assert joined(events) == [block.model_dump() for block in whole.content]
    end = events[-2]
    assert (end.type, end.delta.stop_reason, end.delta.stop_sequence) == (
        "message_delta",
        whole.stop_reason,
        whole.stop_sequence,
    )
    assert whole.stop_reason == reason
    total = (whole.usage.input_tokens, whole.usage.cache_read_input_tokens or 0)
    assert sum(total) == end.usage.input_tokens + end.usage.cache_read_input_tokens > 5
    tokens = (end.usage.output_tokens, whole.usage.output_tokens)
    # After a stop sequence the runtime goes on until it is told to stop, and each of its tokens counts.
    assert min(tokens) > 1 if reason == "stop_sequence" else tokens[0] == tokens[1] > 1


def test_blocks_are_what_programs_expect(client: anthropic.Anthropic) -> None:
    thinking, text = cast("Any", ask(client, "think", thinking={"type": "adaptive"}).content)
    assert (thinking.type, thinking.thinking.strip(), text.text) == ("thinking", "Hm, let me see.", "I thought.")
    assert ask(client, "count", stop_sequences=["STOP"]).stop_sequence == "STOP"


def test_an_answer_that_never_has_the_form_is_an_error_that_says_why(client: anthropic.Anthropic) -> None:
    for answer in (ask, stream):
        with pytest.raises(
            anthropic.UnprocessableEntityError, match=r"output_config\.format: the model gave no answer"
        ):
            answer(client, "no chance", **FORM)


def test_calls_and_their_results_go_round_and_only_the_new_part_is_prefilled(client: anthropic.Anthropic) -> None:
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    settings: Json = {"tools": [WEATHER], "system": system}
    called = ask(client, "Weather in Oslo and Rome", **settings)
    calls = [block for block in called.content if block.type == "tool_use"]
    assert [(call.name, call.input) for call in calls] == [("get_weather", {"city": city}) for city in ("Oslo", "Rome")]
    results = [
        {"type": "tool_result", "tool_use_id": calls[1].id, "content": [{"type": "text", "text": "cold"}]},
        {"type": "tool_result", "tool_use_id": calls[0].id, "content": "no service", "is_error": True},
        {"type": "text", "text": "And?"},
    ]
    said = {"role": "assistant", "content": [block.model_dump() for block in called.content]}
    answer = ask(client, "Weather in Oslo and Rome", said, {"role": "user", "content": results[:2]}, **settings)
    assert cast("Any", answer.content[0]).text == "It says cold, this time."
    assert (answer.usage.cache_read_input_tokens or 0) > answer.usage.input_tokens
    again = ask(client, "Weather in Oslo and Rome", said, {"role": "user", "content": results}, **settings)
    assert again.stop_reason == "end_turn"


def test_instructions_after_a_question_belong_to_it(client: anthropic.Anthropic) -> None:
    # Claude Code sends them so.
    answer = ask(client, "hello from ann", {"role": "system", "content": "Agents: none."})
    assert cast("Any", answer.content[0]).text == "Hello, ann. こんにちは 👋"
    question: Any = [user("hello from ann"), {"role": "system", "content": "Agents: none."}]
    counted = [
        client.messages.count_tokens(model=MODEL, messages=messages).input_tokens
        for messages in (question, question[:1])
    ]
    assert counted[0] > counted[1]


@pytest.mark.parametrize(
    ("choice", "expected"), [({"type": "any"}, "Oslo"), ({"type": "tool", "name": "get_weather"}, "Rome")]
)
def test_a_call_can_be_required(client: anthropic.Anthropic, choice: Json, expected: str) -> None:
    answer = ask(client, "Weather in Oslo", tools=[WEATHER, TIME], tool_choice=choice)
    assert cast("Any", answer.content[0]).input == {"city": expected}
    none = ask(client, "Weather in Oslo", tools=[WEATHER], tool_choice={"type": "none"})
    assert cast("Any", none.content[0]).text.strip() == "I will not."


def test_a_required_call_that_the_model_does_not_make_is_an_error(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.UnprocessableEntityError) as refused:
        ask(client, "nonsense", tools=[WEATHER, {**TIME, "name": "look"}], tool_choice={"type": "any"})
    message = cast("Any", refused.value.body)["error"]["message"]
    assert message.startswith("the model made no valid call, which tool_choice requires (")
    assert "<tool_call>" not in message


def _read(ids: list[int]) -> str:
    return demo_vocabulary().decode(ids)


def thread(kind: str, previous: str | None = None) -> Json:
    fields: Json = {"type": kind} if previous is None else {"type": kind, "previous_message_id": previous}
    return {"extra_body": {"thread": fields}}


def test_a_thread_goes_on_with_its_tools_and_system_text_from_what_is_new_alone(
    client: anthropic.Anthropic, scripted: Served
) -> None:
    question = "Weather in Oslo"
    called = ask(client, question, system="Be brief.", tools=[WEATHER], **thread("create"))
    (use,) = [block for block in called.content if block.type == "tool_use"]
    result: Json = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "7 degrees"}],
    }
    by_thread = ask(client, result, **thread("continue", called.id))
    threaded = scripted.runs()[-1]["prompt"]
    answered: Json = {"role": "assistant", "content": [block.model_dump() for block in called.content]}
    whole = ask(client, question, answered, result, system="Be brief.", tools=[WEATHER])
    assert scripted.runs()[-1]["prompt"] == threaded
    assert [block.model_dump() for block in by_thread.content] == [block.model_dump() for block in whole.content]
    # The answer in a stream goes on as well, and one message may be continued twice.
    (start, *_) = stream(client, "hello from ann", **thread("continue", by_thread.id))
    assert ask(client, "hello from bob", **thread("continue", start.message.id)).content
    assert ask(client, "hello from bob", **thread("continue", called.id)).content


def test_a_thread_is_its_tenants_and_keeps_its_tools(client: anthropic.Anthropic) -> None:
    first = ask(client, "hello from ann", tools=[WEATHER], **thread("create"))
    for key, fields, code in (
        (ANNS_KEY, thread("continue", first.id), "thread_not_found"),
        (OWNERS_KEY, thread("continue", "msg_0"), "thread_not_found"),
        (OWNERS_KEY, thread("continue"), "thread_not_found"),
        (OWNERS_KEY, {**thread("continue", first.id), "tools": [TIME]}, "thread_fingerprint_mismatch"),
    ):
        with pytest.raises(anthropic.BadRequestError) as refused:
            ask(client.with_options(api_key=key), "and?", **fields)
        assert cast("Any", refused.value.body)["error"]["details"] == {"error_code": code}
    with pytest.raises(anthropic.NotFoundError):
        client.get(f"/v1/responses/{first.id}", cast_to=object)


def test_tools_that_messages_add_and_take_away_are_offered_from_there_on(
    client: anthropic.Anthropic, scripted: Served
) -> None:
    added = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": TIME}}
    removed = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "get_weather"}}
    ask(client, "hello", {"role": "system", "content": [added, removed]}, "hello from ann", tools=[WEATHER])
    prompt = scripted.runs()[-1]["prompt"]
    assert ("get_time" in _read(prompt), "get_weather" in _read(prompt)) == (True, False)
    assert "tool_addition" not in _read(prompt)


def test_answers_in_a_row_are_one_and_a_summary_is_read(client: anthropic.Anthropic, scripted: Served) -> None:
    halves = [{"role": "assistant", "content": "Heard:"}, {"role": "assistant", "content": "half"}]
    summary = {"role": "user", "content": [{"type": "compaction", "content": "Ann likes tea."}]}
    ask(client, summary, *halves, "hello from ann")
    prompt = _read(scripted.runs()[-1]["prompt"])
    assert "Ann likes tea." in prompt
    assert "Heard:\nhalf" in prompt


def test_tokens_are_counted_as_an_answer_counts_them(client: anthropic.Anthropic) -> None:
    settings: Any = {"model": MODEL, "system": "Be brief.", "tools": [WEATHER], "messages": [user("hello from ann")]}
    counted = client.messages.count_tokens(**settings).input_tokens
    usage = cast("anthropic.types.Message", client.messages.create(max_tokens=10, **settings)).usage
    assert counted == usage.input_tokens + (usage.cache_read_input_tokens or 0)


@pytest.mark.parametrize(
    ("messages", "fields", "said"),
    [
        (["x"], {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type: the hosted tool"),
        (["x"], {"extra_body": {"mcp_servers": [{"type": "url", "url": "http://evil.example"}]}}, "client's"),
        (["x"], {"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]}, "no server 'x'"),
        (["x"], {"container": "c"}, "no code runs here"),
        (
            ["x"],
            {"extra_body": {"thread": {"type": "continue", "previous_message_id": "m"}}},
            "no message 'm' of a thread is kept here; send the whole conversation",
        ),
        (
            [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}]}],
            {},
            "messages[0].content[0].type: this model reads text",
        ),
        (["x"], {"extra_headers": {"anthropic-version": "2023-01-01"}}, "anthropic-version"),
        (["long " * 5000], {}, "the prompt has"),
    ],
)
def test_what_cannot_be_done_is_refused_naming_the_field(
    client: anthropic.Anthropic, messages: list[Any], fields: Json, said: str
) -> None:
    with pytest.raises(anthropic.BadRequestError) as refused:
        ask(client, *messages, **fields)
    body = cast("Any", refused.value.body)
    assert said in body["error"]["message"]
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert body["request_id"]


def test_the_models_are_listed(client: anthropic.Anthropic) -> None:
    models = list(client.models.list())
    assert models
    for model in models:
        assert isinstance(model.capabilities, anthropic.types.ModelCapabilities)
        assert (model.capabilities.structured_outputs.supported, model.capabilities.batch.supported) == (True, False)
    assert {(model.type, model.display_name == model.id, model.created_at.tzinfo is not None) for model in models} == {
        ("model", True, True)
    }
    assert client.models.retrieve(models[0].id) == models[0]


def test_errors_are_the_kinds_that_its_users_handle(client: anthropic.Anthropic, scripted: Served) -> None:
    with pytest.raises(anthropic.AuthenticationError):
        ask(client.with_options(api_key="wrong"), "x")
    with pytest.raises(anthropic.NotFoundError) as unknown:
        ask(client, "x", model="claude")
    assert cast("Any", unknown.value.body)["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.APIStatusError, match="rkllm_run") as failed:
        stream(client, "fail later")
    assert cast("Any", failed.value.body)["error"]["type"] == "api_error"
    bearer = {"Authorization": f"Bearer {OWNERS_KEY}"}
    body = {"model": "default", "max_tokens": 10, "messages": [user("hello from ann")]}
    assert httpx2.post(f"{scripted.url}/v1/messages", json=body, headers=bearer, timeout=120).status_code == 200


def test_a_question_without_blocks_is_an_empty_one(client: anthropic.Anthropic) -> None:
    answer = client.messages.create(model=MODEL, max_tokens=10, messages=[{"role": "user", "content": []}])
    assert answer.role == "assistant"
