"""What counts as an answer of the form that was asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rkllm_mcp.completions.structured_output import FormatMismatchError, ResponseFormat, SchemaCheck
from rkllm_mcp.toolcalls.schemas import SchemaCostError, SchemaError

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "title": "City"}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city", "days"],
    "additionalProperties": False,
}


def test_json_that_is_valid_stays_as_it_was_written() -> None:
    written = '{"days":  2, "city": "東京"}'
    assert ResponseFormat(CITY).read(f"\n{written}\n") == written
    assert ResponseFormat().read(written) == written


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"city": "Oslo", "days": 2}\n```',
        'Here it is: {"city": "Oslo", "days": 2} Have fun!',
        "{'city': 'Oslo', 'days': 2,}",
        '{"city": "Oslo", "days": "2"}',
        '{"city": "Oslo", "days": 2',
    ],
    ids=["fenced", "between words", "as Python writes it", "a number as text", "a bracket missing"],
)
def test_json_that_can_only_mean_one_thing_is_mended(text: str) -> None:
    assert json.loads(ResponseFormat(CITY).read(text)) == {"city": "Oslo", "days": 2}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("I do not know.", "it is not valid JSON"),
        ('{"city": "Oslo"}', "'days' is a required property"),
        ('{"city": "Oslo", "days": 0}', "'days': 0 is less than the minimum of 1"),
        ('{"city": "Oslo", "days": 1, "x": 1}', "Additional properties are not allowed ('x' was unexpected)"),
        ("[1]", "[1] is not of type 'object'"),
        ("", "it is not valid JSON"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(FormatMismatchError) as raised:
        ResponseFormat(CITY).read(text)
    assert str(raised.value) == reason


def test_without_a_schema_any_object_will_do_and_nothing_else() -> None:
    assert ResponseFormat().read('{"a": [1]}') == '{"a": [1]}'
    with pytest.raises(FormatMismatchError, match="no JSON object"):
        ResponseFormat().read("[1, 2]")


def test_the_model_sees_the_schema_without_the_keywords_that_do_not_help_it() -> None:
    told = ResponseFormat(CITY, "a trip").instruction()
    assert '"days":{"type":"integer","minimum":1}' in told
    assert '"title"' not in told
    assert "a trip" in told


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "objekt"}, "it is not JSON Schema: type: 'objekt'"),
        ({"$ref": "https://example.com/x.json"}, "put the definition into its $defs"),
        ({"$schema": []}, "it is not JSON Schema: $schema"),
        ({"patternProperties": None}, "it is not JSON Schema: patternProperties"),
    ],
)
def test_a_schema_that_nothing_can_be_checked_against_is_refused(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(SchemaError) as raised:
        SchemaCheck()(schema)
    assert reason in str(raised.value)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "a*b*c*d*", "(", r"^\p{L}+$", "^(?<year>[0-9]{4})$", "x" * 5000])
def test_a_pattern_that_cannot_be_run_here_is_not_checked(pattern: str) -> None:
    schema: dict[str, Any] = {"properties": {"a": {"pattern": pattern}}, "patternProperties": {pattern: {}}}
    SchemaCheck()(schema)
    answer = json.dumps({"a": "- " * 20})
    assert ResponseFormat(schema).read(answer) == answer


def test_only_this_many_patterns_are_compiled_for_an_answer() -> None:
    # Each has 999 characters and matches its own number.
    schema = {"properties": {f"a{number}": {"pattern": f"^{number}{'(?:)' * 249}$"} for number in range(5)}}
    form = ResponseFormat(schema)
    SchemaCheck()(schema)
    with pytest.raises(FormatMismatchError):
        form.read('{"a1": "x"}')
    answer = json.dumps({"a0": "0", "a1": "1", "a2": "2", "a3": "x"})
    assert form.read(answer) == answer


def test_a_schema_that_leads_nowhere_is_not_a_form() -> None:
    for schema in ({"$ref": "#"}, {"$ref": "#/$defs/missing"}):
        with pytest.raises(FormatMismatchError, match="the schema refers to"):
            ResponseFormat(schema).read('{"a": 1}')


def test_a_schema_nested_without_end_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(3000):
        schema = {"not": schema}
    with pytest.raises(SchemaError, match="too deeply"):
        SchemaCheck()(schema)


def test_a_schema_that_no_window_has_room_for_is_refused_before_it_is_looked_at() -> None:
    with pytest.raises(SchemaError, match="no prompt has room for its"):
        SchemaCheck()({"type": "object", "properties": {f"p{number}": 3 for number in range(20_000)}})


def _doubling(levels: int) -> dict[str, Any]:
    """A short schema in which each level refers twice to the one below."""
    below: dict[str, Any] = {"a0": {"type": "object"}}
    above = {f"a{level}": {"allOf": [{"$ref": f"#/$defs/a{level - 1}"}] * 2} for level in range(1, levels + 1)}
    return {"$defs": below | above, "$ref": f"#/$defs/a{levels}"}


def test_references_that_multiply_are_given_up_and_not_followed() -> None:
    assert ResponseFormat(_doubling(8)).read("{}") == "{}"
    with pytest.raises(SchemaCostError, match="leads to more than 2000 schemas"):
        SchemaCheck()(_doubling(40))
    with pytest.raises(FormatMismatchError, match="too often"):
        ResponseFormat(_doubling(40)).read("[]")
    assert ResponseFormat(_doubling(40)).read("{}") == "{}"


def test_a_schema_inside_a_schema_does_not_say_what_kind_it_is() -> None:
    kind = "https://json-schema.org/draft/2020-12/schema"
    SchemaCheck()({"$schema": kind, "properties": {"$schema": {"type": "string"}}})
    with pytest.raises(SchemaError, match="at the top alone"):
        SchemaCheck()({"properties": {"a": {"$schema": kind}}})
