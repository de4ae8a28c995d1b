"""The work on a schema is bounded, whatever the schema is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from rkllm_mcp.toolcalls.schemas import (
    SchemaCostError,
    SchemaError,
    TooManyStepsError,
    check_schema,
    first_violation,
    may_run_long,
    measure_schema,
)


def doubling(keyword: str, levels: int) -> dict[str, Any]:
    """A short schema in which each level refers twice to the one below."""
    definitions: dict[str, Any] = {"a0": {"type": "integer"}}
    for level in range(1, levels + 1):
        definitions[f"a{level}"] = {keyword: [{"$ref": f"#/$defs/a{level - 1}"}, {"$ref": f"#/$defs/a{level - 1}"}]}
    return {"type": "object", "properties": {"x": {"$ref": f"#/$defs/a{levels}"}}, "$defs": definitions}


def nested(levels: int) -> dict[str, Any]:
    """A schema of an object in an object."""
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "object", "additionalProperties": schema}
    return schema


COSTLY: dict[str, dict[str, Any]] = {
    "nested pairs": doubling("anyOf", 14),
    "nested demands": doubling("allOf", 16),
    "nested objects": nested(100),
    "fan-out": {"anyOf": [{"$ref": "#/$defs/a"}] * 900, "$defs": {"a": {"anyOf": [{}, {}, {}]}}},
    "branches": {"anyOf": [{"minimum": number} for number in range(3000)]},
    "choices": {"enum": list(range(100_000))},
    "names": {"required": [f"n{number}" for number in range(100_000)]},
    "pattern properties": {"patternProperties": {f"^a{number}$": {} for number in range(3000)}},
    "dependent schemas": {"dependentSchemas": {f"a{number}": {"not": {}} for number in range(1500)}},
}


@pytest.mark.parametrize("check", [measure_schema, check_schema])
@pytest.mark.parametrize("schema", COSTLY.values(), ids=COSTLY.keys())
def test_a_schema_that_takes_too_much_work_is_refused(
    schema: dict[str, Any], check: Callable[[dict[str, Any]], None]
) -> None:
    with pytest.raises(
        SchemaCostError, match=r"leads to more than 2000 schemas|nested too deeply|has patterns of more"
    ):
        check(schema)


def test_shared_schemas_are_read_once_and_circles_end() -> None:
    check_schema(doubling("anyOf", 8))
    check_schema({"type": "object", "properties": {"child": {"$ref": "#"}, "next": {"$ref": "#"}}})


def test_a_schema_that_makes_no_sense_can_be_measured() -> None:
    measure_schema({"type": 5, "properties": [], "anyOf": {}, "items": 3, "$ref": 4, "enum": "x", "pattern": "("})


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"properties": {"a": {"items": [{}]}}}, "properties.a.items: "),
    ({"allOf": []}, "allOf: "),
    ({"required": "a"}, "required: 'a' is not of type 'array'"),
    ({"minLength": -1}, "minLength: -1"),
    ({"minLength": math.inf}, "minLength: inf"),
    ({"$defs": {"a": 5}}, "$defs.a: 5 is not of type 'object', 'boolean'"),
    ({"not": []}, "not: "),
]


@pytest.mark.parametrize(("schema", "problem"), BROKEN)
def test_a_keyword_of_another_shape_is_named_with_its_place(schema: dict[str, Any], problem: str) -> None:
    with pytest.raises(SchemaError, match="it is not JSON Schema: ") as raised:
        check_schema(schema)
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    "pattern",
    [
        "^(a+)+$",
        "(a|a)" * 30 + "b",
        "a?" * 30 + "a" * 30,
        "a{0,64}" * 4 + "b",
        "a*b*c*d*",
        "(a*)*{}",
        "(x{2,}){3}",
        r"(\w+\s?)+$",
        "(?i)[a-z]",
        "a" * 1001,
    ],
)
def test_a_pattern_that_could_backtrack_for_long_is_not_run(pattern: str) -> None:
    assert may_run_long(pattern, 40)
    schema = {"type": "string", "pattern": pattern}
    assert first_violation("-" * 40, schema) is None


def test_a_pattern_is_run_where_the_text_is_short_enough() -> None:
    schema = {"type": "string", "pattern": "^[a-z]+@[a-z]+$"}
    assert first_violation("a@b", schema) is None
    assert first_violation("ab", schema) == ("", "'ab' does not match '^[a-z]+@[a-z]+$'")
    assert first_violation("a" * 5000, schema) is None


def test_a_validation_that_branches_too_often_is_given_up() -> None:
    with pytest.raises(TooManyStepsError):
        first_violation({"x": "words"}, doubling("anyOf", 20))
    assert first_violation({"x": 5}, doubling("allOf", 20)) is None


LONG_ROW = list(range(2000))
COMPARISONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a long constant": ([[*LONG_ROW[:-1], -1] for _ in range(1000)], {"contains": {"const": LONG_ROW}}),
    "a long constant that is quoted": (LONG_ROW, {"contains": {"const": "x" * 100_000}}),
    "many long choices": ([[*LONG_ROW[:-1], -1]] * 100, {"items": {"enum": [LONG_ROW] * 100}}),
    "nested choices": ([{"a": [{"b": 1}] * 500}] * 500, {"items": {"enum": [{"a": [{"b": 1}] * 499}] * 300}}),
    "long texts": (["x" * 10_000] * 500, {"items": {"enum": ["x" * 9_999 + "y"] * 2000}}),
}


@pytest.mark.parametrize(("value", "schema"), COMPARISONS.values(), ids=COMPARISONS)
def test_comparisons_with_constants_and_choices_are_counted_by_what_is_compared(
    value: Any, schema: dict[str, Any]
) -> None:
    with pytest.raises(TooManyStepsError):
        first_violation(value, schema)


def test_constants_and_choices_are_equal_as_in_json() -> None:
    schema = {"items": {"enum": [1, "a", None, [True], {"b": [1]}]}}
    assert first_violation([1.0, "a", None, [True], {"b": [1.0]}], schema) is None
    assert first_violation([[1]], {"items": {"enum": [[True]]}}) == ("0", "[1] is not one of [[True]]")
    assert first_violation({"a": 1}, {"properties": {"a": {"const": True}}}) == ("a", "True was expected")
    assert first_violation({"a": {"b": 1}}, {"const": {"a": {}}}) == ("", "{'a': {}} was expected")


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_a_reference_to_itself_ends(keyword: str) -> None:
    with pytest.raises(RecursionError):
        first_violation("x", {keyword: "#"})


def test_values_are_validated_as_a_whole() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "uniqueItems": True, "items": {"type": "integer"}}},
        "patternProperties": {"^x-": {"type": "string"}},
        "additionalProperties": {"type": "boolean"},
    }
    assert first_violation({"a": [1, 2], "x-a": "", "other": True}, schema) is None
    assert first_violation({"a": [1, 1]}, schema) == ("a", "[1, 1] has non-unique elements")
    assert first_violation({"x-a": 5}, schema) == ("x-a", "5 is not of type 'string'")
    assert first_violation({"other": 5}, schema) == ("other", "5 is not of type 'boolean'")
