"""Forms: fields from a schema, values from what was typed, sentences about what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from rkllm_mcp.elicitation import FieldChoice, FormField, complete_content, field_problems, fields_of

SIZES = [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "description": "As written.", "minLength": 2, "maxLength": 5},
        "age": {"type": "integer", "minimum": 0, "maximum": 150, "default": 30},
        "score": {"type": "number", "default": 9.5},
        "sure": {"type": "boolean", "default": False},
        "size": {"type": "string", "oneOf": SIZES, "default": "s"},
        "old": {"type": "string", "enum": ["a", "b"], "enumNames": ["Ah", "Be"]},
        "many": {"type": "array", "items": {"anyOf": SIZES}, "minItems": 1, "maxItems": 2},
        "deep": {"type": "object"},
    },
    "required": ["name"],
}


def field(name: str, schema: dict[str, Any] | None = None) -> FormField:
    return next(field for field in fields_of(schema or SCHEMA) if field.name == name)


def test_a_schema_becomes_fields_in_its_order() -> None:
    fields = fields_of(SCHEMA)
    assert [field.kind for field in fields] == [
        "text",
        "integer",
        "number",
        "boolean",
        "choice",
        "choice",
        "choices",
        "json",
    ]
    name, age, *_ = fields
    assert (name.title, name.description, name.required, name.default) == ("Your name", "As written.", True, None)
    assert (age.title, age.required, age.default) == ("age", False, 30)
    assert field("size").choices == field("many").choices == (FieldChoice("s", "Small"), FieldChoice("l", "Large"))
    assert field("old").choices == (FieldChoice("a", "Ah"), FieldChoice("b", "Be"))


@pytest.mark.parametrize("schema", [{}, {"properties": []}, {"properties": {"a": 1}}, {"required": 3}])
def test_a_schema_that_is_not_a_form_has_no_fields(schema: dict[str, Any]) -> None:
    assert fields_of(schema) == ()
    assert field_problems(schema, {}) == {}


@pytest.mark.parametrize(
    ("name", "typed", "value"),
    [
        ("name", " Ann", " Ann"),
        ("age", " 42 ", 42),
        ("score", "1e1", 10.0),
        ("score", "7", 7),
        ("sure", "はい", True),
        ("sure", "No", False),
        ("size", "large", "l"),
        ("size", "l", "l"),
        ("size", "2", "l"),
        ("old", "Be", "b"),
        ("many", "Small, 2", ["s", "l"]),
        ("deep", '{"a": 1}', {"a": 1}),
        ("deep", "words", "words"),
    ],
)
def test_typed_text_becomes_a_value(name: str, typed: str, value: Any) -> None:
    assert field(name).read(typed) == value


@pytest.mark.parametrize(
    ("name", "typed", "sentence"),
    [
        ("name", "A", "Your name: at least 2 characters"),
        ("name", "Annabel", "Your name: at most 5 characters"),
        ("age", "4.5", "age: '4.5' is not a whole number"),
        ("age", "-1", "age: at least 0"),
        ("age", "200", "age: at most 150"),
        ("score", "much", "score: 'much' is not a number"),
        ("score", "nan", "score: must be a number"),
        ("sure", "perhaps", "sure: answer yes or no"),
        ("size", "3", "size: choose one of Small, Large"),
        ("size", "9" * 5000, "size: choose one of Small, Large"),
        ("many", "", "many: choose at least 1"),
        ("many", "s,s,s", "many: choose at most 2"),
        ("many", "s, x", "many: choose one of Small, Large"),
    ],
)
def test_what_cannot_be_a_value_says_what_can(name: str, typed: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=rf"^{sentence}$"):
        field(name).read(typed)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("email", "a@b.jp", "a at b"),
        ("uri", "https://example.com", "example"),
        ("date", "2026-11-21", "21.11.2026"),
        ("date-time", "2026-11-21T09:30:00Z", "now"),
    ],
)
def test_formats_are_checked(name: str, good: str, bad: str) -> None:
    schema = {"properties": {"it": {"type": "string", "format": name}}}
    assert field_problems(schema, {"it": good}) == {}
    assert field_problems(schema, {"it": bad})["it"].startswith("it: must be a")


def test_an_omitted_field_gets_its_default_and_a_title_its_value() -> None:
    answer = complete_content(SCHEMA, {"name": "Ann", "age": None, "size": "Large", "many": ["Small"]})
    assert answer == {"name": "Ann", "age": 30, "score": 9.5, "sure": False, "size": "l", "many": ["s"]}
    assert field_problems(SCHEMA, answer) == {}


def test_every_field_that_is_wrong_is_named() -> None:
    content = {"age": "old", "sure": 1, "many": "s", "score": True, "more": 1}
    assert tuple(field_problems(SCHEMA, content).values()) == (
        "Your name: a value is required",
        "age: must be a number",
        "score: must be a number",
        "sure: must be true or false",
        "many: must be a list",
        "more: the form has no such field",
    )


def test_a_servers_regular_expression_is_not_run() -> None:
    schema = {"properties": {"it": {"type": "string", "pattern": "(a+)+$"}}}
    assert field_problems(schema, {"it": "a" * 64 + "!"}) == {}
