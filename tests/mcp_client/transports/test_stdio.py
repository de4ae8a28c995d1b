"""Bytes to lines."""

from __future__ import annotations

import json

import pytest

from rkllm_mcp.mcp_client.transports.stdio import LineSplitter, LineTooLongError, MessageLines
from rkllm_mcp.mcp_client.wire_log import LastLines

TEXT = "first\n\n天気\r\nlast".encode()


@pytest.mark.parametrize("size", range(1, len(TEXT) + 1))
def test_lines_are_the_same_however_the_bytes_arrive(size: int) -> None:
    splitter = LineSplitter(100)
    lines = [line for start in range(0, len(TEXT), size) for line in splitter.feed(TEXT[start : start + size])]
    assert lines == [b"first", b"", "天気\r".encode()]
    assert splitter.feed(b"\n") == [b"last"]


def test_a_line_that_outgrows_its_limit_is_refused_before_it_ends() -> None:
    splitter = LineSplitter(10)
    assert splitter.feed(b"0123456789\n0123456789") == [b"0123456789"]
    with pytest.raises(LineTooLongError):
        splitter.feed(b"x")


MESSAGE = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": 'a } "b" ['}]}}
WHOLE = json.dumps(MESSAGE).encode()


@pytest.mark.parametrize("indent", [0, 2])
def test_a_message_over_several_lines_is_one(indent: int) -> None:
    lines = json.dumps(MESSAGE, indent=indent).encode().split(b"\n")
    joined = MessageLines()
    messages = [message for line in [b"starting", *lines, WHOLE] for message in joined.feed(line)]
    assert messages[0] == b"starting"
    assert [json.loads(message) for message in messages[1:]] == [MESSAGE, MESSAGE]


def test_what_only_looks_like_the_beginning_of_a_message_holds_no_message_back() -> None:
    joined = MessageLines()
    assert [joined.feed(line) for line in (b"{debug", b"on", WHOLE)] == [[], [], [b"{debug", b"on", WHOLE]]
    assert joined.feed(b"[info] ready: {") == []
    assert joined.feed(WHOLE)[-1] == WHOLE


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_only_the_last_lines_are_remembered_and_cut_to_their_width(size: int) -> None:
    last = LastLines(limit=2, width=5)
    text = "one\ntwo\n天気予報です\nthree and more".encode()
    for start in range(0, len(text), size):
        last.feed(text[start : start + size])
    assert last.shown() == ("two", "天気予報で")
    last.finish()
    assert last.shown() == ("天気予報で", "three")


def test_what_would_act_on_a_terminal_is_taken_out() -> None:
    last = LastLines()
    last.feed(b"\x1b[31mred\x1b[0m \x1b]0;title\x07and\x00 \xff\r\n\n")
    assert last.shown() == ("red and �",)
