"""Arguments take the types of the schema where nothing is lost, and are refused where something would be."""

from __future__ import annotations

from typing import Any

import pytest

from rkllm_mcp.toolcalls.arguments import MismatchError, coerce_arguments, is_null
from rkllm_mcp.toolcalls.lenient_json import SourceFloat, read_value

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
    result = coerce_arguments({"v": text}, {"properties": {"v": schema}, "required": ["v"]}, as_text=True).value["v"]
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
    result = coerce_arguments({"v": written}, {"properties": {"v": schema}, "$defs": DEFS}).value["v"]
    assert (result, type(result)) == (value, type(value))


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"required": ["city"]}, "argument 'city' is missing"),
    ({"v": "soon"}, {"properties": {"v": {"type": "integer"}}}, "argument 'v' must be integer, not \"soon\""),
    ({"v": [5, 6]}, {"properties": {"v": {"type": "string"}}}, "argument 'v' must be string, not [5, 6]"),
    ({"v": True}, {"properties": {"v": {"type": "integer"}}}, "argument 'v' must be integer, not true"),
    ({"v": 2.5}, {"properties": {"v": {"type": "integer"}}}, "argument 'v' must be integer, not 2.5"),
    ({"v": "1,5"}, {"properties": {"v": {"type": "number"}}}, "must be number"),
    ({"v": "9" * 500}, {"properties": {"v": {"type": "integer"}}}, "must be integer"),
    ({"v": "1e400"}, {"properties": {"v": {"type": "number"}}}, "must be number"),
    # From here on a floating-point number may mean several integers.
    ({"v": "9007199254740992.0"}, {"properties": {"v": {"type": "integer"}}}, "must be integer"),
    ({"v": "perhaps"}, {"properties": {"v": {"type": "boolean"}}}, "must be boolean"),
    ({"v": "[a] b"}, {"properties": {"v": {"type": "array"}}}, "must be array"),
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
        coerce_arguments(arguments, schema)
    assert said in str(caught.value)


def test_a_text_with_more_than_white_space_around_null_is_not_null() -> None:
    texts = ("None", " NULL\n", "null" + 60 * " ", "null" + 61 * " ", "none", "nullable", "")
    assert [is_null(text) for text in texts] == [True, True, True, False, False, False, False]


def test_an_optional_argument_given_as_null_was_not_given() -> None:
    schema = {"properties": {"a": {"type": "string"}, "b": {"type": ["string", "null"]}, "c": {}}}
    assert coerce_arguments({"a": None, "b": None, "c": None}, schema).value == {"b": None, "c": None}


def test_an_object_keeps_arguments_the_schema_does_not_name() -> None:
    assert coerce_arguments({"a": "1", "x": "2"}, {"properties": {"a": {"type": "integer"}}}).value == {
        "a": 1,
        "x": "2",
    }
    typed = {"properties": {}, "additionalProperties": {"type": "integer"}}
    assert coerce_arguments({"x": "2"}, typed).value == {"x": 2}


def test_branches_that_multiply_are_not_all_tried() -> None:
    definitions: dict[str, Any] = {"a0": {"type": "integer"}}
    for level in range(1, 15):
        definitions[f"a{level}"] = {"anyOf": [{"$ref": f"#/$defs/a{level - 1}"}] * 20}
    schema = {"$defs": definitions, "properties": {"x": {"$ref": "#/$defs/a14"}}}
    with pytest.raises(MismatchError, match="argument 'x' must be integer, not \"words\""):
        coerce_arguments({"x": "words"}, schema)


def test_values_out_of_reach_of_the_allowed_steps_are_unchanged() -> None:
    branches = [{"type": "integer", "minimum": number} for number in range(1900)]
    assert coerce_arguments({"x": "words"}, {"properties": {"x": {"anyOf": branches}}}).value == {"x": "words"}


def test_a_schema_that_leads_back_to_itself_forbids_nothing() -> None:
    assert coerce_arguments({"x": [1]}, {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}).value == {"x": [1]}


INNER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "s": {"type": "string"},
        "i": {"type": "integer"},
        "f": {"type": "number"},
        "b": {"type": "boolean"},
        "l": {"type": "array", "items": {"type": "integer"}},
        "o": INNER,
        "m": {"type": ["integer", "null"]},
        "any": {},
        "odd": {"type": "file"},
    },
}

