"""The arguments of calls while they are written: what is told, when, and that the events do not change."""

from __future__ import annotations

import json

import pytest

from rkllm_mcp.events import ToolCallDetected
from rkllm_mcp.toolcalls.argument_deltas import ToolCallDelta
from rkllm_mcp.toolcalls.detector import Detector
from tests.toolcalls.samples import SAMPLES, SAVE
from tests.toolcalls.streams import TOOLS, chopped, merged


def _told(chunks: list[str], syntax: str) -> tuple[list[ToolCallDelta], list[object]]:
    told: list[ToolCallDelta] = []
    detector = Detector((*TOOLS, SAVE), [syntax], on_delta=told.append)
    events = [event for chunk in chunks for event in detector.feed(chunk)] + detector.finish()
    silent = Detector((*TOOLS, SAVE), [syntax])
    assert merged(events) == merged([event for chunk in chunks for event in silent.feed(chunk)] + silent.finish())
    return told, [dict(event.arguments) for event in events if isinstance(event, ToolCallDetected)]


def _joined(told: list[ToolCallDelta]) -> list[object]:
    """The arguments of each call, from its pieces."""
    pieces: dict[int, str] = {}
    for delta in told:
        pieces[delta.index] = pieces.get(delta.index, "") + delta.arguments
    values: list[object] = [json.loads(piece) for piece in pieces.values()]
    return [json.loads(value) if isinstance(value, str) else value for value in values]


@pytest.mark.parametrize("name", [name for name in SAMPLES if "a string" not in name])
def test_the_pieces_joined_are_the_arguments_however_the_text_is_cut(name: str) -> None:
    syntax, write = SAMPLES[name]
    for body in ("Buy milk.", "\n one\ntwo\n", '</p> {"a": [1]} \\ </parameter x> "q" \'', "null", "", "牛乳🥛"):
        text = write(body)
        for chunks in ([text], list(text), chopped(text, 1), chopped(text, 2)):
            told, arguments = _told(chunks, syntax)
            assert {delta.name for delta in told} == {"save_note"}
            assert len(arguments) == 1
            assert _joined(told) == arguments


STREAMED = {name for name, (syntax, _) in SAMPLES.items() if "json" in syntax or "xml" in syntax or "hermes" in syntax}


@pytest.mark.parametrize("name", sorted(STREAMED - {"granite4_hermes, a string", "minicpm5_xml"}))
def test_a_string_is_told_while_it_is_written(name: str) -> None:
    syntax, write = SAMPLES[name]
    text = write("a very long note")
    begun, _ = _told([*text[: text.index("long")]], syntax)
    assert begun[-1].name == "save_note"
    assert "".join(delta.arguments for delta in begun).endswith('"a very ')


def test_a_value_that_is_no_string_is_told_when_it_is_complete() -> None:
    text = "<tool_call>\n<function=get_weather>\n<parameter=days>\n12\n</parameter>\n</function>\n</tool_call>"
    told, _ = _told(list(text), "qwen3_xml")
    assert [delta.arguments for delta in told] == ["", '{"days": ', "12", "}"]


def test_several_calls_are_told_under_their_numbers() -> None:
    one = '{"name": "get_time", "arguments": {"zone": "%s"}}'
    text = f"<tool_call>[{one % 'a'}, {one % 'b'}]</tool_call><tool_call>{one % 'c'}\n{one % 'd'}</tool_call>"
    told, arguments = _told(list(text), "hermes")
    assert sorted({delta.index for delta in told}) == [0, 1, 2, 3]
    assert _joined(told) == arguments == [{"zone": zone} for zone in "abcd"]


def test_arguments_before_the_name_wait_for_it_and_strings_of_json_are_told_in_the_event_only() -> None:
    told, arguments = _told(list('<tool_call>{"arguments": {"zone": "a"}, "name": "get_time"}</tool_call>'), "hermes")
    assert _joined(told) == arguments == [{"zone": "a"}]
    one = '{"arguments": {"zone": "%s"}, "name": "get_time"}'
    text = f"<tool_call>[{one % 'a'}, {one % 'b'}]</tool_call>"
    for chunks in ([text], list(text), chopped(text, 1)):
        told, arguments = _told(chunks, "hermes")
        assert _joined(told) == arguments == [{"zone": "a"}, {"zone": "b"}]
    told, arguments = _told(list(SAMPLES["granite4_hermes, a string"][1]("x")), "granite4_hermes")
    assert "".join(delta.arguments for delta in told) == ""
    assert arguments == [{"title": "t", "body": "x", "stars": 3}]


def test_an_undeclared_tool_is_not_told_of() -> None:
    for name, (syntax, write) in SAMPLES.items():
        told, arguments = _told(list(write("x").replace("save_note", "erase_all")), syntax)
        assert (told, arguments) == ([], []), name


def test_a_call_that_is_cut_off_has_told_its_beginning() -> None:
    told, arguments = _told(list('<tool_call>{"name": "get_time", "arguments": {"zone": "Jap'), "hermes")
    assert ("".join(delta.arguments for delta in told), arguments) == ('{"zone": "Jap', [])
