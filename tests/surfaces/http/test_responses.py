"""POST /v1/responses with OpenAI's own client, on a served instance with the emulated NPU."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from typing import Any, cast

import httpx2
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from tests.support.chat_script import ANNS_KEY, CITY, OWNERS_KEY, Json
from tests.support.demo_model import demo_vocabulary
from tests.support.served import Served

MODEL = "parrot"
WEATHER: Json = {
    "type": "function",
    "name": "get_weather",
    "description": "Weather",
    "parameters": CITY,
    "strict": False,
}
NOTE: Json = {"type": "custom", "name": "shout", "description": "Say it aloud"}
# Codex sends some of its tools so.
SPACE: Json = {"type": "namespace", "name": "sky", "description": "Of the sky", "tools": [WEATHER]}
RED = [{"type": "input_text", "text": "red"}]
_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


@pytest.fixture
def client(scripted: Served) -> Generator[openai.OpenAI, None, None]:
    with openai.OpenAI(base_url=f"{scripted.url}/v1", api_key=OWNERS_KEY, max_retries=0, timeout=120) as it:
        yield it


def ask(client: openai.OpenAI, asked: Any, **fields: Any) -> Response:
    create: Any = client.responses.create
    return cast("Response", create(model=MODEL, input=asked, **fields))


def stream(client: openai.OpenAI, asked: Any, **fields: Any) -> list[Any]:
    """The events of an answer, each of which is what OpenAI says it is."""
    create: Any = client.responses.create
    events = list(cast("Iterable[BaseModel]", create(model=MODEL, input=asked, stream=True, **fields)))
    for event in events:
        _EVENT.validate_python(event.model_dump(), strict=False)
    assert [event.sequence_number for event in cast("list[Any]", events)] == list(range(len(events)))
    return events


def comparable(response: Response) -> Json:
    """What two answers to one question have in common: everything but ids and times."""
    written = json.loads(response.model_dump_json().replace(response.id.removeprefix("resp_"), "ID"))
    return {key: value for key, value in written.items() if key not in ("created_at", "usage")}


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        ("hello from ann", {}),
        ("think", {"reasoning": {"effort": "low", "summary": "auto"}}),
        ("Weather in Oslo and Rome", {"tools": [WEATHER]}),
        ("shout", {"tools": [NOTE]}),
        ("Sky over Oslo", {"tools": [SPACE]}),
        ("at length", {"max_output_tokens": 3}),
        ("trip to Oslo", {"text": {"format": {"type": "json_object"}}}),
        ("how much is 2 and 3", {"tools": [{"type": "mcp", "server_label": "own"}]}),
    ],
    ids=["words", "thinking", "calls", "free text", "a namespace", "cut", "a form", "a server's tools"],
)
def test_an_answer_comes_whole_and_in_pieces_and_both_are_the_same(
    client: openai.OpenAI, asked: str, fields: Json
) -> None:
    whole = ask(client, asked, **fields)
    Response.model_validate(whole.model_dump())
    events = stream(client, asked, **fields)
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert comparable(events[-1].response) == comparable(whole)
    assert events[-1].type == f"response.{whole.status}"
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.model_dump() for item in done] == [item.model_dump() for item in events[-1].response.output]
    assert whole.usage is not None
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens > 5
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == events[-1].response.output_text


def test_each_kind_of_item_is_what_programs_expect(client: openai.OpenAI) -> None:
    thinking, message = ask(client, "think", reasoning={"effort": "low"}).output
    assert cast("Any", thinking).summary[0].text.strip() == "Hm, let me see."
    assert cast("Any", message).content[0].text == "I thought."
    _, first, second = cast("Any", ask(client, "Weather in Oslo and Rome", tools=[WEATHER]).output)
    assert (first.name, json.loads(first.arguments), first.status) == ("get_weather", {"city": "Oslo"}, "completed")
    assert first.call_id != second.call_id
    assert cast("Any", ask(client, "shout", tools=[NOTE]).output[0]).input == "Hey\nthere"
    asked = {"role": "user", "content": "Sky over Oslo"}
    spaced = cast("Any", ask(client, [asked], tools=[SPACE]).output[0])
    assert (spaced.namespace, spaced.name) == ("sky", "get_weather")
    output = {
        "type": "function_call_output",
        "call_id": spaced.call_id,
        "output": [{"type": "input_text", "text": "red"}],
    }
    again = ask(client, [asked, spaced.model_dump(exclude_none=True), output], tools=[SPACE])
    assert again.output_text == "It says red, this time."
    cut = ask(client, "at length", max_output_tokens=3)
    assert cut.incomplete_details is not None
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    trip = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
    form = {"format": {"type": "json_schema", "name": "trip", "schema": trip}}
    assert json.loads(ask(client, "trip to Oslo", text=form).output_text) == {"city": "Oslo", "days": 3}


def test_an_answer_that_never_has_the_form_is_an_error_that_says_why(client: openai.OpenAI) -> None:
    for form in ({"type": "json_object"}, {"type": "json_object", "schema": {"required": ["city"]}}):
        for is_stream in (False, True):
            with pytest.raises(openai.UnprocessableEntityError, match="no answer of the form") as failed:
                ask(client, "no chance", text={"format": form}, stream=is_stream)
            assert (failed.value.code, failed.value.param) == ("answer_format", "text.format")
    # The same answer is an object, and none of this schema.
    assert json.loads(ask(client, "trip to Oslo", text={"format": {"type": "json_object"}}).output_text)["days"] == 3
    form = {"type": "json_object", "schema": {"required": ["country"]}}
    with pytest.raises(openai.UnprocessableEntityError, match="no answer of the form"):
        ask(client, "trip to Oslo", text={"format": form})


def test_a_call_and_its_output_go_on_by_items_and_by_the_id_of_the_response(client: openai.OpenAI) -> None:
    question = {"role": "user", "content": [{"type": "input_text", "text": "Weather in Oslo"}]}
    called = ask(client, [question], tools=[WEATHER], instructions="Be brief.")
    output = {"type": "function_call_output", "call_id": cast("Any", called.output[0]).call_id, "output": "warm"}
    items = [question, *(item.model_dump(exclude_none=True) for item in called.output), output]
    by_items = ask(client, items, tools=[WEATHER], instructions="Be brief.", store=False)
    assert by_items.output_text == "It says warm, this time."
    settings: Json = {"tools": [WEATHER], "instructions": "Be brief."}
    by_id = ask(client, [output], previous_response_id=called.id, **settings)
    assert by_id.output_text == by_items.output_text
    assert by_id.usage is not None
    assert by_id.usage.input_tokens_details.cached_tokens > by_id.usage.input_tokens - 40
    reference = [question, *({"type": "item_reference", "id": item.id} for item in called.output), output]
    assert ask(client, reference, **settings).output_text == by_items.output_text
    assert ask(client, "hello from ann", previous_response_id=by_id.id, **settings).output_text.startswith("Hello, ann")


def test_the_model_reads_the_result_of_a_servers_tool_again(client: openai.OpenAI, scripted: Served) -> None:
    question, server = "how much is 2 and 3", {"type": "mcp", "server_label": "own"}
    first = ask(client, question, tools=[server], store=False)
    (call,) = [item for item in first.output if item.type == "mcp_call"]
    items: list[Json] = [{"role": "user", "content": question}, *(item.model_dump() for item in first.output)]
    ask(client, [*items, {"role": "user", "content": "hello from ann"}], tools=[server], store=False)
    read = demo_vocabulary().decode
    assert f"<tool_response>\n{call.output}\n</tool_response>" in read(scripted.runs()[-1]["prompt"])
    # Without its result a call would look as if it had failed.
    next(item for item in items if item.get("type") == "mcp_call")["output"] = None
    ask(client, [*items, {"role": "user", "content": "hello from ann"}], tools=[server], store=False)
    assert "<tool_response>" not in read(scripted.runs()[-1]["prompt"])


def test_a_response_is_shown_deleted_and_not_stored_when_that_is_asked(client: openai.OpenAI) -> None:
    first = ask(client, "hello from ann", metadata={"a": "b"})
    assert comparable(client.responses.retrieve(first.id)) == comparable(first)
    second = ask(client, "hello from bob", previous_response_id=first.id)
    client.responses.delete(first.id)
    for gone in (first.id, "resp_0", ask(client, "hello", store=False).id):
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(gone)
        with pytest.raises(openai.BadRequestError) as refused:
            ask(client, "and?", previous_response_id=gone)
        assert (refused.value.code, refused.value.param) == ("previous_response_not_found", "previous_response_id")
    with pytest.raises(openai.BadRequestError, match="not all before it"):
        ask(client, "and?", previous_response_id=second.id)


def test_a_stored_response_comes_as_events_and_its_request_as_items(client: openai.OpenAI) -> None:
    first = ask(client, "hello from ann")
    response = ask(client, [{"role": "user", "content": "hello from bob"}], previous_response_id=first.id)
    events = list(cast("Any", client.responses.retrieve(response.id, stream=True)))
    assert [event.type for event in events] == [
        "response.created",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ]
    assert comparable(events[-1].response) == comparable(response)
    (rest,) = cast("Any", client.responses.retrieve(response.id, stream=True, starting_after=2))
    assert (rest.type, rest.sequence_number) == ("response.completed", 3)
    (item,) = client.responses.input_items.list(response.id)
    assert cast("Any", item).content == "hello from bob"
    with pytest.raises(openai.NotFoundError):
        client.responses.input_items.list("resp_0")


def test_no_other_tenant_reads_or_continues_a_response(scripted: Served, client: openai.OpenAI) -> None:
    mine = ask(client, "hello from ann")
    ann = client.with_options(api_key=ANNS_KEY)
    with pytest.raises(openai.NotFoundError):
        ann.responses.retrieve(mine.id)
    with pytest.raises(openai.BadRequestError):
        ask(ann, "and?", previous_response_id=mine.id)
    with pytest.raises(openai.BadRequestError):
        ask(ann, [{"type": "item_reference", "id": mine.output[0].id}, {"role": "user", "content": "x"}])


@pytest.mark.parametrize(
    ("asked", "fields", "param", "said"),
    [
        ("x", {"tools": [{"type": "web_search"}]}, "tools[0].type", "does not run here; leave it out"),
        ("x", {"tools": [{"type": "mcp", "server_label": "x"}]}, "tools", "no server 'x'"),
        (
            "x",
            {"tools": [{"type": "mcp", "server_label": "own", "server_url": "http://evil.example"}]},
            "tools[0].server_url",
            "named by server_label alone",
        ),
        (
            "x",
            {"tools": [{"type": "mcp", "server_label": "own", "allowed_tools": ["fly"]}]},
            "tools",
            "no tool 'fly'",
        ),
        ("x", {"tools": [WEATHER, {"type": "mcp", "server_label": "own"}]}, "tools", "either tools of its own or"),
        ("x", {"background": True}, "background", "stream it instead"),
        ("x", {"conversation": "conv_1"}, "conversation", "send previous_response_id"),
        ("", {}, "input", "nothing to answer"),
        ([], {}, "input", "nothing to answer"),
        (
            [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}]}],
            {},
            "input[0].content[0].type",
            "this model reads text",
        ),
        ([{"type": "computer_call"}], {}, "input", "nothing to answer"),
    ],
)
def test_what_cannot_be_done_is_refused_naming_the_field(
    client: openai.OpenAI, asked: Any, fields: Json, param: str, said: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, asked, **fields)
    assert said in str(refused.value)
    assert refused.value.param == param


def test_a_failure_in_the_middle_is_the_last_event(client: openai.OpenAI, scripted: Served) -> None:
    *_, last = stream(client, "fail later")
    assert (last.type, last.response.status) == ("response.failed", "failed")
    assert "rkllm_run" in last.response.error.message
    assert last.response.output[0].content[0].text.startswith("one")
    headers = {"Authorization": f"Bearer {OWNERS_KEY}"}
    too_long = {"input": "long " * 5000, "stream": True}
    answer = httpx2.post(f"{scripted.url}/v1/responses", json=too_long, headers=headers, timeout=120)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert answer.json()["error"]["param"] == "input"
