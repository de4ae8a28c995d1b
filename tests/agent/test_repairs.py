"""Repairs of the calls that small models write."""

from __future__ import annotations

from typing import Any

import pytest

from rkllm_mcp.agent.repairs import known_arguments, required_arguments, usable_arguments
from rkllm_mcp.messages import ToolSpec
from tests.support.scripted_toolbox import takes

SEARCH = ToolSpec(
    "search",
    input_schema={
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "words of the question"},
            "base": {"type": "string", "format": "uuid", "description": "the base"},
            "folder": {"type": "string", "description": "folder to search"},
        },
        "required": ["query"],
    },
)
BASE = "3f2b8c1e-9d4a-4c6b-8e7f-1a2b3c4d5e6f"


@pytest.mark.parametrize(
    ("written", "usable"),
    [
        ({"query": "hotel", "lang": "en"}, {"query": "hotel"}),
        ({"query": "hotel", "folder": "your_folder"}, {"query": "hotel"}),
        ({"query": "hotel", "folder": "<folder>"}, {"query": "hotel"}),
        ({"query": "hotel", "folder": "Folder to search"}, {"query": "hotel"}),
        ({"query": "hotel", "folder": None}, {"query": "hotel"}),
        ({"query": "hotel", "base": "default"}, {"query": "hotel"}),
        ({"query": "hotel", "base": BASE, "folder": "rules"}, {"query": "hotel", "base": BASE, "folder": "rules"}),
        ({"query": "words of the question"}, {"query": "words of the question"}),
        ({"city": "Paris"}, {"city": "Paris"}),
    ],
)
def test_a_call_is_run_without_undeclared_keys_and_without_optional_values_that_are_none(
    written: dict[str, Any], usable: dict[str, Any]
) -> None:
    assert usable_arguments(written, SEARCH) == usable


def test_a_tool_that_takes_any_key_keeps_it() -> None:
    tool = ToolSpec("any", input_schema={**SEARCH.input_schema, "additionalProperties": True})
    assert usable_arguments({"query": "x", "lang": "en"}, tool) == {"query": "x", "lang": "en"}


def test_a_failed_call_is_repeated_without_what_is_optional_unless_a_person_said_it() -> None:
    written = {"query": "hotel", "folder": "rules"}
    assert required_arguments(written, SEARCH, "What may a hotel cost?") == {"query": "hotel"}
    assert required_arguments(written, SEARCH, "What do the rules say?") == written


@pytest.mark.parametrize(
    ("tool", "values", "known"),
    [
        (SEARCH, {}, {"query": "What is it?"}),
        (takes("read", path="string"), {"path": "plan.txt"}, {"path": "plan.txt"}),
        (takes("weather", location="string"), {}, None),
        (ToolSpec("clock"), {}, {}),
    ],
)
def test_the_question_gives_a_query_and_the_one_value_of_the_kind_that_is_required(
    tool: ToolSpec, values: dict[str, str], known: dict[str, str] | None
) -> None:
    assert known_arguments(tool, "What is it?", values) == known
