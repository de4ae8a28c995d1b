"""Frames of servers are read leniently: a response that is dropped would be waited for until the time limit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rkllm_mcp.mcp_client.transports.channel import messages_in

RESULT: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "result": {}}


def read(frame: bytes | str) -> list[dict[str, Any]]:
    dumped = (item.message.model_dump(by_alias=True, mode="json", exclude_unset=True) for item in messages_in(frame))
    return list(dumped)


def error(code: int, message: str, **data: Any) -> list[dict[str, Any]]:
    return [{"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message, **data}}]


MESSAGES: list[tuple[object, list[dict[str, Any]]]] = [
    (RESULT, [RESULT]),
    ([RESULT, {**RESULT, "id": 2}], [RESULT, {**RESULT, "id": 2}]),
    ({"id": 1, "result": {}}, [RESULT]),
    ({**RESULT, "error": None}, [RESULT]),
    ({"id": 1, "result": "12 degrees"}, [{**RESULT, "result": {"content": "12 degrees"}}]),
    ({"id": 1, "error": "broken"}, error(-32603, "broken")),
    # A log may have errors; a message of the protocol without an id is about the request that is open.
    ({"error": "broken"}, []),
    ({"jsonrpc": "2.0", "error": {"code": 5, "message": "broken"}}, [{**error(5, "broken")[0], "id": None}]),
    (
        {"id": 1, "error": {"message": "broken", "data": {"argument": "city"}}},
        error(-32603, "broken", data={"argument": "city"}),
    ),
    ({"id": 1, "error": {"code": "-32602", "message": "broken"}}, error(-32602, "broken")),
    ({"id": 1, "error": {"code": "E_CITY", "message": None}}, error(-32603, '{"code":"E_CITY","message":null}')),
    ({"id": 1, "error": {"code": 5, "message": "broken"}, "result": None}, error(5, "broken")),
    ("a log line", []),
    ({"level": "info"}, []),
]


@pytest.mark.parametrize(("message", "expected"), MESSAGES)
def test_a_message_of_odd_shape_is_read(message: object, expected: list[dict[str, Any]]) -> None:
    assert read(json.dumps(message)) == expected
    assert read(b"\xef\xbb\xbf" + json.dumps(message).encode() + b"\r") == expected


def test_a_response_after_other_text_of_its_line_is_read_and_a_quoted_request_is_not() -> None:
    line = (
        f'loading... {{"a" {{"jsonrpc": "2.0", "id": 1, "method": "ping"}}{json.dumps(RESULT)}done {json.dumps(RESULT)}'
    )
    assert read(line) == [RESULT, RESULT]
    assert read('loading {"id": 1, ') == []


def test_bytes_that_are_not_utf8_become_replacement_characters() -> None:
    (message,) = read(b'{"jsonrpc": "2.0", "id": 1, "result": {"text": "\xbe\xc8 12"}}')
    assert message["result"] == {"text": "\ufffd\ufffd 12"}
    assert read(b"Content-Length: 12\r") == []
