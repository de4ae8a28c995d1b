"""Arguments take the types of the schema where nothing is lost, and are refused where something would be."""

from __future__ import annotations

from typing import Any

import pytest

from rkllm_mcp.toolcalls.schema import MismatchError, conform

BARE: list[tuple[str, dict[str, Any], Any]] = [
    ("42", {"type": "integer"}, 42),
    ("007", {"type": "integer"}, 7),
    ("3.0", {"type": "integer"}, 3),
    ("+5", {"type": "integer"}, 5),
    (" 5\n", {"type": "integer"}, 5),
    ("3.14", {"type": "number"}, 3.14),
    ("1.23e5", {"type": "number"}, 123000.0),
    ("42", {"type": "number"}, 42),
    ("True", {"type": "boolean"}, True),
    ("FALSE", {"type": "boolean"}, False),
    ("null", {"type": ["integer", "null"]}, None),
    ("12345", {"type": "string"}, "12345"),
    ("null", {"type": "string"}, "null"),
    ("[1, 2]", {"type": "array"}, [1, 2]),
    ("['a', True]", {"type": "array"}, ["a", True]),
    ('{"a": 1}', {"type": "object"}, {"a": 1}),
    ('{"a": 1}', {"type": "string"}, '{"a": 1}'),
    ("42", {"type": ["string", "integer"]}, 42),
    ("042", {"type": ["string", "integer"]}, "042"),
    ("true", {"type": ["string", "boolean"]}, True),
    ("True", {"type": ["string", "boolean"]}, "True"),
    ("{not json", {"type": ["string", "object"]}, "{not json"),
    ("42.5", {"type": ["integer", "number"]}, 42.5),
    ("10", {"anyOf": [{"type": "string"}, {"type": "integer"}]}, 10),
    ("x", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "x"),
    ("null", {"anyOf": [{"type": "object"}, {"type": "null"}]}, None),
    ("celsius", {"enum": ["celsius", "fahrenheit"]}, "celsius"),
    ("2", {"enum": [1, 2]}, 2),
    ("2", {"enum": ["1", "2"]}, "2"),
    ("42", {}, "42"),
    ('{"a": "1"}', {"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 1}),
    ('{"a": "1"}', {"type": "object", "properties": {"a": {"type": ["string", "integer"]}}}, {"a": "1"}),
]


@pytest.mark.parametrize(("text", "schema", "value"), BARE)
def test_bare_text_takes_the_type_the_schema_asks_for(text: str, schema: dict[str, Any], value: Any) -> None:
    result = conform({"v": text}, {"properties": {"v": schema}, "required": ["v"]}, as_text=True)["v"]
    assert (result, type(result)) == (value, type(value))


JSON_VALUES: list[tuple[Any, dict[str, Any], Any]] = [
    ("3", {"type": "integer"}, 3),
    ("3", {"type": ["integer", "string"]}, "3"),
    (3.0, {"type": "integer"}, 3),
    (3, {"type": "number"}, 3),
    ("true", {"type": "boolean"}, True),
    ('["a"]', {"type": "array", "items": {"type": "string"}}, ["a"]),
    (["1", "2"], {"type": "array", "items": {"type": "integer"}}, [1, 2]),
    ("5", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 5),
    ("5", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "5"),
    ({"n": "5"}, {"$ref": "#/$defs/Inner"}, {"n": 5}),
    ("x", {"const": "x"}, "x"),
    ("x", {"type": "what-is-this"}, "x"),
    ("5", {"allOf": [{"type": "integer"}, {"minimum": 9}]}, 5),
    ("x", {"$ref": "#/$defs/Loop"}, "x"),
    ("x", {"type": 5, "enum": "no list", "properties": [], "anyOf": {}, "required": 3}, "x"),
]
DEFS = {
    "Inner": {"type": "object", "properties": {"n": {"type": "integer"}}},
    "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}]},
}


@pytest.mark.parametrize(("written", "schema", "value"), JSON_VALUES)
def test_json_values_keep_their_type_where_the_schema_allows_it(
    written: Any, schema: dict[str, Any], value: Any
) -> None:
    result = conform({"v": written}, {"properties": {"v": schema}, "$defs": DEFS})["v"]
    assert (result, type(result)) == (value, type(value))


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"required": ["city"]}, "argument 'city' is missing"),
    ({"v": "soon"}, {"properties": {"v": {"type": "integer"}}}, "argument 'v' must be integer, not \"soon\""),
    ({"v": 5}, {"properties": {"v": {"type": "string"}}}, "argument 'v' must be string, not 5"),
    ({"v": True}, {"properties": {"v": {"type": "integer"}}}, "argument 'v' must be integer, not true"),
    ({"v": 2.5}, {"properties": {"v": {"type": "integer"}}}, "argument 'v' must be integer, not 2.5"),
    ({"v": "1,5"}, {"properties": {"v": {"type": "number"}}}, "must be number"),
    ({"v": "9" * 500}, {"properties": {"v": {"type": "integer"}}}, "must be integer"),
    ({"v": "1e400"}, {"properties": {"v": {"type": "number"}}}, "must be number"),
    ({"v": "yes"}, {"properties": {"v": {"type": "boolean"}}}, "must be boolean"),
    ({"v": "a"}, {"properties": {"v": {"type": "array"}}}, "must be array"),
    ({"v": "x"}, {"properties": {"v": {"enum": ["a", "b"]}}}, 'must be one of "a", "b", not "x"'),
    ({"v": 1}, {"properties": {"v": {"enum": [True]}}}, "must be one of true, not 1"),
    ({"v": None}, {"properties": {"v": {"type": "string"}}, "required": ["v"]}, "must be string, not null"),
    ({"w": 1}, {"properties": {"v": {}}, "additionalProperties": False}, "argument 'w' does not exist"),
    (
        {"v": [{"n": "x"}]},
        {"properties": {"v": {"type": "array", "items": {"properties": {"n": {"type": "integer"}}}}}},
        "argument 'v[0].n' must be integer",
    ),
    (
        {"v": "x"},
        {"properties": {"v": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}},
        "argument 'v' must be integer or null, not \"x\"",
    ),
    (
        {"v": {"n": "x"}},
        {
            "properties": {
                "v": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"n": {"type": "integer"}}}]}
            }
        },
        "argument 'v.n' must be integer",
    ),
]


