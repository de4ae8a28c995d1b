"""Bytes to lines."""

from __future__ import annotations

import pytest

from rkllm_mcp.mcp_client.transports.stdio import LineSplitter, LineTooLongError
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
