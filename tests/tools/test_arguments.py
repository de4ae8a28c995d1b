"""Arguments take the types of their schema, or are refused in words."""

from __future__ import annotations

from typing import Any

import pytest

from rkllm_mcp.tools.arguments import ArgumentError, checked

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

TAKEN: list[tuple[dict[str, Any], dict[str, Any]]] = [
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


@pytest.mark.parametrize(("given", "taken"), TAKEN)
def test_a_value_takes_the_type_that_is_wanted(given: dict[str, Any], taken: dict[str, Any]) -> None:
    assert checked(given, SCHEMA) == taken


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"i": "many"}, "The argument 'i' must be integer, not \"many\"."),
    ({"i": 1.5}, "The argument 'i' must be integer, not 1.5."),
    ({"i": True}, "The argument 'i' must be integer, not true."),
    ({"f": "1e999"}, "The argument 'f' must be number, not \"1e999\"."),
    ({"o": {}}, "The argument 'o.n' is missing."),
    ({"l": ["x"]}, "The argument 'l[0]' must be integer, not \"x\"."),
    ({"o": "x" * 100}, f"The argument 'o' must be object, not \"{'x' * 58}…."),
]


@pytest.mark.parametrize(("given", "sentence"), REFUSED)
def test_a_value_of_another_type_is_refused_in_one_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        checked(given, SCHEMA)
    assert str(caught.value) == sentence