LENIENT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"s": 5}, {"s": "5"}),
    ({"s": True}, {"s": "true"}),
    ({"i": "5"}, {"i": 5}),
    ({"i": 5.0}, {"i": 5}),
    ({"f": " 1.5 "}, {"f": 1.5}),
    ({"f": 1}, {"f": 1}),
    ({"b": "True"}, {"b": True}),
    ({"l": "[1, 2]"}, {"l": [1, 2]}),
    ({"l": 1}, {"l": [1]}),
    ({"l": ["1"]}, {"l": [1]}),
    ({"o": '{"n": "7"}'}, {"o": {"n": 7}}),
    ({"m": None}, {"m": None}),
    ({"m": "null"}, {"m": None}),
    ({"i": None}, {}),
    ({"any": "5", "unknown": "6"}, {"any": "5", "unknown": "6"}),
    ({"odd": 1}, {"odd": 1}),
]


@pytest.mark.parametrize(("given", "taken"), LENIENT)
def test_a_value_takes_the_type_that_is_wanted(given: dict[str, Any], taken: dict[str, Any]) -> None:
    assert coerce_arguments(given, SCHEMA).value == taken


SENTENCES: list[tuple[dict[str, Any], str]] = [
    ({"i": "many"}, "The argument 'i' must be integer, not \"many\"."),
    ({"i": 1.5}, "The argument 'i' must be integer, not 1.5."),
    ({"i": True}, "The argument 'i' must be integer, not true."),
    ({"f": "1e999"}, "The argument 'f' must be number, not \"1e999\"."),
    ({"o": {}}, "The argument 'o.n' is missing."),
    ({"l": ["x"]}, "The argument 'l[0]' must be integer, not \"x\"."),
    ({"o": "x" * 100}, f"The argument 'o' must be object with n: integer, not \"{'x' * 58}…."),
]


@pytest.mark.parametrize(("given", "sentence"), SENTENCES)
def test_a_value_of_another_type_is_refused_in_one_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MismatchError) as caught:
        coerce_arguments(given, SCHEMA)
    assert caught.value.sentence == sentence


def read(text: str, schema: dict[str, Any]) -> tuple[Any, bool]:
    """The value of a text of JSON as ``schema`` takes it, and whether that counts as a repair."""
    taken = coerce_arguments(read_value(f'{{"v": {text}}}').value, {"properties": {"v": schema}})
    return taken.value.get("v"), taken.repaired


STRING, LIST = {"type": "string"}, {"type": "array"}
TOLERATED: list[tuple[str, dict[str, Any], Any]] = [
    ("1.10", STRING, "1.10"),
    ("1e5", STRING, "1e5"),
    ("81312345678901234567890", STRING, "81312345678901234567890"),
    ("false", STRING, "false"),
    ("1.10", {"anyOf": [STRING, {"type": "null"}]}, "1.10"),
    ('"red"', LIST, ["red"]),
    ("5", {**LIST, "items": STRING}, ["5"]),
    ('{"a": 1}', {**LIST, "items": {"type": "object"}}, [{"a": 1}]),
    ('"x"', {"anyOf": [{**LIST, "items": {"type": "integer"}}, {**LIST, "items": STRING}]}, ["x"]),
    ('"{\\"a\\": 1}"', {"anyOf": [LIST, {"type": "object"}]}, {"a": 1}),
    ("null", STRING, None),
    ('"7"', {"type": "integer"}, 7),
    ('"9007199254740991.0"', {"type": "integer"}, 9007199254740991),
]


@pytest.mark.parametrize(("text", "schema", "value"), TOLERATED)
def test_a_change_for_the_schema_is_a_repair(text: str, schema: dict[str, Any], value: Any) -> None:
    assert read(text, schema) == (value, True)


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("1.10", {"type": "number"}, 1.1),
        ("3.0", {"type": "integer"}, 3),
        ("5", {"anyOf": [STRING, {"type": "integer"}]}, 5),
        ("[1]", LIST, [1]),
        ("null", {"type": ["string", "null"]}, None),
    ],
)
def test_what_fits_is_not_a_repair(text: str, schema: dict[str, Any], value: Any) -> None:
    taken, repaired = read(text, schema)
    assert (taken, type(taken), repaired) == (value, type(value), False)


