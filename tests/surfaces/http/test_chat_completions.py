"""POST /v1/chat/completions with OpenAI's own client, on a served instance with the emulated NPU."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterable
from typing import Any, cast

import anyio
import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel

from rkllm_mcp.catalogue import translate
from rkllm_mcp.completions.chat_completions import ChatCompletion as ChatCompletionObject
from rkllm_mcp.completions.chat_completions import ChatCompletionChunk as ChunkObject
from tests.support.chat_script import ANNS_KEY, OWNERS_KEY, TOOLS, Json, user
from tests.support.documents import blocks
from tests.support.prefix_tree import PrefixTree
from tests.support.served import Served

MODEL = "parrot"
SYSTEM: Json = {"role": "system", "content": "You are the parrot of a test."}


@pytest.fixture
def client(scripted: Served) -> Generator[openai.OpenAI, None, None]:
    with openai.OpenAI(base_url=f"{scripted.url}/v1", api_key=OWNERS_KEY, max_retries=0, timeout=120) as it:
        yield it


def ask(client: openai.OpenAI, *messages: Json | str, **fields: Any) -> ChatCompletion:
    return cast("ChatCompletion", _create(client, messages, fields))


def stream(client: openai.OpenAI, *messages: Json | str, **fields: Any) -> list[ChatCompletionChunk]:
    return list(cast("Iterable[ChatCompletionChunk]", _create(client, messages, {**fields, "stream": True})))


def _create(client: openai.OpenAI, messages: Iterable[Json | str], fields: Json) -> object:
    sent: Any = [user(message) if isinstance(message, str) else message for message in messages]
    create: Any = client.chat.completions.create
    return cast("object", create(model=MODEL, messages=sent, **fields))


def text_of(chunks: Iterable[ChatCompletionChunk]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def echo(answer: ChatCompletion) -> Json:
    """The answer as a program sends it back."""
    return answer.choices[0].message.model_dump(exclude_none=True)


def result(call_id: str, text: str) -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def calls_in(answer: ChatCompletion) -> list[tuple[str, Json]]:
    calls: Any = answer.choices[0].message.tool_calls or []
    return [(call.function.name, json.loads(call.function.arguments)) for call in calls]


def test_an_answer_comes_whole_and_in_pieces_and_both_are_the_same(client: openai.OpenAI) -> None:
    whole = ask(client, SYSTEM, "hello from ann")
    message = whole.choices[0].message
    assert message.content == "Hello, ann. こんにちは 👋"
    assert (message.role, message.tool_calls, message.refusal) == ("assistant", None, None)
    assert (whole.model, whole.choices[0].finish_reason) == (MODEL, "stop")
    chunks = stream(client, SYSTEM, "hello from ann", stream_options={"include_usage": True})
    *pieces, last, usage = chunks
    assert text_of(chunks) == message.content
    assert pieces[0].choices[0].delta.role == "assistant"
    assert last.choices[0].finish_reason == "stop"
    assert [chunk.choices[0].finish_reason for chunk in pieces] == [None] * len(pieces)
    assert len({chunk.id for chunk in chunks}) == 1
    assert usage.choices == []
    assert whole.usage is not None
    assert usage.usage is not None
    assert usage.usage.prompt_tokens == whole.usage.prompt_tokens
    assert usage.usage.total_tokens == usage.usage.prompt_tokens + usage.usage.completion_tokens
    assert usage.usage.completion_tokens == whole.usage.completion_tokens > 5


@pytest.mark.parametrize(
    "fields",
    [{}, {"tools": TOOLS}, {"mcp": True, "x_events": True}, {"response_format": {"type": "json_object"}}],
    ids=["words", "calls", "the host's tools", "a form"],
)
def test_every_object_on_the_wire_is_what_openai_says_it_is(scripted: Served, fields: Json) -> None:
    question = {"tools": "Weather in Oslo and Rome", "mcp": "how much is 2 and 3", "response_format": "trip to Oslo"}
    text = next((question[key] for key in fields if key in question), "hello from ann")
    body = {"model": MODEL, "messages": [user(text)], **fields}
    headers = {"Authorization": f"Bearer {OWNERS_KEY}"}
    whole = httpx2.post(f"{scripted.url}/v1/chat/completions", json=body, headers=headers, timeout=120).json()
    ChatCompletion.model_validate(whole, strict=True)
    ChatCompletionObject.model_validate(whole)
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    answer = httpx2.post(f"{scripted.url}/v1/chat/completions", json=body, headers=headers, timeout=120)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *records, done, end = answer.text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    for record in records:
        chunk = json.loads(record.removeprefix("data: "))
        ChatCompletionChunk.model_validate(chunk, strict=True)
        ChunkObject.model_validate(chunk)


def test_ten_turns_with_tools_prefill_each_token_once(scripted: Served, client: openai.OpenAI) -> None:
    before = len(scripted.runs())
    said: list[Json] = [SYSTEM]
    answers: list[ChatCompletion] = []
    for city in ("Oslo", "Rome", "Bern", "Riga", "Kyiv"):
        said.append(user(f"And the weather in {city}?"))
        answers.append(ask(client, *said, tools=TOOLS))
        assert calls_in(answers[-1]) == [("get_weather", {"city": city})]
        assert answers[-1].choices[0].finish_reason == "tool_calls"
        call: Any = (answers[-1].choices[0].message.tool_calls or [])[0]
        said += [echo(answers[-1]), result(call.id, f"{city} is sunny " * 5)]
        answers.append(ask(client, *said, tools=TOOLS))
        assert (answers[-1].choices[0].message.content or "").startswith(f"It says {city} is sunny")
        said.append(echo(answers[-1]))
    assert_prefilled_once(scripted.runs()[before:])


def test_ten_turns_with_the_tools_of_the_host_prefill_each_token_once(scripted: Served, client: openai.OpenAI) -> None:
    before = len(scripted.runs())
    said: list[Json] = []
    answers: list[ChatCompletion] = []
    for turn in range(10):
        said.append(user(f"how much is {turn} and {turn}?"))
        answers.append(ask(client, *said, extra_body={"mcp": True}))
        assert answers[-1].choices[0].message.content == f"Let me calculate.\nIt says {turn * 2}, this time."
        assert answers[-1].choices[0].message.tool_calls is None
        said.append(echo(answers[-1]))
    runs = scripted.runs()[before:]
    # A run without a rule saves a prefix or tries a saved one, for a token each.
    assert len([run for run in runs if run["rule"]]) == 20
    assert_prefilled_once(runs)


def assert_prefilled_once(runs: list[Json]) -> None:
    """By the emulator's account: at most 1.02 of one evaluation for each token that the model did not write itself."""
    seen, once = PrefixTree(), 0
    for run in runs:
        once += seen.add(run["prompt"])
        seen.add([*run["prompt"], *run["sampled"][:-1]])
    assert sum(run["prefill_tokens"] for run in runs) <= 1.02 * once


