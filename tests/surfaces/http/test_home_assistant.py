"""Home Assistant's requests, as its releases 2025.4.4 and 2026.11.0 were seen to send them to this service.

Its integrations Ollama, llama.cpp and LiteLLM talk to a model. What they add to a request without saying anything by it
(a context window, a time to stay loaded) is sent here as well, in the spelling that was seen.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from rkllm_mcp.messages import safe_name
from tests.support.chat_script import OWNERS_KEY, Json, read_aloud, user
from tests.support.served import Served

PNG = b"\x89PNG\r\n\x1a\n"
SYSTEM = (
    "You are a voice assistant for Home Assistant.\nStatic Context: An overview of the areas and the devices in this "
    "smart home:\n- names: Kitchen Light\n  domain: light\n- names: Outside Temperature\n  domain: sensor\n"
)
SUCCESS = {"success": [{"name": "Kitchen Light", "type": "entity", "id": "light.kitchen_light"}], "failed": []}
SWITCHED = {"speech": {}, "response_type": "action_done", "data": SUCCESS}


@dataclass(frozen=True)
class Release:
    """What differs from one release to the other.

    Args:
        fields: of every request.
        tools: by name, with their parameters.
        clock: it says the time at the front of everything, where the other one has a tool for it.
        wraps: a result is in its own object.
    """

    fields: Mapping[str, Any]
    tools: Mapping[str, Json]
    clock: bool = False
    wraps: bool = False

    def system(self, time: str = "17:10:50") -> Json:
        """The first message."""
        front = f"Current time is {time}. Today's date is 2026-11-22.\n" if self.clock else ""
        return {"role": "system", "content": front + SYSTEM}

    def body(self, messages: Iterable[Json], **fields: Any) -> Json:
        """A request of the Ollama integration."""
        offered = [
            {"type": "function", "function": {"name": name, "description": "Does it", "parameters": parameters}}
            for name, parameters in self.tools.items()
        ]
        head = {"model": "parrot:latest", "stream": True, "options": {"num_ctx": 8192.0}}
        return {**head, **self.fields, "messages": list(messages), "tools": offered, **fields}

    def result(self, data: Any) -> Json:
        """What came of a call; neither the tool nor the call is named."""
        return {"role": "tool", "content": json.dumps({"data": data, "error": None} if self.wraps else data)}


OLDER = Release(
    {"keep_alive": "-1.0s"},
    {
        "HassTurnOn": {
            "type": "object",
            "required": [],
            "properties": {"name": {"type": "string"}, "area": {"type": "string"}, "domain": {"type": "array"}},
        },
        "GetLiveContext": {"type": "object", "required": [], "properties": {}},
    },
    clock=True,
)
NEWER = Release(
    {"keep_alive": -1.0, "think": False},
    {
        "intent__HassTurnOn": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "area": {"type": "string"},
                "domain": {"type": "array", "items": {"type": "string"}},
                "device_class": {"type": "array", "items": {"type": "string", "enum": ["tv", "switch"]}},
            },
        },
        "homeassistant__GetLiveContext": {
            "type": "object",
            "properties": {"domain": {"description": "Accepts a single domain or a list."}},
        },
        "llm__GetDateTime": {"type": "object", "properties": {}},
    },
    wraps=True,
)
RELEASES = pytest.mark.parametrize("release", [OLDER, NEWER], ids=["2025.4", "2026.11"])


@pytest.fixture(scope="module")
def home(scripted: Served) -> Generator[httpx2.Client, None, None]:
    """Requests as its client sends them."""
    headers = {
        "Authorization": f"Bearer {OWNERS_KEY}",
        "Content-Type": "application/json",
        "Accept": "application/json",
    }
    client = httpx2.Client(base_url=scripted.url, headers=headers, timeout=120)
    with client:
        yield client


def assistant(text: str) -> Json:
    return {"role": "assistant", "content": text}


def called(calls: Iterable[Json]) -> Json:
    """The message that calls came in: without a text, without ids, and without arguments that were empty."""
    made = [
        {"name": call["name"], "arguments": {key: value for key, value in call["arguments"].items() if value != ""}}
        for call in calls
    ]
    return {"role": "assistant", "tool_calls": [{"function": each} for each in made]}


def chat(home: httpx2.Client, body: Json) -> tuple[str, list[Json], str]:
    """The text, the calls and the thinking of an answer."""
    response = home.post("/api/chat", json=body)
    assert response.status_code == 200, response.text
    pieces = [json.loads(line) for line in response.text.splitlines()]
    assert [piece["done"] for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    said = [piece["message"] for piece in pieces]
    calls = [call["function"] for message in said for call in message.get("tool_calls") or ()]
    text, thinking = ("".join(message.get(name) or "" for message in said) for name in ("content", "thinking"))
    return text, calls, thinking


# --- the Ollama integration -------------------------------------------------------------------------------------------


@RELEASES
def test_it_switches_lights_one_question_after_the_other(
    home: httpx2.Client, scripted: Served, release: Release
) -> None:
    assert scripted.service is not None
    past: list[Json] = []
    for number, light in enumerate(("Kitchen Light", "Bed Light")):
        system = release.system(f"17:10:5{number}")
        past.append(user(f"Turn on the {light}"))
        text, calls, _ = chat(home, release.body([system, *past]))
        name = next(iter(release.tools))
        arguments = {"name": light, "domain": ["light"], "area": ""}
        assert (text, calls) == ("", [{"index": 0, "name": name, "arguments": arguments}])
        past += [called(calls), release.result(SWITCHED)]
        before = scripted.service.usage[""].prefilled_tokens
        text, calls, _ = chat(home, release.body([system, *past]))
        assert (text, calls) == (read_aloud(past[-1]["content"]), [])
        past.append(assistant(text))
        # Of all that it sends again only the call, which lacks an argument now, and the result are read.
        assert scripted.service.usage[""].prefilled_tokens - before < 150


def test_a_second_question_is_read_alone_where_the_time_is_not_at_the_front(
    home: httpx2.Client, scripted: Served
) -> None:
    assert scripted.service is not None
    read: list[int] = []
    for release in (OLDER, NEWER):
        first = [release.system("08:00:00"), user("Hello")]
        answer, _, _ = chat(home, release.body(first))
        before = scripted.service.usage[""].prefilled_tokens
        chat(home, release.body([release.system("08:00:09"), first[1], assistant(answer), user("And now?")]))
        read.append(scripted.service.usage[""].prefilled_tokens - before)
    assert read[1] < 40 < 200 < read[0]


@RELEASES
def test_two_results_belong_to_two_calls_in_order(home: httpx2.Client, release: Release) -> None:
    begun = [release.system(), user("Do both")]
    _, calls, _ = chat(home, release.body(begun))
    assert [call["name"] for call in calls] == list(release.tools)[:2]
    results = [release.result("first"), release.result("second")]
    text, _, _ = chat(home, release.body([*begun, called(calls), *results]))
    assert text == read_aloud(results[1]["content"])


@RELEASES
def test_it_leaves_out_the_past_wherever_that_ends(home: httpx2.Client, release: Release) -> None:
    calls = called([{"name": name, "arguments": {}} for name in list(release.tools)[:2]])
    past = [user("Do both"), calls, release.result("first"), release.result("second"), assistant("Done.")]
    # It counts messages, and so may keep results whose calls it has left out.
    for left_out in range(len(past) + 1):
        text, _, _ = chat(home, release.body([release.system(), *past[left_out:], user("What?")]))
        assert text == "I see."


@pytest.mark.parametrize("name", ["電気をつける", "dotted.name/read", f"long_{'name_' * 15}end"])
def test_a_tool_of_an_mcp_server_is_called_by_its_own_name(home: httpx2.Client, name: str) -> None:
    # It sends the names of its MCP servers' tools as they are, and a type that it does not know as {}.
    unknown: Json = {"type": "object", "properties": {"n": {}}}
    tools: list[Json] = [{"type": "function", "function": {"name": name, "parameters": unknown}}]
    begun = [NEWER.system(), user(f"Use {safe_name(name)}")]
    _, calls, _ = chat(home, NEWER.body(begun, tools=tools))
    assert [(call["name"], call["arguments"]) for call in calls] == [(name, {"n": None})]
    result = NEWER.result({"content": [{"type": "text", "text": "It was called."}]})
    text, _, _ = chat(home, NEWER.body([*begun, called([{"name": name, "arguments": {}}]), result], tools=tools))
    assert text == read_aloud(result["content"])


def test_a_picture_in_the_text_of_a_result_costs_a_line(home: httpx2.Client) -> None:
    picture = {"type": "image", "data": base64.b64encode(PNG + bytes(30_000)).decode(), "mimeType": "image/png"}
    result = NEWER.result({"content": [{"type": "text", "text": "Here it is."}, picture]})
    calls = called([{"name": "homeassistant__GetLiveContext", "arguments": {}}])
    text, _, _ = chat(home, NEWER.body([NEWER.system(), user("Look"), calls, result]))
    shown = {"content": [{"type": "text", "text": "Here it is."}, "[image, not shown]"]}
    assert json.loads(text.removeprefix("It says ").removesuffix(", this time.")) == {"data": shown, "error": None}


def test_a_task_is_answered_in_its_structure(home: httpx2.Client) -> None:
    structure = {
        "type": "object",
        "properties": {
            "rooms": {"type": "array", "items": {"type": "string"}, "description": "the rooms"},
            "count": {"type": "number", "minimum": 0.0, "maximum": 10.0},
        },
        "required": ["rooms", "count"],
        "additionalProperties": False,
    }
    body = NEWER.body([NEWER.system(), user("give a list of rooms")], tools=[], format=structure)
    assert json.loads(chat(home, body)[0]) == {"rooms": ["kitchen", "hall"], "count": 2}


def test_a_task_whose_answer_has_no_such_structure_fails_with_the_reason(home: httpx2.Client) -> None:
    structure = {"type": "object", "properties": {"lamps": {"type": "array"}}, "required": ["lamps"]}
    answer = home.post("/api/chat", json=NEWER.body([NEWER.system(), user("Hello")], tools=[], format=structure))
    *_, last = map(json.loads, answer.text.splitlines())
    assert "format" in last["error"]


def test_thinking_is_sent_only_on_request(home: httpx2.Client) -> None:
    for think, thought in ((True, "Hm, let me see.\n"), (False, "")):
        text, _, thinking = chat(home, NEWER.body([NEWER.system(), user("think")], think=think))
        assert (text, thinking) == ("I thought.", thought)


def test_a_wrong_request_gets_one_sentence_with_the_reason(scripted: Served, home: httpx2.Client) -> None:
    stranger = httpx2.get(f"{scripted.url}/api/tags", timeout=120)
    assert (stranger.status_code, set(stranger.json())) == (401, {"error"})
    refused = home.post("/api/pull", json={"model": "llama3.2", "stream": False})
    assert refused.status_code == 404
    assert refused.json()["error"].startswith("There is no model 'llama3.2'.")


# --- the llama.cpp and LiteLLM integrations ---------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [True, False], ids=["llama.cpp", "LiteLLM"])
def test_as_an_openai_it_gets_calls_and_goes_on_with_their_results(home: httpx2.Client, streams: bool) -> None:
    # More tokens than would fit next to the prompt: it is a limit, not a wish.
    options = {"stream": True, "max_tokens": 3000, "temperature": 0.7, "top_p": 1.0} if streams else {}
    head = {"model": "parrot", **options, "user": "01M81531Z8NTF73HJ9P9E2F8GS"}
    tools = NEWER.body([])["tools"]
    messages = [NEWER.system(), user("Turn on the Kitchen Light")]
    message = completed(home, {**head, "messages": messages, "tools": tools})
    (call,) = message["tool_calls"]
    assert call["function"]["name"] == "intent__HassTurnOn"
    arguments = {key: value for key, value in json.loads(call["function"]["arguments"]).items() if value != ""}
    own = "01M8153ADJJBBW2XPWT5N0RMSQ"
    function = {"name": call["function"]["name"], "arguments": json.dumps(arguments)}
    messages += [
        {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "id": own, "function": function}]},
        {"role": "tool", "tool_call_id": own, "content": json.dumps({"data": SWITCHED, "error": None})},
    ]
    message = completed(home, {**head, "messages": messages, "tools": tools})
    assert message["content"] == read_aloud(messages[-1]["content"])


def completed(home: httpx2.Client, body: Json) -> Json:
    """The message of an answer, put together where it came in pieces."""
    response = home.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    if "stream" not in body:
        return response.json()["choices"][0]["message"]
    *lines, last = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    assert last == "[DONE]"
    deltas = [choice["delta"] for line in lines for choice in json.loads(line)["choices"]]
    calls = [call for delta in deltas for call in delta.get("tool_calls") or ()]
    message: Json = {"content": "".join(delta.get("content") or "" for delta in deltas)}
    if calls:
        arguments = "".join(call["function"].get("arguments") or "" for call in calls)
        message["tool_calls"] = [{**calls[0], "function": {**calls[0]["function"], "arguments": arguments}}]
    return message