def test_bare_text_that_takes_its_type_is_not_a_repair_and_a_single_text_in_a_list_is_one() -> None:
    schema = {"properties": {"n": {"type": "integer"}, "l": {"type": "array"}}}
    assert not coerce_arguments({"n": "5", "l": "[1]"}, schema, as_text=True).repaired
    taken = coerce_arguments({"n": "5", "l": "red"}, schema, as_text=True)
    assert (taken.value, taken.repaired) == ({"n": 5, "l": ["red"]}, True)


def test_a_single_value_that_does_not_fit_the_items_is_refused_as_it_was_written() -> None:
    schema = {"properties": {"v": {"type": "array", "items": {"type": "integer"}}}}
    with pytest.raises(MismatchError, match="argument 'v' must be array of integer, such as \\[1, 2\\], not \"x\""):
        coerce_arguments({"v": "x"}, schema)


SMALL_MODELS: tuple[tuple[dict[str, Any], Any, Any], ...] = (
    ({"type": "string"}, 48213, "48213"),
    ({"type": "string"}, SourceFloat("1.10"), "1.10"),
    ({"type": "string"}, 12345678901234567890, "12345678901234567890"),
    ({"type": "string"}, ["one"], "one"),
    ({"type": "array", "items": {"type": "string"}}, 5, ["5"]),
    ({"enum": ["celsius", "fahrenheit"]}, "Celsius", "celsius"),
    ({"type": "string", "enum": ["A", "B"]}, " b", "B"),
    ({"type": "integer"}, "３", 3),
    ({"type": "number"}, "２．５", 2.5),
    ({"type": "boolean"}, "on", True),
    ({"type": "boolean"}, "いいえ", False),
    ({"type": "float"}, "2.5", 2.5),
    ({"type": "int"}, "7", 7),
)


@pytest.mark.parametrize(("schema", "given", "taken"), SMALL_MODELS)
def test_what_small_models_write_for_another_type_is_taken_and_reported_as_repaired(
    schema: dict[str, Any], given: Any, taken: Any
) -> None:
    reading = coerce_arguments({"v": given}, {"properties": {"v": schema}})
    assert (reading.value, reading.repaired) == ({"v": taken}, True)


def test_what_can_be_meant_in_several_ways_is_refused() -> None:
    for schema, given in (
        ({"type": "number"}, "80%"),
        ({"type": "integer"}, "３個"),
        ({"type": "string"}, ["a", "b"]),
        ({"enum": ["a", "A"]}, " a"),
        ({"type": "boolean"}, "maybe"),
    ):
        with pytest.raises(MismatchError):
            coerce_arguments({"v": given}, {"properties": {"v": schema}})


def test_text_in_tags_takes_python_s_words_and_is_repaired_only_if_it_changed() -> None:
    schema = {"properties": {"on": {"type": "boolean"}, "unit": {"enum": ["celsius"]}}}
    reading = coerce_arguments({"a": "True", "b": "None", "on": "true"}, schema, as_text=True)
    assert (reading.value, reading.repaired) == ({"a": True, "b": None, "on": True}, False)
    assert coerce_arguments({"on": "オン"}, schema, as_text=True).repaired
    assert coerce_arguments({"unit": "Celsius"}, schema, as_text=True).repaired


WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"town": "Kyoto"}, "argument 'town' does not exist; did you mean 'city'?"),
    ({"cty": "Kyoto", "x": 1}, "argument 'cty' does not exist; did you mean 'city'?"),
    ({}, "argument 'city' is missing"),
    ({"city": "Kyoto", "day": 3}, "argument 'day' does not exist; did you mean 'days'?"),
    ({"city": "Kyoto", "tags": {}}, 'argument \'tags\' must be array of string, such as ["a", "b"], not {}'),
    ({"city": "Kyoto", "range": 5}, "argument 'range' must be object with first: integer, last?: integer, not 5"),
)


@pytest.mark.parametrize(("given", "why"), WRONG)
def test_a_refusal_names_the_wrong_key_and_the_form_that_is_wanted(given: dict[str, Any], why: str) -> None:
    properties = {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "range": {
            "type": "object",
            "properties": {"first": {"type": "integer"}, "last": {"type": "integer"}},
            "required": ["first"],
        },
    }
    schema = {"type": "object", "properties": properties, "required": ["city"], "additionalProperties": False}
    with pytest.raises(MismatchError) as refused:
        coerce_arguments(given, schema)
    assert str(refused.value) == why
