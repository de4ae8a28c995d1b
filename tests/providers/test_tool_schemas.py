"""A tool's schema as it is sent: what every service takes, and nothing of the tool's own lost that it can take."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rkllm_mcp.providers.tool_schemas import wire_schema

EMPTY: dict[str, Any] = {"type": "object", "properties": {}}
TEXT: dict[str, Any] = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ({}, EMPTY),
        ({"type": ["object"], "properties": None, "required": "x"}, EMPTY),
        (
            {"type": "object", "$schema": "s", "title": "T", "properties": {"title": TEXT, "$ref": TEXT}},
            {"type": "object", "properties": {"title": TEXT, "$ref": TEXT}},
        ),
        (
            {"properties": {"a": {"$ref": "#/$defs/A", "description": "d"}}, "$defs": {"A": {"title": "A", **TEXT}}},
            {"type": "object", "properties": {"a": {"type": "string", "description": "d"}}},
        ),
        (
            {"properties": {"a": {"$ref": "#/nowhere"}, "b": {"$ref": "http://x/y"}, "c": True}},
            {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}},
        ),
        (
            {"properties": {"a": {"type": "array"}}, "required": ["a", "gone"], "additionalProperties": False},
            {
                "type": "object",
                "properties": {"a": {"type": "array", "items": {}}},
                "additionalProperties": False,
                "required": ["a"],
            },
        ),
        (
            {"anyOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"properties": {"b": TEXT}}]},
            {"type": "object", "properties": {"a": TEXT, "b": TEXT}},
        ),
        (
            {"allOf": [{"properties": {"a": TEXT}, "required": ["a"]}], "properties": {"b": TEXT}},
            {"type": "object", "properties": {"b": TEXT, "a": TEXT}, "required": ["a"]},
        ),
        (
            {"properties": {"a": {"anyOf": [TEXT, {"type": "null"}], "x-order": 1}}},
            {"type": "object", "properties": {"a": {"anyOf": [TEXT, {"type": "null"}]}}},
        ),
    ],
)
def test_what_services_refuse_is_left_out_or_written_in_another_way(schema: Any, sent: Any) -> None:
    assert wire_schema(schema) == sent


def test_a_schema_that_contains_itself_ends_there() -> None:
    node: dict[str, Any] = {"type": "object", "properties": {"child": {"$ref": "#/$defs/node"}, "name": TEXT}}
    sent = wire_schema({"properties": {"root": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}})
    inside = {"child": {"type": "object"}, "name": TEXT}
    assert sent["properties"]["root"] == {"type": "object", "properties": inside}
    assert wire_schema({"properties": {"a": {"$ref": "#/properties/a"}}})["properties"] == {"a": {}}


def test_schemas_that_all_contain_each_other_are_not_written_out_for_ever() -> None:
    names = [f"n{number}" for number in range(10)]
    node: dict[str, Any] = {"properties": {name: {"$ref": f"#/$defs/{name}"} for name in names}}
    sent = wire_schema({**node, "$defs": dict.fromkeys(names, node)})
    assert len(str(sent)) < 100_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "properties", "items", "$ref", "anyOf", "required", "a"]), inner)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["type", "properties", "allOf", "required", "$ref"]), JSON))
def test_every_schema_of_a_server_becomes_an_object_with_properties(schema: dict[str, Any]) -> None:
    sent = wire_schema(schema)
    assert sent["type"] == "object"
    assert isinstance(sent["properties"], dict)
    assert "$ref" not in sent
