"""Where an answer ends that a request ends: at a text, or behind its first call."""

from __future__ import annotations

import pytest

from rkllm_mcp.events import DetectorEvent, Text, Thinking, ToolCallDetected, ToolCallFailed
from rkllm_mcp.providers.turn_builder import Cut

CALL = ToolCallDetected("f", {})


def passed(cut: Cut, *events: DetectorEvent) -> list[DetectorEvent]:
    out = [event for each in events for event in cut.passed([each])]
    return [*out, *cut.rest()]


def words(events: list[DetectorEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


@pytest.mark.parametrize(
    ("stops", "text", "shown"),
    [
        (("STOP",), "one STOP two", "one "),
        (("STOP",), "one STO two", "one STO two"),
        (("STOP",), "one STO", "one STO"),
        (("aab",), "aaab", "a"),
        (("b", "ab"), "xab", "x"),
        (("\n\n",), "a\nb\n\nc", "a\nb"),
        (("終わり",), "これで終わりです", "これで"),
        (("one",), "one", ""),
        ((), "one STOP", "one STOP"),
    ],
)
def test_a_stop_text_is_found_however_the_words_are_cut(stops: tuple[str, ...], text: str, shown: str) -> None:
    for size in range(1, len(text) + 1):
        cut = Cut(stops)
        pieces = [Text(text[at : at + size]) for at in range(0, len(text), size)]
        assert words(passed(cut, *pieces)) == shown
        assert cut.is_over == (shown != text)


def test_what_may_be_its_beginning_alone_is_held_back() -> None:
    cut = Cut(("STOP",))
    assert list(cut.passed([Text("one S")])) == [Text("one ")]
    assert list(cut.passed([Text("T")])) == []
    assert list(cut.passed([Text("ay")])) == [Text("STay")]


def test_words_alone_are_searched_and_what_parts_them_parts_a_stop_text() -> None:
    cut = Cut(("STOP",))
    events = [
        Thinking("STOP"),
        Text("ST"),
        ToolCallFailed("STOP", "no"),
        Text("OP"),
        ToolCallDetected("f", {"x": "STOP"}),
    ]
    assert passed(cut, *events) == events
    assert not cut.is_over


def test_nothing_follows_the_end() -> None:
    assert passed(Cut(("b",)), Text("abc"), CALL, Text("d")) == [Text("a")]
    assert passed(Cut(single_call=True), Text("a"), CALL, Text("d"), CALL) == [Text("a"), CALL]
    assert passed(Cut(), CALL, CALL) == [CALL, CALL]


def test_a_call_that_is_none_is_not_the_first() -> None:
    failed = ToolCallFailed("x", "no")
    assert passed(Cut(single_call=True), failed, CALL, CALL) == [failed, CALL]
