"""Ollama's API as its own Python client, and plain requests, meet it."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import ollama
import pytest

from rkllm_mcp.surfaces.http.ollama import VERSION
from tests.support.chat_script import CITY, OWNERS_KEY, TOOLS, Json, read_aloud, user
from tests.support.served import Served

WEATHER = TOOLS[0]
KEY = {"Authorization": f"Bearer {OWNERS_KEY}"}


# Its methods are partly without types.
Client = Any


@pytest.fixture(scope="module")
def client(scripted: Served) -> Generator[Client, None, None]:
    client: Any = ollama.Client(host=scripted.url, headers=KEY)
    yield client
    client._client.close()


def post(scripted: Served, path: str, body: Json) -> httpx2.Response:
    return httpx2.post(f"{scripted.url}{path}", json=body, headers=KEY, timeout=120)


def test_the_model_is_listed_shown_and_loaded(
    client: Client, scripted: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the models that the developer has installed.
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert [model.model for model in client.list().models] == ["parrot:latest", "gpt-4o-mini:latest"]
    shown = client.show("parrot")
    assert shown.capabilities is not None
    assert {"completion", "tools"} <= set(shown.capabilities)
    assert shown.modelinfo is not None
    assert shown.modelinfo["qwen3.context_length"] == 4096
    assert [model.model for model in client.ps().models] == ["parrot:latest"]
    assert httpx2.get(f"{scripted.url}/api/version", headers=KEY, timeout=120).json() == {"version": VERSION}
    assert client.chat("parrot", messages=[]).done_reason == "load"
    assert client.chat("parrot", messages=[user("Hi")], keep_alive=-1).message.content == "I see."


@pytest.mark.parametrize("name", ["parrot", "parrot:latest", "gpt-4o-mini", "default"])
def test_a_chat_is_answered_whole_and_in_pieces(client: Client, name: str) -> None:
    whole = client.chat(name, messages=[user("Hi")])
    assert whole.message.content == "I see."
    assert (whole.done, whole.done_reason, whole.model) == (True, "stop", name)
    assert whole.prompt_eval_count
    assert whole.eval_count
    assert whole.total_duration
    pieces = list(client.chat(name, messages=[user("Hi")], stream=True))
    assert "".join(piece.message.content or "" for piece in pieces) == "I see."
    assert [piece.done for piece in pieces].count(True) == 1
    assert pieces[-1].done_reason == "stop"


@pytest.mark.parametrize("is_stream", [False, True])
def test_tools_go_there_and_back(client: Client, is_stream: bool) -> None:
    messages: list[Any] = [user("What is the Weather in Oslo and Rome?")]
    if is_stream:
        pieces = list(client.chat("parrot", messages=messages, tools=[WEATHER], stream=True))
        calls = [call for piece in pieces for call in piece.message.tool_calls or ()]
    else:
        calls = list(client.chat("parrot", messages=messages, tools=[WEATHER]).message.tool_calls or ())
    assert [(call.function.name, call.function.arguments) for call in calls] == [
        ("get_weather", {"city": "Oslo"}),
        ("get_weather", {"city": "Rome"}),
    ]
    messages.append({"role": "assistant", "content": "", "tool_calls": [call.model_dump() for call in calls]})
    messages.append({"role": "tool", "content": "cold", "tool_name": "get_weather"})
    messages.append({"role": "tool", "content": "warm", "tool_name": "get_weather"})
    assert client.chat("parrot", messages=messages, tools=[WEATHER]).message.content == read_aloud("warm")


def test_results_find_their_calls_by_their_ids_where_they_name_them(scripted: Served) -> None:
    def ask(messages: list[Any]) -> dict[str, Any]:
        body = {"model": "parrot", "messages": messages, "tools": [WEATHER], "stream": False}
        return post(scripted, "/api/chat", body).json()["message"]

    messages: list[Any] = [user("What is the Weather in Oslo and Rome?")]
    message = ask(messages)
    assert [(call["id"], call["index"], call["function"]["index"]) for call in message["tool_calls"]] == [
        ("call_1", 0, 0),
        ("call_2", 1, 1),
    ]
    results = [{"role": "tool", "content": said, "tool_call_id": name} for said, name in (("b", "two"), ("a", "one"))]
    own = [{**call, "id": name} for call, name in zip(message["tool_calls"], ("one", "two"), strict=True)]
    # The script reads the result of the last call.
    assert ask([*messages, {**message, "tool_calls": own}, *results])["content"] == read_aloud("b")
    bare = [{"function": call["function"]} for call in message["tool_calls"]]
    for result, name in zip(results, ("call_2", "call_1"), strict=True):
        result["tool_call_id"] = name
    assert ask([*messages, {"role": "assistant", "content": None, "tool_calls": bare}, *results])[
        "content"
    ] == read_aloud("b")


def test_a_conversation_is_recognised_by_its_messages(client: Client, scripted: Served) -> None:
    assert scripted.service is not None
    messages: list[Any] = [{"role": "system", "content": "Be kind to everybody, always."}]
    for city in ("Oslo", "Rome"):
        messages.append(user(f"What is the Weather in {city}?"))
        answer = client.chat("parrot", messages=messages, tools=[WEATHER])
        messages.append({"role": "assistant", "content": "", "tool_calls": answer.message.tool_calls})
        messages.append({"role": "tool", "content": "cold", "tool_name": "get_weather"})
        before = scripted.service.usage[""].prefilled_tokens
        answer = client.chat("parrot", messages=messages, tools=[WEATHER])
        # Of a prompt with a system text and a tool, only the result is new.
        assert scripted.service.usage[""].prefilled_tokens - before < 40
        messages.append({"role": "assistant", "content": answer.message.content})


def test_a_prompt_is_answered_with_a_system_text_and_options(client: Client) -> None:
    assert client.generate("parrot", "Do it", system="speak like a pirate").response == "Arr."
    cut = client.generate("parrot", "count", options={"num_predict": 3})
    assert cut.done_reason == "length"
    assert cut.eval_count == 3
    # Some languages write whole numbers like that.
    assert client.generate("parrot", "count", options={"num_predict": 3.0}).eval_count == 3
    stopped = client.generate("parrot", "count", options={"stop": ["STOP"], "num_predict": -1, "temperature": 9.0})
    assert stopped.response == "one two three "
    pieces = list(client.generate("parrot", "Hi", stream=True))
    assert "".join(piece.response for piece in pieces) == "I see."


def test_an_answer_has_the_form_that_was_asked_for(client: Client) -> None:
    for form in ("json", CITY):
        content = client.chat("parrot", messages=[user("A trip to Oslo")], format=form).message.content
        assert json.loads(content or "")["city"] == "Oslo"


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_answer_that_never_has_the_form_is_an_error(client: Client, is_stream: bool) -> None:
    with pytest.raises(ollama.ResponseError, match="no answer of the form") as refused:
        list(client.chat("parrot", messages=[user("Hi")], format="json", stream=is_stream))
    assert refused.value.status_code == 422
    assert client.chat("parrot", messages=[user("Hi")]).message.content == "I see."


def test_texts_become_vectors(client: Client) -> None:
    vectors = client.embed("parrot", ["one", "two"]).embeddings
    assert len(vectors) == 2
    assert sum(number * number for number in vectors[0]) == pytest.approx(1, abs=1e-4)
    assert list(client.embed("parrot", "one").embeddings[0]) == pytest.approx(list(vectors[0]), abs=1e-4)
    assert list(client.embeddings("parrot", "one").embedding) == pytest.approx(list(vectors[0]), abs=1e-4)


def test_a_refusal_is_one_sentence_as_its_programs_expect(client: Client, scripted: Served) -> None:
    with pytest.raises(ollama.ResponseError, match="not found") as missing:
        client.chat("mistral", messages=[user("Hi")])
    assert missing.value.status_code == 404
    for path, body, status in (
        ("/api/chat", {"model": "parrot", "messages": [{"role": "nobody", "content": ""}]}, 422),
        ("/api/chat", {"model": "parrot", "messages": [{"role": "tool", "content": "x"}], "stream": False}, 200),
        ("/api/chat", {"model": "parrot", "messages": [user("Hi")], "format": "yaml"}, 400),
        ("/api/generate", {"model": "parrot", "prompt": "x", "suffix": "y"}, 400),
        ("/api/generate", {"prompt": "x"}, 422),
        ("/api/embed", {"model": "nobody", "input": "x"}, 404),
        ("/api/show", {"model": "nobody"}, 404),
    ):
        response = post(scripted, path, body)
        assert response.status_code == status, response.text
        assert status == 200 or isinstance(response.json()["error"], str)


def test_a_body_needs_no_content_type(scripted: Served) -> None:
    content = json.dumps({"model": "parrot", "prompt": "Hi", "stream": False})
    answer = httpx2.post(f"{scripted.url}/api/generate", content=content, headers=KEY, timeout=120)
    assert answer.json()["response"] == "I see."
