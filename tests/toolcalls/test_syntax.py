"""A new family of models is a declaration: two are made here that the detector has never heard of."""

from __future__ import annotations

import ast
import re

import pytest

from rkllm_mcp.events import Text, ToolCallDetected
from rkllm_mcp.toolcalls.markers import SPACE, Markers, Shape, literal
from rkllm_mcp.toolcalls.scan import JsonScanner, Scanner, Verdict
from rkllm_mcp.toolcalls.spelling import SpelledCall, read_json_calls
from rkllm_mcp.toolcalls.syntax import SYNTAXES, Syntax, followed_by
from tests.toolcalls.streams import events_of, merged, pieces_of


def _read_python(body: str) -> tuple[SpelledCall, ...]:
    tree = ast.parse("[" + body, mode="eval").body
    assert isinstance(tree, ast.List)
    calls = [call for call in tree.elts if isinstance(call, ast.Call)]
    return tuple(
        SpelledCall(ast.unparse(call.func), {word.arg: ast.literal_eval(word.value) for word in call.keywords})
        for call in calls
    )


def _names_a_tool(text: str, names: frozenset[str]) -> bool | None:
    name = re.match(r"\s*([A-Za-z_]\w*)?(\()?", text)
    if name is None or (name.group(1) is None and text.strip()):
        return False
    if name.group(2) is None:
        return None if name.end() == len(text) else False
    return name.group(1) in names


class _AfterBracket:
    """The scanner of a list whose opening bracket was the opener."""

    def __init__(self, boundary: Markers) -> None:
        self._inner = JsonScanner(boundary)
        self._inner.scan("[", 0)

    def scan(self, text: str, start: int) -> tuple[Verdict, int]:
        return self._inner.scan(text, start)

    def may_end(self) -> bool:
        return False


def _scanner(boundary: Markers) -> Scanner:
    return _AfterBracket(boundary)


PYTHONIC = Syntax(
    name="pythonic",
    openers=("[",),
    confirm=_names_a_tool,
    scanner=_scanner,
    read=_read_python,
    example='[TOOL(KEY="VALUE")]',
    only_first=True,
)
MISTRAL = Syntax(
    name="mistral_json",
    openers=("[TOOL_CALLS]",),
    confirm=followed_by(Shape(SPACE, r"\[", SPACE, r"\{")),
    scanner=JsonScanner,
    read=read_json_calls,
    example='[TOOL_CALLS] [{"name": "TOOL", "arguments": {…}}]',
)


def _calls(text: str, syntaxes: list[str | Syntax]) -> list[tuple[str, object]]:
    return [
        (event.name, event.arguments)
        for event in events_of(text, syntaxes=syntaxes)
        if isinstance(event, ToolCallDetected)
    ]


def test_a_form_without_a_marker_is_a_call_only_where_the_answer_begins_and_names_a_tool() -> None:
    syntaxes: list[str | Syntax] = ["hermes", PYTHONIC]
    both: list[tuple[str, object]] = [("get_time", {"zone": "a]b"}), ("get_time", {})]
    assert _calls("\n[get_time(zone='a]b'), get_time()] ok", syntaxes) == both
    assert _calls("So: [get_time()]", syntaxes) == []
    assert _calls("[other()] [get_time()]", syntaxes) == []
    assert events_of("[1, 2] and [", syntaxes=syntaxes) == [Text("[1, 2] and [")]


def test_a_form_without_a_marker_is_a_call_right_behind_thinking() -> None:
    for chunks in ("<think>x</think>\n[get_time()]", ["<think>x</think>\n[get_time()]"]):
        events = merged(
            event for piece in pieces_of(chunks, syntaxes=[PYTHONIC], thinking="auto") for event in piece.events
        )
        assert isinstance(events[-1], ToolCallDetected)


def test_markers_of_which_one_begins_like_the_other_are_told_apart() -> None:
    text = (
        '[TOOL_CALL]{"name": "get_time"}[END_TOOL_CALL][TOOL_CALLS] [{"name": "get_time", "arguments": {"zone": "x"}}]'
        '<tool_call name="get_time"/><tool_call>{"name": "get_time"}</tool_call>'
    )
    every: list[tuple[str, object]] = [
        ("get_time", {}),
        ("get_time", {"zone": "x"}),
        ("get_time", {}),
        ("get_time", {}),
    ]
    assert _calls(text, [*SYNTAXES, MISTRAL]) == every
    assert _calls(text, [MISTRAL, *reversed(SYNTAXES)]) == every
    assert _calls(text, [MISTRAL]) == [("get_time", {"zone": "x"})]


@pytest.mark.parametrize("name", list(SYNTAXES))
def test_every_example_is_a_call_in_its_own_syntax(name: str) -> None:
    example = SYNTAXES[name].example.replace("TOOL", "anything", 9 if name == "project_xml" else 0)
    if name != "project_xml":
        example = example.replace('"TOOL"', '"anything"').replace("{…}", "{}")
    assert [call for call, _ in _calls(example, [name])] == ["anything"]


def test_a_shape_knows_its_own_beginnings() -> None:
    shape = Shape(SPACE, *literal("ab"), r"\d?", "!")
    assert [shape.at(text, 0) for text in ("", " ", " a", "ab", "ab1", "ab1!", " ab!")] == [None] * 5 + [True] * 2
    assert [shape.at(text, 0) for text in ("b", "a b", "ab12", "ac")] == [False] * 4
    assert shape.match("xab1! ", 1) == 5


def test_markers_are_found_whole_or_beginning_at_the_end() -> None:
    markers = Markers(("<tool_call>", "<tool_call", "[X]"))
    assert markers.search("a <b <tool_call>", 0) == (5, True)
    assert markers.search("a <b <tool", 0) == (5, False)
    assert markers.search("a <b ", 0) is None
    assert [markers.at("[X] [", place) for place in (0, 1, 4)] == [True, False, None]
    assert Markers(()).search("anything", 0) is None