def test_two_calls_at_once_come_in_order_and_their_results_in_any(client: openai.OpenAI) -> None:
    question = "Weather in Oslo and Rome"
    answer = ask(client, question, tools=TOOLS)
    assert answer.choices[0].message.content == "Two at once.\n"
    assert calls_in(answer) == [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Rome"})]
    ids = [call.id for call in answer.choices[0].message.tool_calls or []]
    assert len(set(ids)) == 2
    results = [result(ids[1], "Rome is hot"), result(ids[0], "Oslo is cold")]
    final = ask(client, question, echo(answer), *results, tools=TOOLS)
    assert final.choices[0].message.content == "It says Rome is hot, this time."


def test_the_deltas_of_calls_assemble(client: openai.OpenAI) -> None:
    chunks = stream(client, "Weather in Oslo and Rome", tools=TOOLS)
    calls: dict[int, Json] = {}
    for chunk in chunks:
        for delta in chunk.choices[0].delta.tool_calls or []:
            assert delta.function is not None
            if delta.index not in calls:
                assert (delta.type, bool(delta.id), bool(delta.function.name)) == ("function", True, True)
                calls[delta.index] = {"name": delta.function.name, "arguments": ""}
            calls[delta.index]["arguments"] += delta.function.arguments or ""
    assert {index: (call["name"], json.loads(call["arguments"])) for index, call in calls.items()} == {
        0: ("get_weather", {"city": "Oslo"}),
        1: ("get_weather", {"city": "Rome"}),
    }
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_arguments_are_json_with_any_content(client: openai.OpenAI) -> None:
    ((name, arguments),) = calls_in(ask(client, "quote", tools=TOOLS))
    assert name == "write_note"
    assert arguments == {"text": "it's \"L'Aquila\"\n東京 \\ \u2028 </tool_call>", "loud": True, "nothing": None}


def test_without_parallel_calls_the_answer_ends_after_the_first(client: openai.OpenAI) -> None:
    question = "Weather in Oslo and Rome"
    answer = ask(client, question, tools=TOOLS, parallel_tool_calls=False)
    assert calls_in(answer) == [("get_weather", {"city": "Oslo"})]
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 10
    (call,) = answer.choices[0].message.tool_calls or []
    final = ask(client, question, echo(answer), result(call.id, "cold"), tools=TOOLS, parallel_tool_calls=False)
    assert final.choices[0].message.content == "It says cold, this time."


CHOICES: list[tuple[str, Any, list[tuple[str, Json]], str | None]] = [
    ("Weather in Oslo", "auto", [("get_weather", {"city": "Oslo"})], None),
    ("Weather in Oslo", "none", [], "I will not."),
    ("Weather in Oslo", "required", [("get_weather", {"city": "Oslo"})], None),
    ("nonsense", "required", [("get_time", {})], None),
    (
        "hello from ann",
        {"type": "function", "function": {"name": "get_weather"}},
        [("get_weather", {"city": "Rome"})],
        None,
    ),
]


@pytest.mark.parametrize(
    ("question", "choice", "calls", "text"),
    CHOICES,
)
def test_tool_choice_is_obeyed(
    client: openai.OpenAI, question: str, choice: Any, calls: list[tuple[str, Json]], text: str | None
) -> None:
    answer = ask(client, question, tools=TOOLS, tool_choice=choice)
    assert calls_in(answer) == calls
    assert answer.choices[0].message.content == text
    assert answer.choices[0].finish_reason == ("tool_calls" if calls else "stop")


def test_an_unreadable_call_is_repaired_before_it_is_sent(client: openai.OpenAI) -> None:
    said: list[Json] = [user("break one")]
    answer = ask(client, *said, tools=TOOLS)
    assert answer.choices[0].message.content == "Let me see.\n"
    assert calls_in(answer) == [("get_weather", {"city": "Oslo"})]
    (call,) = answer.choices[0].message.tool_calls or []
    final = ask(client, *said, echo(answer), result(call.id, "cold"), tools=TOOLS)
    assert final.usage is not None
    assert final.usage.prompt_tokens_details is not None
    assert final.usage.prompt_tokens - (final.usage.prompt_tokens_details.cached_tokens or 0) < 40


def test_a_call_that_is_never_right_is_not_taken_for_an_answer(client: openai.OpenAI) -> None:
    answer = ask(client, "break everything", tools=TOOLS)
    assert answer.choices[0].message.content == translate("answer.no_answer_in_rounds")
    assert answer.choices[0].finish_reason == "stop"


def test_of_a_good_call_and_a_bad_one_the_good_one_is_made(client: openai.OpenAI) -> None:
    answer = ask(client, "half right", tools=TOOLS)
    assert calls_in(answer) == [("get_weather", {"city": "Oslo"})]
    assert answer.choices[0].message.content is None


def test_a_call_that_is_cut_is_not_a_call(client: openai.OpenAI) -> None:
    answer = ask(client, "Weather in Oslo", tools=TOOLS, max_tokens=8)
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.tool_calls is None
    assert (answer.choices[0].message.content or "").startswith("<tool_call>")
    # The cut turn does not are in the way of the next.
    again = ask(client, "Weather in Oslo", echo(answer), "hello from ann", tools=TOOLS)
    assert (again.choices[0].message.content or "").startswith("Hello, ann")


@pytest.mark.parametrize(
    ("stop", "text"),
    [("STOP", "one two three "), ([" four", "ee ST"], "one two thr"), (["one"], ""), ("nowhere", None)],
)
def test_a_stop_text_ends_the_answer_and_is_never_shown(client: openai.OpenAI, stop: Any, text: str | None) -> None:
    expected = "one two three STOP four five STOP six" if text is None else text
    whole = ask(client, "count", stop=stop)
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == (expected, "stop")
    assert whole.usage is not None
    assert whole.usage.completion_tokens > 0
    assert text_of(stream(client, "count", stop=stop)) == expected
    again = ask(client, "count", echo(whole), "hello from bob", stop=stop)
    assert (again.choices[0].message.content or "").startswith("Hello, bob")


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_an_answer_that_is_cut_says_so(client: openai.OpenAI, field: str) -> None:
    answer = ask(client, "at length", **{field: 4})
    assert answer.choices[0].finish_reason == "length"
    assert (answer.choices[0].message.content or "").startswith("one two")
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 4
    assert stream(client, "at length", **{field: 4})[-1].choices[0].finish_reason == "length"


def test_thinking_is_its_own_field_and_comes_only_on_request(client: openai.OpenAI) -> None:
    thought: Any = ask(client, "think", reasoning_effort="high").choices[0].message
    assert (thought.content, thought.reasoning_content) == ("I thought.", "Hm, let me see.\n")
    chunks = stream(client, "think", extra_body={"thinking": {"type": "enabled"}})
    pieces = [getattr(chunk.choices[0].delta, "reasoning_content", None) or "" for chunk in chunks]
    assert ("".join(pieces), text_of(chunks)) == ("Hm, let me see.\n", "I thought.")
    silent: Any = ask(client, "think", reasoning_effort="none").choices[0].message
    assert (silent.content, getattr(silent, "reasoning_content", None)) == ("I thought.", None)


class Trip(BaseModel):
    city: str
    days: int


TRIP = {"type": "json_schema", "json_schema": {"name": "trip", "schema": Trip.model_json_schema(), "strict": True}}


@pytest.mark.parametrize(
    ("question", "trip"),
    [
        ("A trip to Rome", {"city": "Rome", "days": 3}),
        ("A trip in a fence", {"city": "Oslo", "days": 2}),
        ("A second chance", {"city": "Oslo", "days": 2}),
    ],
)
def test_an_answer_has_the_form_that_was_asked_for(client: openai.OpenAI, question: str, trip: Json) -> None:
    answer = ask(client, question, response_format=TRIP)
    assert json.loads(answer.choices[0].message.content or "") == trip
    assert json.loads(text_of(stream(client, question, response_format=TRIP))) == trip


OBJECT_WITH_SCHEMA = {"type": "json_object", "schema": Trip.model_json_schema()}


@pytest.mark.parametrize("form", [TRIP, OBJECT_WITH_SCHEMA, {"type": "json_object"}], ids=["schema", "both", "object"])
def test_an_answer_that_never_has_the_form_is_an_error_that_says_why(client: openai.OpenAI, form: Json) -> None:
    for answer in (ask, stream):
        with pytest.raises(openai.UnprocessableEntityError, match="it is not valid JSON; ask again") as failed:
            answer(client, "no chance", response_format=form)
        assert (failed.value.code, failed.value.param) == ("answer_format", "response_format")
        assert "I still do not know." in str(failed.value)


def test_an_answer_that_misses_its_form_after_thoughts_ends_its_stream_with_the_error(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIError, match="no answer of the form") as failed:
        stream(client, "think", reasoning_effort="high", response_format=TRIP)
    assert failed.value.code == "answer_format"


def test_calls_go_before_the_form_of_the_answer(client: openai.OpenAI) -> None:
    answer = ask(client, "Weather in Oslo and Rome", tools=TOOLS, response_format=TRIP)
    assert len(calls_in(answer)) == 2
    assert answer.choices[0].message.content is None


def test_the_clients_own_helpers_parse_and_stream(client: openai.OpenAI) -> None:
    helpers: Any = client.chat.completions
    trip = helpers.parse(model=MODEL, messages=[user("A trip to Rome")], response_format=Trip)
    assert trip.choices[0].message.parsed == Trip(city="Rome", days=3)
    with pytest.raises(openai.LengthFinishReasonError):
        helpers.parse(model=MODEL, messages=[user("at length")], response_format=Trip, max_tokens=3)
    question = {"messages": [user("Weather in Oslo and Rome")], "tools": TOOLS}
    with helpers.stream(model=MODEL, stream_options={"include_usage": True}, **question) as events:
        kinds = {event.type for event in events}
        final = events.get_final_completion()
    assert {"content.delta", "content.done", "tool_calls.function.arguments.done"} <= kinds
    assert [call.function.name for call in final.choices[0].message.tool_calls] == ["get_weather"] * 2
    assert final.usage is not None


def test_the_hosts_tools_run_inside_and_are_reported_on_request(client: openai.OpenAI) -> None:
    answer: Any = ask(client, "how much is 2 and 3?", extra_body={"mcp": True, "x_events": True})
    assert answer.choices[0].message.content == "Let me calculate.\nIt says 5, this time."
    assert answer.choices[0].finish_reason == "stop"
    kinds = [event["kind"] for event in answer.x_events]
    assert [kind for kind in kinds if kind != "status"] == ["tool_call", "tool_result"]
    chunks = stream(client, "how much is 2 and 3?", extra_body={"mcp": True, "x_events": True})
    told = [event for chunk in chunks for event in cast("list[Json]", getattr(chunk, "x_events", None) or [])]
    assert [event["kind"] for event in told] == kinds
    assert text_of(chunks) == answer.choices[0].message.content
    quiet: Any = ask(client, "how much is 2 and 3?", extra_body={"mcp": True})
    assert getattr(quiet, "x_events", None) is None


@pytest.mark.parametrize(("parallel", "count"), [(True, 2), (False, 1)])
def test_without_parallel_calls_a_round_of_the_hosts_tools_has_one(
    client: openai.OpenAI, parallel: bool, count: int
) -> None:
    extra = {"mcp": True, "x_events": True}
    answer: Any = ask(client, "both sums", parallel_tool_calls=parallel, extra_body=extra)
    assert [event["kind"] for event in answer.x_events].count("tool_call") == count


def test_a_tenant_may_have_the_hosts_tools_run_without_asking(client: openai.OpenAI) -> None:
    ann = client.with_options(api_key=ANNS_KEY)
    question = "how much is 2 and 3?"
    assert ask(ann, question).choices[0].message.content == "Let me calculate.\nIt says 5, this time."
    # Nobody else has them run, and what looks like a call of a tool that nobody named is words.
    for answer in (ask(ann, question, extra_body={"mcp": False}), ask(client, question)):
        assert '"name": "calculator"' in (answer.choices[0].message.content or "")
    assert calls_in(ask(ann, "Weather in Oslo", tools=TOOLS)) == [("get_weather", {"city": "Oslo"})]


def test_a_call_that_needs_a_yes_is_refused_in_words_that_say_how_to_allow_it(client: openai.OpenAI) -> None:
    answer = ask(client, "tidy up", extra_body={"mcp": True})
    assert "always_allow" in (answer.choices[0].message.content or "")


def test_the_hosts_tools_answer_questions_only(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        ask(client, "how much?", {"role": "assistant", "content": "A lot."}, extra_body={"mcp": True})
    assert raised.value.param == "messages"


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
def test_a_prompt_that_is_too_long_is_refused_with_numbers(client: openai.OpenAI, streaming: bool) -> None:
    for extra in ({}, {"mcp": True}):
        with pytest.raises(openai.BadRequestError) as raised:
            ask(client, "word " * 5000, stream=streaming, extra_body=extra)
        assert raised.value.code == "context_length_exceeded"
        assert re.search(r"has \d+ tokens, \d+ more than the \d+ that fit", str(raised.value))
    assert ask(client, "hello from ann").choices[0].finish_reason == "stop"


# Pairs of references to pairs, fourteen deep.
NESTED: Json = {
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/a0"}},
    "$defs": {f"a{level}": {"anyOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2} for level in range(14)} | {"a14": {}},
}


@pytest.mark.parametrize(
    ("fields", "error", "param", "code"),
    [
        ({"n": 2}, openai.BadRequestError, "n", "unsupported_parameter"),
        ({"model": "gpt-9"}, openai.NotFoundError, "model", "model_not_found"),
        (
            {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "aGk="}}]}]},
            openai.BadRequestError,
            "messages[0].content[0].type",
            "unsupported_content",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": NESTED}}},
            openai.UnprocessableEntityError,
            "response_format.json_schema.schema",
            None,
        ),
        ({"temperature": "warm"}, openai.UnprocessableEntityError, "temperature", None),
        ({"messages": []}, openai.UnprocessableEntityError, "messages", None),
        ({"messages": [{"role": "wizard", "content": "x"}]}, openai.UnprocessableEntityError, "messages[0].role", None),
    ],
)
def test_what_cannot_be_is_refused_naming_the_field(
    client: openai.OpenAI, fields: Json, error: type[openai.APIStatusError], param: str, code: str | None
) -> None:
    body: Any = {"model": MODEL, "messages": [user("hi")], **fields}
    with pytest.raises(error) as raised:
        client.chat.completions.create(**body)
    assert raised.value.param == param
    assert code is None or raised.value.code == code
    assert raised.value.type == "invalid_request_error"


