"""Where a turn ends that its options end: at a stop string, or after its first call."""

from __future__ import annotations

import pytest

from rkllm_mcp.events import ModelEvent, Text, Thinking, ToolCallDetected, ToolCallFailed
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolSpec
from rkllm_mcp.providers.stream_parts import StreamPart, TextPart, ThinkingPart
from rkllm_mcp.providers.turn_builder import TurnBuilder
from rkllm_mcp.toolcalls.detector import Detector

CALL = '<tool_call>{"name": "f", "arguments": {"x": "STOP"}}</tool_call>'
NO_CALL = '<tool_call>{"name": "f", "arguments": STOP}</tool_call>'


def builder(*stops: str, single_call: bool = False) -> TurnBuilder:
    return TurnBuilder(Conversation(), Detector((ToolSpec("f"),)), stop=stops, single_call=single_call)


def events_of(turn: TurnBuilder, *parts: StreamPart | str) -> list[ModelEvent]:
    events: list[ModelEvent] = []
    for part in parts:
        events += turn.add_text(part) if isinstance(part, str) else turn.add(part)
    return [*events, *turn.finish()]


def words(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def kinds(events: list[ModelEvent]) -> list[str]:
    return [event.text if isinstance(event, Text) else event.kind for event in events]


@pytest.mark.parametrize(
    ("stops", "text", "shown"),
    [
        (("STOP",), "one STOP two", "one "),
        (("STOP",), "one STO two", "one STO two"),
        (("STOP",), "one STO", "one STO"),
        (("aab",), "aaab", "a"),
        (("b", "ab"), "xab", "x"),
        (("b", "abc"), "xabc", "xa"),
        (("\n\n",), "a\nb\n\nc", "a\nb"),
        (("終わり",), "これで終わりです", "これで"),
        (("one",), "one", ""),
        ((), "one STOP", "one STOP"),
    ],
)
def test_a_stop_string_is_found_however_the_text_is_divided(stops: tuple[str, ...], text: str, shown: str) -> None:
    for size in range(1, len(text) + 1):
        turn = builder(*stops)
        events = events_of(turn, *(text[at : at + size] for at in range(0, len(text), size)))
        assert words(events) == turn.message().text == shown
        assert turn.is_over == (shown != text)


def test_text_is_buffered_only_while_it_may_begin_a_stop_string() -> None:
    turn = builder("STOP")
    assert turn.add_text("one S") == [Text("one ")]
    assert turn.add_text("T") == []
    assert turn.add_text("ay") == [Text("STay")]


def test_only_text_is_searched_and_a_call_or_thinking_divides_a_stop_string() -> None:
    turn = builder("STOP")
    events = events_of(turn, ThinkingPart("STOP"), "ST", ThinkingPart("Hm."), TextPart("OP ST"), NO_CALL, "OP", CALL)
    assert kinds(events) == ["thinking", "ST", "thinking", "OP ", "ST", "tool_call_failed", "OP", "tool_call"]
    assert events[0] == Thinking("STOP")
    assert not turn.is_over
    assert turn.turn().failures == tuple(event for event in events if isinstance(event, ToolCallFailed))


def test_nothing_follows_the_end() -> None:
    turn = builder("b")
    assert events_of(turn, "abc", CALL, "d") == [Text("a")]
    assert turn.message() == Message("assistant", "a")
    assert kinds(events_of(builder(single_call=True), "a", CALL, "d", CALL)) == ["a", "tool_call"]
    assert kinds(events_of(builder(), CALL, CALL)) == ["tool_call", "tool_call"]


def test_a_failed_call_is_not_the_single_call() -> None:
    turn = builder(single_call=True)
    events = events_of(turn, NO_CALL, CALL, CALL)
    assert kinds(events) == ["tool_call_failed", "tool_call"]
    assert isinstance(call := events[-1], ToolCallDetected)
    assert turn.turn().calls == (ToolCall("call_1", "f", {"x": "STOP"}, call.raw),)
    assert not turn.turn().has_text


def test_finishing_again_adds_nothing() -> None:
    turn = builder("STOP")
    assert events_of(turn, "ST") == [Text("ST")]
    assert turn.finish() == []
    assert turn.turn().message.text == "ST"
