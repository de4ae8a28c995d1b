"""A program that offers more tools than the window holds, as Open WebUI 0.12 does with every message.

What is sent has its shape and its size: three dozen tools, nine thousand tokens of them, in front of a "hello".
"""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import httpx2
import pytest

from tests.support.served import Served, scripted_model, served

Json = dict[str, Any]
RULES = r"""
rule inside the call of the calendar
  prompt "name": "add_event", "arguments": $
  say {"title": "Dentist", "minutes": "30"}}
  say </tool_call>

rule inside the call of a note
  prompt "name": "write_note", "arguments": $
  say {"text": "Milk"}}
  say </tool_call>

rule any call
  prompt <tool_call>.[{]"name": "$
  say write_note", "arguments": {}}
  say </tool_call>

rule both, known
  user both
  results 2
  call add_event {"title": "Dentist", "minutes": 30}
  call write_note {"text": "Milk"}

rule both
  user both
  results 0
  say I will.
  call add_event {}
  call write_note {}

rule a result
  results 1+
  result made (.*)
  say Done: %1

rule the second event
  user another
  call add_event {"title": "Doctor", "minutes": 10}

rule an event
  user dentist
  call add_event {}

rule
  say Hello.
"""
_WORDS = "what it does is told at some length here, because people like to explain what their tools are good for, " * 6


def tool(name: str, **properties: str) -> Json:
    described = {key: {"type": kind, "description": _WORDS[:80]} for key, kind in properties.items()}
    schema = {"type": "object", "properties": described, "required": list(properties)}
    return {
        "type": "function",
        "function": {"name": name, "description": f"Use {name}. {_WORDS}", "parameters": schema},
    }


TOOLS = [
    tool("add_event", title="string", minutes="integer"),
    tool("write_note", text="string"),
    *(tool(f"search_shelf_{number}", query="string", count="integer") for number in range(34)),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("many")
    with served(folder / "home", scripted_model(folder / "model", RULES, template="qwen3")) as it:
        yield it


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def post(service: Served, path: str, messages: list[Json], **fields: Any) -> httpx2.Response:
    body = {"model": "parrot", "messages": messages, "tools": TOOLS, "stream": False, **fields}
    return httpx2.post(f"{service.url}{path}", json=body, timeout=60)


def ask(service: Served, *messages: Json, **fields: Any) -> Json:
    answer = post(service, "/v1/chat/completions", list(messages), **fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def calls_in(message: Json) -> list[tuple[str, str, Json]]:
    made = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]]
    return [(name, tool, json.loads(written) if isinstance(written, str) else written) for name, tool, written in made]


def prefilled(service: Served) -> int:
    assert service.service is not None
    return service.service.usage[""].prefilled_tokens


def test_a_list_that_does_not_fit_is_a_list_of_names(service: Served) -> None:
    answer = ask(service, user("hello"), x_events=True)
    assert answer["choices"][0]["message"]["content"] == "Hello."
    assert answer["usage"]["prompt_tokens"] < 2500
    assert {
        "kind": "status",
        "text": "[Context: 36 tools are listed by name alone, to fit the window]",
        "about": "names_only",
        "values": {"count": 36},
    } in answer["x_events"]


def test_parameters_are_shown_when_a_tool_is_first_called_and_the_program_sees_one_call(service: Served) -> None:
    said = [user("To the dentist")]
    message = ask(service, *said)["choices"][0]["message"]
    assert calls_in(message) == [("call_1", "add_event", {"title": "Dentist", "minutes": 30})]
    said += [message, {"role": "tool", "tool_call_id": "call_1", "content": "made it"}]
    before = prefilled(service)
    message = ask(service, *said)["choices"][0]["message"]
    assert message["content"] == "Done: it"
    # What was told is kept with the conversation: only the result is new, and a later call needs no telling.
    assert prefilled(service) - before < 60
    runs = len(service.runs())
    message = ask(service, *said, message, user("And another"))["choices"][0]["message"]
    assert calls_in(message) == [("call_2", "add_event", {"title": "Doctor", "minutes": 10})]
    assert len(service.runs()) == runs + 1


def test_a_stream_and_ollamas_programs_see_the_same(service: Served) -> None:
    lines = post(service, "/v1/chat/completions", [user("A dentist, please")], stream=True).text.splitlines()
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    pieces = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())]
    assert [piece["index"] for piece in pieces] == [0, 0]
    assert "".join(piece["function"]["arguments"] for piece in pieces) == '{"title": "Dentist", "minutes": 30}'
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    said = [user("The dentist")]
    message = post(service, "/api/chat", said).json()["message"]
    assert calls_in(message) == [("call_1", "add_event", {"title": "Dentist", "minutes": 30})]
    # As Home Assistant and Open WebUI send it back: the calls have no ids there.
    bare = [{"function": {"name": "add_event", "arguments": call[2]}} for call in calls_in(message)]
    said += [{"role": "assistant", "content": "", "tool_calls": bare}, {"role": "tool", "content": "made it"}]
    before = prefilled(service)
    assert post(service, "/api/chat", said).json()["message"]["content"] == "Done: it"
    assert prefilled(service) - before < 60


def test_several_calls_go_out_together_once_all_of_them_are_known(service: Served) -> None:
    message = ask(service, user("Do both"))["choices"][0]["message"]
    assert message["content"] == "I will.\n"
    assert calls_in(message) == [
        ("call_1", "add_event", {"title": "Dentist", "minutes": 30}),
        ("call_2", "write_note", {"text": "Milk"}),
    ]


@pytest.mark.parametrize(
    ("choice", "call"),
    [
        ({"type": "function", "function": {"name": "add_event"}}, ("add_event", {"title": "Dentist", "minutes": 30})),
        ("required", ("write_note", {"text": "Milk"})),
    ],
    ids=["this one", "any"],
)
def test_a_tool_that_has_to_be_called_is_called_with_its_parameters(
    service: Served, choice: Json | str, call: tuple[str, Json]
) -> None:
    message = ask(service, user("Go on"), tool_choice=choice)["choices"][0]["message"]
    assert [made[1:] for made in calls_in(message)] == [call]


def test_names_that_do_not_fit_either_are_refused_with_the_figures(service: Served) -> None:
    many = [tool(f"search_shelf_{number}") for number in range(300)]
    refused = post(service, "/v1/chat/completions", [user("hello")], tools=many)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