def test_the_model_answers_under_its_aliases(client: openai.OpenAI) -> None:
    for name in (MODEL, "default", "gpt-4o-mini"):
        answer = client.chat.completions.create(model=name, messages=[{"role": "user", "content": "hello from ann"}])
        assert answer.model == MODEL


def test_a_run_that_fails_is_a_status_before_the_first_word_and_a_record_after_it(client: openai.OpenAI) -> None:
    for streaming in (False, True):
        with pytest.raises(openai.InternalServerError):
            ask(client, "fail at once", stream=streaming)
    seen: list[str] = []
    with pytest.raises(openai.APIError, match="the runtime failed this answer"):
        for chunk in cast("Iterable[ChatCompletionChunk]", ask(client, "fail later", stream=True)):
            seen += text_of([chunk])
    assert "".join(seen).startswith("one")
    assert (ask(client, "hello from ann").choices[0].message.content or "").startswith("Hello")


def test_a_client_that_leaves_stops_its_own_answer_and_no_other(scripted: Served, client: openai.OpenAI) -> None:
    with client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "for ever"}], stream=True
    ) as endless:
        next(endless)
        left = next(endless)
    assert left.choices[0].delta.content
    # The run that hangs would keep the NPU until its watchdog acts.
    assert (ask(client, "hello from ann").choices[0].message.content or "").startswith("Hello")


