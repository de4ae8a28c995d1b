"""The table of syntaxes; a new family of models is a declaration, and one is made here that nobody has heard of."""

from __future__ import annotations

import re

import pytest

from rkllm_mcp.errors import UsageError
from rkllm_mcp.events import Text, ToolCallDetected
from rkllm_mcp.toolcalls.formats import (
    DEFAULT_FORMATS,
    PYTHON_LIST,
    SYNTAXES,
    Syntax,
    followed_by,
    marker_texts,
    select_syntaxes,
)
from rkllm_mcp.toolcalls.markers import SPACE, Markers, Shape, literal
from rkllm_mcp.toolcalls.parsers import read_named_json
from rkllm_mcp.toolcalls.scanners import NamedJsonScanner
from rkllm_mcp.toolcalls.syntax import CallFormat
from tests.toolcalls.streams import events_of, merged, pieces_of

ARROW = CallFormat(
    name="arrow",
    openers=("=>",),
    confirm=followed_by(Shape(SPACE, r"[a-z]", r"[a-z_]{0,40}", SPACE, r"\{")),
    scanner=NamedJsonScanner,
    read=read_named_json,
    example="=>TOOL{…};",
    closers=(";",),
)
FAMILY = Syntax("arrow", "", (ARROW,))


def _calls(text: str, syntaxes: list[str | Syntax]) -> list[tuple[str, object]]:
    return [
        (event.name, event.arguments)
        for event in events_of(text, syntaxes=syntaxes)
        if isinstance(event, ToolCallDetected)
    ]


def test_an_unknown_family_is_one_declaration() -> None:
    assert _calls('So =>get_time{"zone": "};"}; a => b', [FAMILY]) == [("get_time", {"zone": "};"})]
    assert events_of("a => b, x=", syntaxes=[FAMILY]) == [Text("a => b, x=")]


BARE = Syntax("bare", "", (PYTHON_LIST,))


def test_a_form_without_a_marker_is_a_call_only_where_the_answer_begins_and_names_a_tool() -> None:
    syntaxes: list[str | Syntax] = ["hermes", BARE]
    both: list[tuple[str, object]] = [("get_time", {"zone": "a]b"}), ("get_time", {})]
    assert _calls("\n[get_time(zone='a]b'), get_time()] ok", syntaxes) == both
    assert _calls("So: [get_time()]", syntaxes) == []
    assert _calls("[other()] [get_time()]", syntaxes) == []
    assert events_of("[1, 2] and [", syntaxes=syntaxes) == [Text("[1, 2] and [")]


def test_of_a_family_that_has_no_marker_a_bare_form_is_a_call_anywhere_but_in_quotes() -> None:
    assert _calls("So: [get_time()]", ["pythonic_list"]) == [("get_time", {})]
    assert _calls('So: {"name": "get_time", "parameters": {}} ok', ["llama3_json"]) == [("get_time", {})]
    assert _calls("So: `[get_time()]` or\n```\n[get_time()]\n```", ["pythonic_list"]) == []


def test_a_form_without_a_marker_is_a_call_right_after_thinking() -> None:
    for chunks in ("<think>x</think>\n[get_time()]", ["<think>x</think>\n[get_time()]"]):
        events = merged(
            event for piece in pieces_of(chunks, syntaxes=[BARE], thinking="auto") for event in piece.events
        )
        assert isinstance(events[-1], ToolCallDetected)


