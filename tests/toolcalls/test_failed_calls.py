"""Calls that cannot be made: what is told, what is never passed to a tool, and what is not lost."""

from __future__ import annotations

import pytest

from rkllm_mcp.events import Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.toolcalls.detector import MAX_CALL_CHARACTERS, MAX_CUTS
from tests.toolcalls.streams import events_of, merged, pieces_of, told

TOKYO = ("get_weather", {"city": "Tokyo"})
KYOTO = ("get_weather", {"city": "京都"})
HERMES = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Tokyo"}}\n</tool_call>'
HERMES_KYOTO = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "京都"}}\n</tool_call>'
MARKED = '[TOOL_CALL]\n{\n  "name": "get_weather",\n  "arguments": {"city": "Tokyo"}\n}\n[END_TOOL_CALL]'
XML = '<tool_call name="get_weather">\n  <argument name="city">Tokyo</argument>\n</tool_call>'

FAILURES = {
    "cut off in a string": ('<tool_call>{"name": "write_note", "arguments": {"title": "t", "body": "rm', "cut off"),
    "cut off in a number": ('<tool_call>{"name": "get_weather", "arguments": {"city": "Tokyo", "days": 1', "cut off"),
    "cut off before the arguments": ('<tool_call>{"name": "get_time"', "cut off"),
    "cut off behind a quoted closer": (
        '<tool_call>{"name": "write_note", "arguments": {"title": "t", "body": "Write </tool_call> and',
        "cut off",
    ),
    "XML without its closing tag": ('<tool_call name="get_weather"><argument name="city">Tokyo</argument>', "cut off"),
    "XML cut off in a value": ('<tool_call name="get_weather"><argument name="city">Tok', "cut off"),
    "an undeclared name": ('<tool_call>{"name": "get_wether", "arguments": {}}</tool_call>', "'get_weather'?"),
    "a missing argument": ('<tool_call>{"name": "get_weather", "arguments": {}}</tool_call>', "'city' is missing"),
    "a wrong type": (
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Tokyo", "days": "soon"}}</tool_call>',
        "'days' must be integer",
    ),
    "a value that is not listed": (
        XML.replace("</tool_call>", '<argument name="unit">kelvin</argument></tool_call>'),
        'one of "celsius", "fahrenheit"',
    ),
    "no name": ('<tool_call>{"arguments": {"city": "Tokyo"}}</tool_call>', "no 'name'"),
    "not JSON at all": ('[TOOL_CALL]{"name" "get_weather" -> Tokyo, }[END_TOOL_CALL]', "not valid JSON"),
    "nested too deep": ('[TOOL_CALL]{"name": "anything", "a": ' + "[" * 99 + "]" * 99 + "}[END_TOOL_CALL]", "nested"),
    "an argument twice": (
        XML.replace("</tool_call>", '<argument name="city">Kyoto</argument></tool_call>'),
        "twice",
    ),
    "text beside the arguments": (
        '<tool_call name="get_weather">Tokyo<argument name="city">T</argument></tool_call>',
        "outside <argument…>",
    ),
    "arguments that are no object": ('<tool_call>{"name": "get_time", "arguments": 7}</tool_call>', "JSON object"),
}


@pytest.mark.parametrize(("text", "reason"), FAILURES.values(), ids=FAILURES.keys())
def test_a_call_that_cannot_be_made_fails_with_one_line_that_says_how_to_mend_it(text: str, reason: str) -> None:
    (event,) = events_of(text)
    assert isinstance(event, ToolCallFailed)
    assert event.raw == text
    assert reason in event.reason
    assert "Call again" in event.reason
    assert "\n" not in event.reason
    assert len(event.reason) < 400


def test_text_after_a_string_that_never_closed_is_still_shown() -> None:
    broken = '<tool_call>{"name": "write_note", "arguments": {"title": "t, "body": "b"}}</tool_call>'
    assert told(broken + " Then I will answer.") == [("failed", broken), " Then I will answer."]


def test_a_second_call_ends_one_that_is_not_complete() -> None:
    first = '<tool_call>{"name": "get_weather", "arguments": '
    assert told(first + HERMES) == [("failed", first), TOKYO]
    first = '<tool_call>{"name": "get_weather", "arguments": {"city": "Tok'
    assert told(first + HERMES_KYOTO) == [("failed", first), KYOTO]
    first = '<tool_call name="get_weather">'
    assert told(first + XML) == [("failed", first), TOKYO]


def test_a_string_cut_off_inside_a_quoted_example_is_never_passed_to_a_tool() -> None:
    text = '<tool_call>{"name": "write_note", "arguments": {"title": "t", "body": "Say {\\"a\\": 1}</tool_call> and so'
    assert [event for event in events_of(text) if isinstance(event, ToolCallDetected)] == []


@pytest.mark.parametrize("quoted", [HERMES, MARKED, XML, HERMES + " or " + HERMES_KYOTO])
def test_a_call_quoted_in_another_is_never_made(quoted: str) -> None:
    in_xml = f'<tool_call name="write_note"><argument name="title">t</argument><argument name="body">Say {quoted} and'
    unescaped = f'<tool_call>{{"name": "write_note", "arguments": {{"title": "t", "body": "Say {quoted} and'
    for text in (in_xml, unescaped, unescaped + ' so"}}</tool_call>'):
        made = [event.name for event in events_of(text) if isinstance(event, ToolCallDetected)]
        assert set(made) <= {"write_note"}


def test_a_call_longer_than_the_limit_fails_at_the_limit_with_any_chunks() -> None:
    opener = '<tool_call>{"name": "write_note", "arguments": {"title": "'
    text = opener + "x" * (MAX_CALL_CHARACTERS + 100)
    whole = [event for piece in pieces_of([text]) for event in piece.events]
    halves = [event for piece in pieces_of([text[:1000], text[1000:]]) for event in piece.events]
    assert merged(whole) == merged(halves)
    failed, rest = merged(whole)
    assert isinstance(failed, ToolCallFailed)
    assert len(failed.raw) == MAX_CALL_CHARACTERS + len("<tool_call>")
    assert isinstance(rest, Text)
    assert failed.raw + rest.text == text


def test_more_broken_calls_than_may_be_cut_lose_nothing() -> None:
    broken = '<tool_call>{"name": "get_weather", "arguments": {"city": "Tokyo"x}}</tool_call> a " b '
    text = broken * (MAX_CUTS * 2 + 1)
    pieces = pieces_of([text])
    assert "".join(piece.raw for piece in pieces) == text
    assert not any(isinstance(event, ToolCallDetected) for piece in pieces for event in piece.events)