@pytest.mark.parametrize(("arguments", "schema", "said"), REFUSED)
def test_what_does_not_fit_is_refused_in_words_a_model_understands(
    arguments: dict[str, Any], schema: dict[str, Any], said: str
) -> None:
    with pytest.raises(MismatchError) as caught:
        conform(arguments, schema)
    assert said in str(caught.value)


def test_an_optional_argument_given_as_null_was_not_given() -> None:
    schema = {"properties": {"a": {"type": "string"}, "b": {"type": ["string", "null"]}, "c": {}}}
    assert conform({"a": None, "b": None, "c": None}, schema) == {"b": None, "c": None}


def test_an_object_keeps_arguments_the_schema_does_not_name() -> None:
    assert conform({"a": "1", "x": "2"}, {"properties": {"a": {"type": "integer"}}}) == {"a": 1, "x": "2"}
    typed = {"properties": {}, "additionalProperties": {"type": "integer"}}
    assert conform({"x": "2"}, typed) == {"x": 2}


def test_branches_that_multiply_are_not_all_tried() -> None:
    definitions: dict[str, Any] = {"a0": {"type": "integer"}}
    for level in range(1, 15):
        definitions[f"a{level}"] = {"anyOf": [{"$ref": f"#/$defs/a{level - 1}"}] * 20}
    schema = {"$defs": definitions, "properties": {"x": {"$ref": "#/$defs/a14"}}}
    assert conform({"x": "words"}, schema) == {"x": "words"}