CLASHES = {
    "hermes": '<tool_call>{"name": "get_time", "arguments": {"zone": "x"}}</tool_call>',
    "qwen3_xml": "<tool_call>\n<function=get_time>\n<parameter=zone>\nx\n</parameter>\n</function>\n</tool_call>",
    "qwen3 unwrapped": "<function=get_time>\n<parameter=zone>\nx\n</parameter>\n</function>\n</tool_call>",
    "functionary_v31": '<function=get_time>{"zone": "x"}</function>',
    "minicpm5_xml": '<function name="get_time"><param name="zone">x</param></function>',
    "glm4_xml": "<tool_call>get_time\n<arg_key>zone</arg_key>\n<arg_value>x</arg_value>\n</tool_call>",
    "gemma3 in tags": "<tool_call>get_time(zone='x')</tool_call>",
    "project_xml": '<tool_call name="get_time"><argument name="zone">x</argument></tool_call>',
    "project_json": '[TOOL_CALL]{"name": "get_time", "arguments": {"zone": "x"}}[END_TOOL_CALL]',
    "mistral_json": '[TOOL_CALLS] [{"name": "get_time", "arguments": {"zone": "x"}}]',
    "mistral_args": '[TOOL_CALLS]get_time[ARGS]{"zone": "x"}',
    "granite3": '<|tool_call|> [{"name": "get_time", "arguments": {"zone": "x"}}]',
    "gemma4": '<|tool_call>call:get_time{zone:<|"|>x<|"|>}<tool_call|>',
    "lfm2": "<|tool_call_start|>[get_time(zone='x')]<|tool_call_end|>",
    "minicpm3": "<|tool_call_start|>\n```python\nget_time(zone='x')\n```\n<|tool_call_end|>",
    "granite20b": '<function_call> {"name": "get_time", "arguments": {"zone": "x"}}',
    "olmo3": "<function_calls>get_time(zone='x')</function_calls>",
    "llama3_json": '<|python_tag|>{"name": "get_time", "parameters": {"zone": "x"}}',
    "llama3's built-in": '<|python_tag|>get_time(zone="x")',
}


def test_markers_with_a_common_beginning_are_distinguished() -> None:
    every = list(CLASHES.values())
    for syntaxes in (list(SYNTAXES), list(reversed(SYNTAXES)), None):
        for order in (every, every[::-1]):
            events = [event for piece in pieces_of(["\n".join(order)], syntaxes=syntaxes) for event in piece.events]
            calls = [event for event in events if isinstance(event, ToolCallDetected)]
            assert [(call.name, call.arguments) for call in calls] == [("get_time", {"zone": "x"})] * len(CLASHES)
            assert [call.raw for call in calls] == order


@pytest.mark.parametrize("name", list(SYNTAXES))
def test_every_example_is_a_call_in_its_own_syntax(name: str) -> None:
    for form in SYNTAXES[name].formats:
        # What the placeholders stand for: a tool, an argument of it, an object of arguments.
        example = re.sub(r"\bTOOL\b", "anything", form.example)
        example = example.replace("{…}", "{}").replace("KEY", "k").replace("VALUE", "v")
        if form.read is read_named_json:
            assert "{}" in example
        calls = _calls(example, [Syntax("one", "", (form,))])
        assert [call for call, _ in calls] == ["anything"], (form.name, example)


def test_every_model_may_write_every_marker_its_own_first_and_its_own_bare_forms_at_the_beginning() -> None:
    marked = [form for form in DEFAULT_FORMATS if not form.bare]
    written = {form.name for syntax in SYNTAXES.values() for form in syntax.formats if not form.bare} - {"code_tag"}
    assert {form.name for form in marked} == written | {"drift_json", "drift_python", "drift_xml", "drift_named"}
    assert list(select_syntaxes(None).anywhere) == marked
    own = select_syntaxes(["gemma3"])
    assert [form.name for form in own.anywhere[:2]] == ["tool_code", "python_tag"]
    assert set(own.anywhere) == set(marked)
    assert own.first[: len(SYNTAXES["gemma3"].formats)] == SYNTAXES["gemma3"].formats


def test_the_markers_that_a_model_may_write_are_known_to_who_has_to_keep_them_in_the_text() -> None:
    known = marker_texts(["gemma4"])
    assert known[:2] == ("<|tool_call>", "<tool_call|>")
    assert {"<think>", "<channel|>", "<toolcall>"} < set(known)
    with pytest.raises(UsageError, match="hermes"):
        marker_texts(["nobody"])


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