@pytest.mark.anyio
async def test_many_programs_at_once_get_their_own_answers(scripted: Served) -> None:
    async with openai.AsyncOpenAI(base_url=f"{scripted.url}/v1", api_key=OWNERS_KEY, max_retries=0) as client:
        answers: dict[str, str] = {}

        async def talk(name: str) -> None:
            chunks = await client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": f"hello from {name}"}], stream=True
            )
            answers[name] = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for name in ("ann", "bob", "cid", "dan", "eve"):
                    group.start_soon(talk, name)
    assert answers == {name: f"Hello, {name}. こんにちは 👋" for name in ("ann", "bob", "cid", "dan", "eve")}


def test_the_page_about_it_shows_what_works(scripted: Served, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {language: text for language, _, text, _ in blocks("docs/openai.md")}
    program = texts["py"].replace("http://127.0.0.1:8080", scripted.url).replace('"none"', repr(OWNERS_KEY))
    exec(compile(program, "docs/openai.md", "exec"), {})
    assert capsys.readouterr().out == "I see.\n"
    sent = json.loads(texts["bash"].partition("-d '")[2].rpartition("'")[0])
    headers = {"Authorization": f"Bearer {OWNERS_KEY}"}
    answer = httpx2.post(f"{scripted.url}/v1/chat/completions", json=sent, headers=headers, timeout=120)
    assert answer.status_code == 200
