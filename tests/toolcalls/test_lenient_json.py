"""Broken JSON becomes the one value it can mean, or is refused."""

from __future__ import annotations

import contextlib
import json
import warnings
from typing import Any

import pytest

from rkllm_mcp.toolcalls.lenient_json import MAX_CHARACTERS, MAX_DEPTH, UnreadableError, read_value
from tests.support.processor_time import processor_time_limit

VALID: dict[str, Any] = {
    '{"a": [1, 2.5, true, null, "x"]}': {"a": [1, 2.5, True, None, "x"]},
    ' \n\ufeff{"a": 1}\n': {"a": 1},
    '```json\n{"a": 1}\n```': {"a": 1},
    '"text"': "text",
    '{"emoji": "\\ud83d\\ude00"}': {"emoji": "😀"},
    '{"half": "\\ud800"}': {"half": "\ufffd"},
}


@pytest.mark.parametrize(("text", "value"), VALID.items())
def test_valid_json_is_read_without_repair(text: str, value: Any) -> None:
    reading = read_value(text)
    assert (reading.value, reading.repaired, reading.guessed) == (value, False, False)


CERTAIN: dict[str, Any] = {
    '{"a": "x\ny\tz"}': {"a": "x\ny\tz"},
    '{"re": "\\d+\\."}': {"re": "\\d+\\."},
    '{"path": "C:\\Users\\sue"}': {"path": "C:\\Users\\sue"},
    '{"re": "\\d", "text": "a\\nb"}': {"re": "\\d", "text": "a\nb"},
    "{'a': 'it\\'s', 'b': True, 'c': None, 'd': (1, 2),}": {"a": "it's", "b": True, "c": None, "d": [1, 2]},
    '{"a": {"b": [1': {"a": {"b": [1]}},
    '{{"a": {"b": 1}}}': {"a": {"b": 1}},
    '{"a": {"b": "x}}': {"a": {"b": "x"}},
    '{"a": .5}': {"a": 0.5},
}


@pytest.mark.parametrize(("text", "value"), CERTAIN.items())
def test_what_can_be_meant_in_one_way_only_is_repaired(text: str, value: Any) -> None:
    reading = read_value(text)
    assert (reading.value, reading.repaired, reading.guessed) == (value, True, False)


GUESSED: dict[str, Any] = {
    '{"a": "say "hi" now"}': {"a": 'say "hi" now'},
    "{a: 1, b: true,}": {"a": 1, "b": True},
    "{“a”: “b”}": {"a": "b"},
    '{"a": 1 "b": 2}': {"a": 1, "b": 2},
    '{"name: "f"}': {"name": "f"},
    '{"a": [1, 2}': {"a": [1, 2]},
    '{"city": Tokyo}': {"city": "Tokyo"},
}


@pytest.mark.parametrize(("text", "value"), GUESSED.items())
def test_a_guess_that_keeps_every_word_is_taken_and_marked(text: str, value: Any) -> None:
    reading = read_value(text)
    assert (reading.value, reading.repaired, reading.guessed) == (value, True, True)


REFUSED = (
    "",
    "prose",
    "{invalid json}",
    '{"a":}',
    '{"a": "b", "c":',
    '{"a": 1e999}',
    '{"path": "C:\\Users\\new"}',
    '{"re": "\\d+\\n"}',
    '{"a": "echo ""x"" y"}',
    '{"a": """x"""}',
    "{\"a\": 'it's'}",
    '{"a": New York, NY}',
    '{"a": test2"}',
    '{"a": 1,, "b": 2}',
    '{"a": 1} {"b": 2}',
    "{1, 2}",
    '{"a": {"b", {}}}',
    "[" * 5000,
    "[" * 5000 + "]" * 5000,
    '{"a": ' + "9" * 5000 + " x}",
    '{"a": "\\',
    "{" + "-" * 3000 + "}",
)


@pytest.mark.parametrize("text", REFUSED)
def test_what_could_be_meant_otherwise_or_not_at_all_is_refused(text: str) -> None:
    with pytest.raises(UnreadableError):
        read_value(text)


def test_values_may_be_nested_as_deep_as_allowed_and_no_deeper() -> None:
    fits = "[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH
    assert json.dumps(read_value(fits).value) == fits
    with pytest.raises(UnreadableError, match="nested deeper than 64"):
        read_value(f"[{fits}]")


@pytest.mark.parametrize("part", ["{", "{ ", "{'", "{a:'b", '{"a":', "[", '"', "```"])
def test_brackets_that_nothing_closes_are_refused_at_once(part: str) -> None:
    with processor_time_limit(30), pytest.raises(UnreadableError):
        read_value(part * (MAX_CHARACTERS // len(part)))


@pytest.mark.parametrize("text", ["{'a': '\\d'}", "{'a': '\\400'}", "{'a': 1if 1else 2}", "{'a': 0xfor 1}"])
def test_no_reading_makes_python_complain_on_stderr(text: str) -> None:
    with warnings.catch_warnings(record=True) as seen, contextlib.suppress(UnreadableError):
        warnings.simplefilter("always")
        read_value(text)
    assert seen == []
