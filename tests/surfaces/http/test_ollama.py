"""Ollama's API as its own Python client, and plain requests, meet it."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import httpx2
import ollama
import pytest

from rkllm_mcp.surfaces.http.ollama import VERSION
from tests.support.served import Served, scripted_model, served

RULES = """
rule
  user weather in ([A-Z][a-z]+) and ([A-Z][a-z]+)
  results 0
  call get_weather {"city":"$1"}
  call get_weather {"city":"$2"}

rule
  user weather in ([A-Z][a-z]+)
  results 0
  call get_weather {"city":"$1"}

rule
  results 1+
  result ^(.*)$
  say It is %1.

rule
  user as JSON
  say {"answer":"yes","size":3}

rule
  prompt speak like a pirate
  say Arr.

rule
  user count
  say one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen

rule
  say Hello there.
"""
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("ollama")
    with served(folder, scripted_model(folder / "model", RULES), extra='[service]\nmodel_aliases = ["llama3"]\n') as it:
        yield it


# Its methods are partly without types.
Client = Any


@pytest.fixture(scope="module")
def client(service: Served) -> Generator[Client, None, None]:
    client: Any = ollama.Client(host=service.url)
    yield client
    client._client.close()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_the_model_is_listed_shown_and_loaded(client: Client, service: Served) -> None:
    assert [model.model for model in client.list().models] == ["parrot:latest", "llama3:latest"]
    shown = client.show("parrot")
    assert shown.capabilities is not None
    assert {"completion", "tools"} <= set(shown.capabilities)
    assert shown.modelinfo is not None
    assert shown.modelinfo["qwen2.5.context_length"] == 4096
    assert [model.model for model in client.ps().models] == ["parrot:latest"]
    assert httpx2.get(f"{service.url}/api/version", timeout=120).json() == {"version": VERSION}
    assert client.chat("parrot", messages=[]).done_reason == "load"
    assert client.generate("parrot", "", keep_alive=0).done_reason == "unload"
    assert client.chat("parrot", messages=[user("Hi")], keep_alive=-1).message.content == "Hello there."


@pytest.mark.parametrize("name", ["parrot", "parrot:latest", "llama3", "default"])
def test_a_chat_is_answered_whole_and_in_pieces(client: Client, name: str) -> None:
    whole = client.chat(name, messages=[user("Hi")])
    assert whole.message.content == "Hello there."
    assert (whole.done, whole.done_reason, whole.model) == (True, "stop", name)
    assert whole.prompt_eval_count
    assert whole.eval_count
    assert whole.total_duration
    pieces = list(client.chat(name, messages=[user("Hi")], stream=True))
    assert "".join(piece.message.content or "" for piece in pieces) == "Hello there."
    assert [piece.done for piece in pieces].count(True) == 1
    assert pieces[-1].done_reason == "stop"


@pytest.mark.parametrize("is_stream", [False, True])
def test_tools_go_there_and_back(client: Client, is_stream: bool) -> None:
    messages: list[Any] = [user("What is the weather in Oslo and Rome?")]
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
    assert client.chat("parrot", messages=messages, tools=[WEATHER]).message.content == "It is warm."


def test_results_find_their_calls_by_their_ids_where_they_name_them(service: Served) -> None:
    def ask(messages: list[Any]) -> dict[str, Any]:
        body = {"model": "parrot", "messages": messages, "tools": [WEATHER], "stream": False}
        return httpx2.post(f"{service.url}/api/chat", json=body, timeout=120).json()["message"]

    messages: list[Any] = [user("What is the weather in Oslo and Rome?")]
    message = ask(messages)
    assert [(call["id"], call["index"], call["function"]["index"]) for call in message["tool_calls"]] == [
        ("call_1", 0, 0),
        ("call_2", 1, 1),
    ]
    results = [{"role": "tool", "content": said, "tool_call_id": name} for said, name in (("b", "two"), ("a", "one"))]
    own = [{**call, "id": name} for call, name in zip(message["tool_calls"], ("one", "two"), strict=True)]
    # The script reads the result of the last call.
    assert ask([*messages, {**message, "tool_calls": own}, *results])["content"] == "It is b."
    bare = [{"function": call["function"]} for call in message["tool_calls"]]
    for result, name in zip(results, ("call_2", "call_1"), strict=True):
        result["tool_call_id"] = name
    assert (
        ask([*messages, {"role": "assistant", "content": None, "tool_calls": bare}, *results])["content"] == "It is b."
    )


def test_a_conversation_is_recognised_by_its_messages(client: Client, service: Served) -> None:
    assert service.service is not None
    messages: list[Any] = [{"role": "system", "content": "Be kind to everybody, always."}]
    for city in ("Oslo", "Rome"):
        messages.append(user(f"What is the weather in {city}?"))
        answer = client.chat("parrot", messages=messages, tools=[WEATHER])
        messages.append({"role": "assistant", "content": "", "tool_calls": answer.message.tool_calls})
        messages.append({"role": "tool", "content": "cold", "tool_name": "get_weather"})
        before = service.service.usage[""].prefilled_tokens
        answer = client.chat("parrot", messages=messages, tools=[WEATHER])
        # Of a prompt with a system text and a tool, only the result is new.
        assert service.service.usage[""].prefilled_tokens - before < 40
        messages.append({"role": "assistant", "content": answer.message.content})


def test_a_prompt_is_answered_with_a_system_text_and_options(client: Client) -> None:
    assert client.generate("parrot", "Hi", system="speak like a pirate").response == "Arr."
    cut = client.generate("parrot", "count", options={"num_predict": 3})
    assert cut.done_reason == "length"
    assert cut.eval_count == 3
    # Some languages write whole numbers like that.
    assert client.generate("parrot", "count", options={"num_predict": 3.0}).eval_count == 3
    stopped = client.generate("parrot", "count", options={"stop": ["four"], "num_predict": -1, "temperature": 9.0})
    assert stopped.response == "one two three "
    pieces = list(client.generate("parrot", "Hi", stream=True))
    assert "".join(piece.response for piece in pieces) == "Hello there."


def test_an_answer_has_the_form_that_was_asked_for(client: Client) -> None:
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    for form in ("json", schema):
        content = client.chat("parrot", messages=[user("Say it as JSON")], format=form).message.content
        assert json.loads(content or "")["answer"] == "yes"


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_answer_that_never_has_the_form_is_an_error(client: Client, is_stream: bool) -> None:
    with pytest.raises(ollama.ResponseError, match="no answer of the form") as refused:
        list(client.chat("parrot", messages=[user("Hi")], format="json", stream=is_stream))
    assert refused.value.status_code == 422
    assert client.chat("parrot", messages=[user("Hi")]).message.content == "Hello there."


def test_texts_become_vectors(client: Client) -> None:
    vectors = client.embed("parrot", ["one", "two"]).embeddings
    assert len(vectors) == 2
    assert sum(number * number for number in vectors[0]) == pytest.approx(1, abs=1e-4)
    assert list(client.embed("parrot", "one").embeddings[0]) == pytest.approx(list(vectors[0]), abs=1e-4)
    assert list(client.embeddings("parrot", "one").embedding) == pytest.approx(list(vectors[0]), abs=1e-4)


def test_a_refusal_is_one_sentence_as_its_programs_expect(client: Client, service: Served) -> None:
    with pytest.raises(ollama.ResponseError, match="not found") as missing:
        client.chat("mistral", messages=[user("Hi")])
    assert missing.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match="reads text"):
        client.chat("parrot", messages=[{**user("Hi"), "images": ["aGk="]}])
    for path, body, status in (
        ("/api/chat", {"model": "parrot", "messages": [{"role": "nobody", "content": ""}]}, 422),
        ("/api/chat", {"model": "parrot", "messages": [{"role": "tool", "content": "x"}], "stream": False}, 200),
        ("/api/chat", {"model": "parrot", "messages": [user("Hi")], "format": "yaml"}, 400),
        ("/api/generate", {"model": "parrot", "prompt": "x", "suffix": "y"}, 400),
        ("/api/generate", {"prompt": "x"}, 422),
        ("/api/embed", {"model": "nobody", "input": "x"}, 404),
        ("/api/show", {"model": "nobody"}, 404),
    ):
        response = httpx2.post(f"{service.url}{path}", json=body, timeout=120)
        assert response.status_code == status, response.text
        assert status == 200 or isinstance(response.json()["error"], str)


def test_a_body_needs_no_content_type(service: Served) -> None:
    content = json.dumps({"model": "parrot", "prompt": "Hi", "stream": False})
    assert httpx2.post(f"{service.url}/api/generate", content=content, timeout=120).json()["response"] == "Hello there."
