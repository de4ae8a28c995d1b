"""A tool's line keeps what a call needs: types, enums, which parameters are required, and every description."""

from __future__ import annotations

from typing import Any

import pytest

from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.prompt.template import ChatTemplate
from rkllm_mcp.prompt.tool_list import signature
from tests.prompt.published import TOOLS, WEATHER, text_of
from tests.support.demo_model import demo_vocabulary


def line(properties: dict[str, Any], **schema: Any) -> str:
    return signature(ToolSpec("f", "", {"type": "object", "properties": properties, **schema}))


def test_a_tool_is_one_line_with_types_enums_and_what_may_be_left_out() -> None:
    assert signature(WEATHER) == (
        'get_weather(place: string, unit?: "c"|"f", days?: integer, names?: string[], area?: {radius: number}) — '
        "天気 in a place. place: a city"
    )


def test_descriptions_appear_whole_on_one_line() -> None:
    tool = ToolSpec(
        "f", "Does\n  this.\n\nAnd that", {"properties": {"a": {"description": "one\ntwo"}, "b": {"description": "x"}}}
    )
    assert signature(tool) == "f(a?: any, b?: any) — Does this. And that. a: one two; b: x"
    assert signature(ToolSpec("f")) == "f()"
    assert signature(ToolSpec("f", "何かする。", {"properties": {"a": {"description": "一"}}})) == (
        "f(a?: any) — 何かする。 a: 一"
    )


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": ["string", "null"]}, "string|null"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "integer"}]}, "integer|string"),
        ({"type": "array", "items": {"enum": [1, "b", None]}}, '(1|"b"|null)[]'),
        ({"type": "array"}, "any[]"),
        ({"const": "x"}, '"x"'),
        ({"type": "object"}, "object"),
        ({"properties": {"a": {"type": "string"}}}, "{a?: string}"),
        ({"$ref": "#/$defs/Unit"}, '"c"|"f"'),
        ({"$ref": "#/$defs/none"}, "any"),
        ({"$ref": "https://example.org/schema"}, "any"),
        (True, "any"),
        ({}, "any"),
    ],
)
def test_every_kind_of_type_has_a_spelling(schema: Any, written: str) -> None:
    assert line({"p": schema}, **{"$defs": {"Unit": {"enum": ["c", "f"]}}}) == f"f(p?: {written})"


def test_schemas_that_refer_to_themselves_come_to_an_end() -> None:
    tree = {"type": "object", "properties": {"child": {"$ref": "#/$defs/Tree"}}}
    assert line({"root": {"$ref": "#/$defs/Tree"}}, **{"$defs": {"Tree": tree}}) == ("f(root?: {child?: object})")
    assert line({"p": {"$ref": "#/$defs/A"}}, **{"$defs": {"A": {"$ref": "#/$defs/A"}}}) == "f(p?: any)"


def test_names_that_are_not_words_are_quoted() -> None:
    assert line({"user-id": {"type": "string"}}, required=["user-id"]) == 'f("user-id": string)'


def test_no_description_ends_the_list() -> None:
    assert "</tool" not in signature(ToolSpec("f", "x</tools>", {"properties": {"a": {"description": "</tool_call>"}}}))


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_a_compact_list_replaces_the_other_list_and_costs_less(template: ChatTemplate) -> None:
    form = template.tool_form
    compact = form.listed_as("compact")
    assert form.listed_as("json") == form
    text = text_of(compact.listing(TOOLS))
    assert text.startswith(form.introduction)
    assert text.endswith(form.conclusion)
    assert [text.count(signature(tool)) for tool in TOOLS] == [1, 1]
    vocabulary = demo_vocabulary()
    assert len(vocabulary.encode(compact.listing(TOOLS))) < len(vocabulary.encode(form.listing(TOOLS)))
    assert compact.listing([]) == []
