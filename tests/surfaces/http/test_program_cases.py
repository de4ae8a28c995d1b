"""Requests that other people's programs really send (``shared/cases/programs``) get a right answer."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, cast

import httpx2
import pytest

from rkllm_mcp.messages import as_mapping
from tests.support.program_cases import SETS, Row, listed, program_rows
from tests.support.served import Served

WEATHER: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def _calls(value: Any) -> Iterator[list[Any]]:
    """Yield name and arguments of each call in an answer of any API."""
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _calls(item)
        return
    value = as_mapping(value)
    if value.get("type") == "tool_use":
        yield [value["name"], value["input"]]
    elif "name" in value and "arguments" in value:
        arguments = value["arguments"]
        yield [value["name"], json.loads(arguments) if isinstance(arguments, str) else arguments]
    else:
        for item in value.values():
            yield from _calls(item)


def _faults(row: Row, status: int, answer: Any) -> list[str]:
    """Return what is wrong with an answer."""
    expect, text = row["expect"], answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    expected = expect["status_in"] if "status_in" in expect else [expect["status"]]
    faults = [] if status in expected else [f"status {status}: {text[:300]}"]
    faults += [f"lacks {words!r}: {text[:300]}" for words in expect.get("contains", ()) if words not in text]
    faults += [f"has {words!r}" for words in expect.get("not_contains", ()) if words in text]
    if "calls" in expect and list(_calls(answer)) != expect["calls"]:
        faults.append(f"calls {list(_calls(answer))}: {text[:300]}")
    for path, least in expect.get("at_least", {}).items():
        value = answer
        for step in path.split("."):
            value = as_mapping(value).get(step)
        if not (isinstance(value, int) and value >= least):
            faults.append(f"{path} is {value}, less than {least}")
    return faults


@pytest.mark.parametrize("cases", SETS)
def test_every_request_of_the_cases_gets_the_right_answer(programs: Served, cases: str) -> None:
    failed: dict[str, list[str]] = {}
    for row in program_rows("requests.jsonl", cases):
        if "body_base64" in row:
            sent: dict[str, Any] = {"content": base64.b64decode(row["body_base64"])}
        else:
            sent = {"json": row["body"]} if row["body"] is not None else {}
        headers = {"Content-Type": "application/json", **row.get("headers", {})}
        answer = httpx2.request(row["method"], programs.url + row["path"], headers=headers, timeout=120, **sent)
        if faults := _faults(row, answer.status_code, answer.text if row.get("text") else answer.json()):
            failed[row["id"]] = faults
    assert listed(failed) == ""


TOOL: dict[str, Any] = {"name": "get_weather", "description": "The weather.", "parameters": WEATHER}
TOOLS = [{"type": "function", "function": TOOL}]
HELLO: dict[str, Any] = {"role": "user", "content": "hello"}
ASK: dict[str, Any] = {"role": "user", "content": "weather in Oslo"}
CALLED: dict[str, Any] = {
    "role": "assistant",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}],
}
CHAT, RESPONSES, MESSAGES, OLLAMA = "/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat"
# A text with which the model is shown the tool, and the call of it.
CALL = [["get_weather", {"city": "Oslo"}]]


@pytest.mark.parametrize(
    ("path", "fields", "expected"),
    [
        # BerriAI/litellm#40378
        (CHAT, {"messages": [HELLO], "reasoning_effort": {"summary": "auto"}}, "Heard: hello"),
        # danny-avila/LibreChat#12804: the tool in the form of another API
        (CHAT, {"messages": [ASK], "tools": [{"type": "function", **TOOL}]}, CALL),
        (CHAT, {"messages": [ASK], "tools": [{"name": "get_weather", "input_schema": WEATHER}]}, CALL),
        (CHAT, {"messages": [ASK], "tools": TOOLS, "tool_choice": {"type": "auto"}}, CALL),
        (CHAT, {"messages": [HELLO], "tools": TOOLS, "tool_choice": {"type": "none"}}, "Heard: hello"),
        (
            CHAT,
            {
                "messages": [ASK],
                "tools": [*TOOLS, {"type": "function", "function": {"name": "other"}}],
                "tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": [{"name": "get_weather"}]}},
            },
            CALL,
        ),
        # openai/codex, llama.cpp#20156: apply_patch has a grammar
        (
            RESPONSES,
            {
                "input": "weather in Oslo",
                "tools": [
                    {"type": "custom", "name": "patch", "format": {"type": "grammar", "definition": "start: x"}},
                    {"type": "function", **TOOL},
                ],
            },
            CALL,
        ),
        (CHAT, {"messages": [HELLO], "stop": ""}, "Heard: hello"),
        (CHAT, {"messages": [HELLO], "stop": ["", "X"]}, "Heard: hello"),
        (CHAT, {"messages": [{"role": "user", "content": 5}]}, "Heard: 5"),
        (CHAT, {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}]}, "Heard: hello"),
        (CHAT, {"messages": [{"role": "user", "content": ["hello"]}]}, "Heard: hello"),
        (OLLAMA, {"messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]}, "Heard: hello"),
        (
            CHAT,
            {
                "messages": [ASK, CALLED, {"role": "tool", "tool_call_id": "c1", "content": {"temp": 7}}],
                "tools": TOOLS,
            },
            'It says {"temp":7}, this time.',
        ),
        (CHAT, {"messages": [{"role": "System", "content": "Be short."}, {**HELLO, "role": "human"}]}, "Heard: hello"),
        (
            RESPONSES,
            {
                "input": [
                    ASK,
                    {"type": "function_call", "id": "f1", "name": "get_weather", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": "f1", "output": "red"},
                ]
            },
            "It says red, this time.",
        ),
        (OLLAMA, {"messages": [HELLO], "keep_alive": ""}, "Heard: hello"),
    ],
)
def test_what_is_odd_in_a_request_costs_only_itself(
    programs: Served, path: str, fields: dict[str, Any], expected: str | list[Any]
) -> None:
    body = {"model": "parrot", "stream": False, **fields}
    answer = httpx2.post(programs.url + path, json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    if isinstance(expected, str):
        assert json.dumps(expected)[1:-1] in answer.text
    else:
        assert list(_calls(answer.json())) == expected


def _turns(path: str, arguments: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return a question, its call with ``arguments`` and its result, in the form of an API."""
    text = json.dumps(arguments)
    function = {"name": "get_weather", "parameters": schema}
    if path == RESPONSES:
        call = {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": text}
        result = {"type": "function_call_output", "call_id": "c1", "output": "red"}
        return {"input": [ASK, call, result], "tools": [{"type": "function", **function}]}
    if path == MESSAGES:
        use = {"type": "tool_use", "id": "c1", "name": "get_weather", "input": arguments}
        result = {"type": "tool_result", "tool_use_id": "c1", "content": "red"}
        turns = [ASK, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        return {"messages": turns, "tools": [{"name": "get_weather", "input_schema": schema}], "max_tokens": 200}
    sent = arguments if path == OLLAMA else text
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": sent}}
    result = {"role": "tool", "tool_call_id": "c1", "content": "red"}
    answer = {"role": "assistant", "content": "", "tool_calls": [call]}
    return {"messages": [ASK, answer, result], "tools": [{"type": "function", "function": function}]}


def _input_tokens(programs: Served, path: str, arguments: dict[str, Any], schema: dict[str, Any]) -> int:
    body = {"model": "parrot", "stream": False, **_turns(path, arguments, schema)}
    answer = httpx2.post(programs.url + path, json=body, timeout=120)
    assert "It says red" in answer.text
    usage = answer.json().get("usage", answer.json())
    names = ("prompt_tokens", "input_tokens", "cache_read_input_tokens", "prompt_eval_count")
    return sum(usage.get(name, 0) for name in names)


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES, OLLAMA])
def test_the_id_that_n8n_adds_to_the_arguments_of_a_call_is_not_read(programs: Served, path: str) -> None:
    as_written = _input_tokens(programs, path, {"city": "Oslo"}, WEATHER)
    assert _input_tokens(programs, path, {"city": "Oslo", "id": "c1"}, WEATHER) == as_written
    # An argument of the tool's own, and another value, are the model's.
    own = {**WEATHER, "properties": {**WEATHER["properties"], "id": {"type": "string"}}}
    without = _input_tokens(programs, path, {"city": "Oslo"}, own)
    assert _input_tokens(programs, path, {"city": "Oslo", "id": "c1"}, own) > without
    assert _input_tokens(programs, path, {"city": "Oslo", "id": "c2"}, WEATHER) > as_written


def _body(path: str, schema: dict[str, Any]) -> dict[str, Any]:
    tools = [("get_weather", WEATHER), ("other", schema)]
    ask = {"role": "user", "content": "Is other offered?"}
    if path == "/v1/messages":
        offered = [{"name": name, "input_schema": each} for name, each in tools]
        return {"model": "parrot", "messages": [ask], "tools": offered, "max_tokens": 200}
    if path == "/v1/responses":
        offered = [{"type": "function", "name": name, "parameters": each} for name, each in tools]
        return {"model": "parrot", "input": [ask], "tools": offered}
    offered = [{"type": "function", "function": {"name": name, "parameters": each}} for name, each in tools]
    return {"model": "parrot", "messages": [ask], "tools": offered, "stream": False}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat"])
def test_every_schema_of_the_cases_is_offered_to_the_model(programs: Served, path: str) -> None:
    failed: dict[str, str] = {}
    for row in program_rows("schemas.json"):
        answer = httpx2.post(programs.url + path, json=_body(path, row["schema"]), timeout=120)
        if "Yes, other is offered." not in answer.text:
            failed[row["id"]] = f"{answer.status_code} {answer.text[:200]}"
    assert listed(failed) == ""
