"""Requests as Open WebUI sends them, and OpenAI's client where it asks for what there is not."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from datetime import datetime
from typing import Any, cast

import httpx2
import openai
import pytest

from tests.support.chat_script import OWNERS_KEY, Json, read_aloud, user
from tests.support.served import Served

TURN_ON: Json = {
    "type": "function",
    "function": {
        "name": "HassTurnOn",
        "description": "Turns on/opens/presses a device or entity.",
        "parameters": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "area": {"type": "string"},
                "domain": {"type": "array", "items": {"type": "string"}},
                "device_class": {"type": "array", "items": {"type": "string", "enum": ["tv", "switch"]}},
            },
            "required": [],
        },
    },
}


@pytest.fixture(scope="module")
def webui(scripted: Served) -> Generator[httpx2.Client, None, None]:
    """Requests with the headers that Open WebUI's backend sends."""
    person = {"X-OpenWebUI-User-Name": "Taro%20Yamada", "X-OpenWebUI-User-Id": "u-1", "X-OpenWebUI-User-Role": "admin"}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {OWNERS_KEY}", **person}
    client = httpx2.Client(base_url=scripted.url, headers=headers, timeout=120)
    with client:
        yield client


# --- Open WebUI -------------------------------------------------------------------------------------------------------


def test_open_webui_looks_at_the_board_as_an_ollama(webui: httpx2.Client) -> None:
    assert webui.head("/").status_code == 200
    assert set(webui.get("/api/version").json()) == {"version"}
    listed, *_ = webui.get("/api/tags").json()["models"]
    (loaded,) = webui.get("/api/ps").json()["models"]
    assert listed["model"] == listed["name"] == loaded["name"] == "parrot:latest"
    assert datetime.fromisoformat(loaded["expires_at"]).timestamp() > 0
    assert "tools" in webui.post("/api/show", json={"model": "parrot:latest"}).json()["capabilities"]
    vectors = webui.post("/api/embed", json={"model": "parrot:latest", "input": ["one", "two"]}).json()["embeddings"]
    assert [len(vector) for vector in vectors] == [256, 256]


def test_open_webui_chats_with_an_ollama(webui: httpx2.Client) -> None:
    body: Json = {
        "model": "parrot:latest",
        "messages": [{"role": "system", "content": "Be kind."}, user("Hi")],
        "options": {"num_ctx": 4096, "temperature": 0.8, "mirostat": 0, "num_gpu": 1, "stop": []},
        "stream": True,
        "keep_alive": "5m",
        "format": "",
        "metadata": {"chat_id": "c-1"},
    }
    lines = webui.post("/api/chat", content=json.dumps(body)).text.splitlines()
    pieces = [json.loads(line) for line in lines]
    assert "".join(piece["message"]["content"] for piece in pieces) == "I see."
    assert pieces[-1]["eval_count"] > 0
    refused = webui.post("/api/chat", json={**body, "model": "gone"})
    assert (refused.status_code, refused.json()) == (404, {"error": "model 'gone' not found; there is 'parrot'"})
    refused = webui.get("/api/tags", headers={"Authorization": "Bearer wrong"})
    assert (refused.status_code, set(refused.json())) == (401, {"error"})
    assert "not known here" in refused.json()["error"]


def test_open_webui_chats_with_an_openai(webui: httpx2.Client) -> None:
    model, *_ = webui.get("/v1/models").json()["data"]
    body: Json = {
        "model": model["id"],
        "messages": [{"role": "system", "content": "Be kind."}, user("Turn on the kitchen light")],
        "stream": True,
        "stream_options": {"include_usage": True},
        "params": {},
        "features": {"web_search": False},
        "variables": {"{{USER_NAME}}": "Taro"},
        "chat_id": "5f8c",
        "session_id": "s-1",
        "id": "m-1",
        "background_tasks": {"title_generation": True, "tags_generation": True},
        "tools": [TURN_ON],
        "user": {"name": "Taro", "role": "admin"},
    }
    chunks = list(records(webui.post("/v1/chat/completions", json=body)))
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    name, arguments = (call for delta in deltas for call in delta.get("tool_calls") or ())
    call = {**name, "function": {**name["function"], "arguments": arguments["function"]["arguments"]}}
    assert chunks[-1]["usage"]["total_tokens"] > 0
    # It sends calls back with their index, and contents in parts.
    answered = [
        *body["messages"],
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "switched on"},
    ]
    chunks = list(records(webui.post("/v1/chat/completions", json={**body, "messages": answered})))
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert text == read_aloud("switched on")


def test_open_webui_gets_a_title_as_json(webui: httpx2.Client) -> None:
    task = '### Task:\nGenerate a concise title.\n### Output:\nJSON format: { "title": "your title" }\n<chat_history>…'
    body: Json = {
        "model": "parrot",
        "messages": [user(task)],
        "stream": False,
        "max_completion_tokens": 1000,
        "metadata": {"task": "title_generation", "task_body": {"messages": []}, "chat_id": None},
    }
    content = webui.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
    assert json.loads(content) == {"title": "💡 Light in the kitchen"}


def records(response: httpx2.Response) -> Iterable[Json]:
    """The chunks of a stream, which has to end as it should."""
    *lines, last = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    assert last == "[DONE]"
    return map(json.loads, lines)


# --- OpenAI's client --------------------------------------------------------------------------------------------------


def test_unsupported_apis_are_a_404_that_names_the_supported_one(scripted: Served) -> None:
    with openai.OpenAI(base_url=f"{scripted.url}/v1", api_key=OWNERS_KEY, max_retries=0, timeout=120) as it:
        client = cast("Any", it)
        for ask in (
            # Its methods for these warn that they are going away.
            lambda: client.post("/assistants", body={"model": "parrot"}, cast_to=object),
            lambda: client.get("/threads/t-1", cast_to=object),
        ):
            with pytest.raises(
                openai.NotFoundError, match="ask POST /v1/responses or POST /v1/chat/completions"
            ) as refused:
                ask()
            assert refused.value.code == "not_found"
        for ask, said in (
            (lambda: client.images.generate(model="parrot", prompt="A cat"), "no pictures are made here"),
            (lambda: client.moderations.create(input="x"), "no model for it is offered"),
            (client.files.list, "send the text in the request"),
            (client.batches.list, "send the requests one after the other"),
            (client.conversations.create, "send previous_response_id"),
            (lambda: client.conversations.items.list("conv_1"), "send previous_response_id"),
            (lambda: client.responses.compact(model="parrot", input="x"), "ask for one in a request"),
            (lambda: client.responses.cancel("resp_1"), "no answer is made in the background"),
            (lambda: client.get("/nothing", cast_to=object), r"/openapi\.json lists what there is"),
        ):
            with pytest.raises(openai.NotFoundError, match=said):
                ask()
