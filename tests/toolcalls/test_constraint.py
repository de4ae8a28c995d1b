"""Constraints: what a text may consist of, in the notation of every call format, and what replaces a wrong one."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from rkllm_mcp.generation import AnswerGrammar
from rkllm_mcp.messages import ToolCall, ToolSpec
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.prompt.tool_list import ToolForm
from rkllm_mcp.toolcalls.call_grammars import Constraints, call_grammar
from rkllm_mcp.toolcalls.constraint import Constraint, UnheldError, answer_constraint
from rkllm_mcp.toolcalls.detector import Detector
from rkllm_mcp.toolcalls.formats import DEFAULT_FORMATS, SYNTAXES

pytest.importorskip("llguidance")

WEATHER = ToolSpec(
    "get_weather",
    "Weather",
    {
        "type": "object",
        "properties": {
            "location": {"type": "string"},
            "unit": {"enum": ["celsius", "fahrenheit", "華氏"]},
            "days": {"type": "integer"},
            "hours": {"type": "array", "items": {"type": "integer"}},
            "is_short": {"type": "boolean"},
        },
        "required": ["location", "days"],
    },
)
NOW = ToolSpec("now", "The time", {"type": "object", "properties": {}})
ARGUMENTS: list[dict[str, Any]] = [
    {"location": '東京 ("本") \'s', "unit": "華氏", "days": 3, "hours": [1, 23], "is_short": True},
    {"location": "Paris", "days": 3},
    {"location": "a\nb", "days": -1, "is_short": False},
]
CONSTRAINTS = Constraints(most=1000)
ALL_FORMATS = {
    call_format.name: call_format
    for formats in (DEFAULT_FORMATS, *(syntax.formats for syntax in SYNTAXES.values()))
    for call_format in formats
}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "size": {"enum": ["small", "large"]}, "age": {"type": "integer"}},
    "required": ["name", "size"],
    "additionalProperties": False,
}


def json_constraint(schema: object) -> Constraint:
    return answer_constraint(AnswerGrammar("json", json.dumps(schema)))


@pytest.mark.parametrize("name", ALL_FORMATS)
def test_every_call_format_has_a_grammar(name: str) -> None:
    grammar = call_grammar(ALL_FORMATS[name], [WEATHER, NOW], "arguments")
    assert grammar is not None
    Constraint(grammar.lark, has_space=grammar.has_space, names=["get_weather", "now"])


def write_call(form: ToolForm, call: ToolCall) -> str:
    return "".join(segment.text for segment in form.calls([call]))


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_call_as_the_family_writes_it_is_right_to_its_end_however_it_is_cut(
    family: str,
) -> None:
    form = TEMPLATES[family].tool_form
    key = "parameters" if '"parameters"' in form.call_style.begin("f") else "arguments"
    texts = [write_call(form, ToolCall("1", "get_weather", arguments)) for arguments in ARGUMENTS]
    for text, length in product(texts, (1, 3)):
        detector, held = Detector([WEATHER, NOW], form.syntaxes), None
        for start in range(0, len(text), length):
            piece = text[start : start + length]
            if held is None:
                detector.feed(piece)
                if (opened := detector.open_call) is not None:
                    constraint = CONSTRAINTS.of_call(opened[0], [WEATHER, NOW], key)
                    assert constraint is not None
                    held = constraint.begin()
                    assert held.feed(opened[1]) == len(opened[1]), opened
            elif not held.is_over:
                accepted = held.feed(piece)
                assert accepted == len(piece) or held.is_complete, (text, start, piece[accepted:])
        if held is not None:
            assert held.is_complete
            assert held.has_tool
        else:
            # A format without a marker is a call by what follows it.
            assert form.syntaxes[0] in {"pythonic_list", "gemma3", "chatglm3"}


@pytest.mark.parametrize(
    ("begun", "written"),
    [
        ("", '{"name": "'),
        ("{", '"name": "'),
        ("{\n  ", '"name": "'),
        ('{"name": "a"', ', "size": "'),
        ('{"name": "a",\n', '"size": "'),
        ('{"name": "a", "size": "s', 'mall"'),
        ('{"name": "a', ""),
        ('{"name": "a", "size": "large"', ""),
    ],
)
def test_structure_is_what_only_one_way_can_go_on_with(begun: str, written: str) -> None:
    held = json_constraint(PERSON).begin()
    assert held.feed(begun) == len(begun)
    assert held.structure() == written


@pytest.mark.parametrize(
    ("begun", "wrong", "spelling"),
    [
        ('{"name": "a', "\nb", "\\nb"),
        ('{"name": "a", "size": "', "Small", "small"),
        ('{"name": "a", "size": "small", "age": ', '"41', "41"),
        ('{"name": "a", "size": "small", "age": ', "old", ""),
    ],
)
def test_the_same_value_in_another_notation_is_kept(begun: str, wrong: str, spelling: str) -> None:
    held = json_constraint(PERSON).begin()
    assert held.feed(begun) == len(begun)
    assert held.other_spelling(wrong) == spelling


def test_the_right_part_of_a_wrong_piece_counts_in_whole_characters() -> None:
    held = answer_constraint(AnswerGrammar("choice", '["東京都","東北"]')).begin()
    # 京 and 亰 begin with the same byte.
    assert [held.feed("東亰"), held.feed("京")] == [1, 1]
    assert held.structure() == "都"


def test_the_shortest_way_on_ends_what_is_open() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}, "required": ["a"]}
    held = json_constraint(schema).begin()
    text = '{"a": [12'
    held.feed(text)
    while not held.is_over:
        written = held.shortest()
        text += written
        held.feed(written)
    assert text == '{"a": [12]}'


def test_the_tool_is_the_models_choice_also_where_there_is_one() -> None:
    constraint = Constraints().of_call(ALL_FORMATS["hermes"], [WEATHER], "arguments")
    assert constraint is not None
    for begun, expected in (("{", '"name": "'), ('{"name": "get_', "")):
        held = constraint.begin()
        held.feed(begun)
        assert (held.structure(), held.has_tool) == (expected, False)
    held = constraint.begin()
    held.feed('{"name": "get_weather"')
    assert (held.structure(), held.has_tool) == (', "arguments": {"location": "', True)


def test_a_format_is_an_annotation_and_not_held_and_a_property_of_that_name_is_kept() -> None:
    schema = {
        "type": "object",
        "properties": {"format": {"type": "string", "format": "date"}, "kind": {"const": {"format": "a"}}},
        "required": ["format", "kind"],
        "additionalProperties": False,
        "x-guidance": {"whitespace_pattern": "x*"},
    }
    constraint = json_constraint(schema)
    assert constraint.allows('{"format": "3 March", "kind": {"format": "a"}}')
    assert not constraint.allows('{"format":x"3 March", "kind": {"format": "a"}}')
    assert not constraint.allows('{"format": "3 March", "kind": {"format": "b"}}')


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema, "b": {"$ref": "#"}}}
    return schema


HOSTILE: list[tuple[Any, str]] = [
    ("regex", "(a+)+" * 400),
    ("regex", "((a{1,500}){1,500}){1,500}"),
    ("regex", "((a{1,500}){1,14}){1,14}"),
    ("regex", "("),
    ("json", json.dumps({"type": "string", "pattern": "^(([a-z])+.)+[A-Z]([a-z])+$" * 20})),
    ("json", json.dumps({"enum": [f"{index:06}" * 20 for index in range(20_000)]})),
    ("json", json.dumps(nested(300))),
    ("json", json.dumps({"type": "string", "minLength": 10**9})),
    ("json", '{"$ref": "#"}'),
    ("json", json.dumps({"allOf": [{"anyOf": [{"minimum": i} for i in range(40)]} for _ in range(12)]})),
    ("grammar", "start: start start | start"),
    ("grammar", "root ::= root"),
    ("choice", json.dumps(["x" * 300_000])),
]


@pytest.mark.parametrize(("kind", "text"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_form_is_refused_or_read_within_bounds(kind: Any, text: str) -> None:
    try:
        held = answer_constraint(AnswerGrammar(kind, text)).begin()
    except UnheldError as error:
        assert str(error)
        return
    for _ in range(200):
        held.feed("a1{")
    assert len(held.structure()) <= 256
    assert len(held.shortest()) <= 300


def test_a_constraint_is_compiled_once_and_the_oldest_is_forgotten() -> None:
    constraints = Constraints(most=2)
    first, second, third = (AnswerGrammar("regex", text) for text in ("a", "b", "c"))
    kept = constraints.of_answer(first)
    assert constraints.of_answer(second) is not None
    assert constraints.of_answer(first) is kept
    constraints.of_answer(third)
    assert constraints.of_answer(first) is kept
    assert constraints.of_answer(AnswerGrammar("regex", "(")) is None


@pytest.mark.parametrize(
    ("grammar", "right", "wrong"),
    [
        ('root ::= "yes" | "no" (" " [0-9]+)?', ["yes", "no", "no 12"], ["maybe", "no "]),
        ('start: /[a-c]+/ "!"', ["abc!"], ["abd!", "abc"]),
    ],
)
def test_the_grammars_of_llama_cpp_and_of_lark_are_read(grammar: str, right: list[str], wrong: list[str]) -> None:
    constraint = answer_constraint(AnswerGrammar("grammar", grammar))
    assert [constraint.allows(text) for text in right] == [True] * len(right)
    assert [constraint.allows(text) for text in wrong] == [False] * len(wrong)


@pytest.mark.parametrize(
    ("begun", "heard", "value"),
    [
        ('{"name": "a", "size": "', "It is a Large one.", "large"),
        ('{"name": "a", "size": "', "smaller ones, largely", ""),
        ('{"name": "a", "size": "small", "age": ', " of about 34 years", "34"),
        ('{"name": "a", "size": "small", "age": 34', '", "b": 1', ""),
    ],
)
def test_the_first_value_of_a_text_is_one_that_can_follow_here(begun: str, heard: str, value: str) -> None:
    held = json_constraint(PERSON).begin()
    assert held.feed(begun) == len(begun)
    assert held.first_value(heard) == value
