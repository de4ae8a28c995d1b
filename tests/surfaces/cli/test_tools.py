from __future__ import annotations

import pytest

from rkllm_mcp.errors import UsageError
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.surfaces.cli.tools import read_arguments
from rkllm_mcp.surfaces.tables import tool_table, tool_text
from rkllm_mcp.surfaces.terminal import Terminal

SCHEMA = {
    "type": "object",
    "properties": {
        "location": {"type": "string", "description": "A place"},
        "days": {"type": "integer"},
        "unit": {"enum": ["C", "F"]},
        "any": True,
    },
    "required": ["location"],
}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {}),
        (['{"location": "東京"}'], {"location": "東京"}),
        (["location=8", "days=3", "any=[1]", "other=text"], {"location": "8", "days": 3, "any": [1], "other": "text"}),
        (["location=a=b"], {"location": "a=b"}),
    ],
)
def test_arguments_are_read_as_people_type_them(words: list[str], expected: dict[str, object]) -> None:
    assert read_arguments(words, SCHEMA) == expected


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["東京"], "'東京' has no '=' behind a name; write KEY=VALUE, or all of them as one JSON object in quotes"),
        (
            ["{a}"],
            "the arguments are not JSON: Expecting property name enclosed in double quotes at column 2; mend them",
        ),
    ],
)
def test_arguments_that_cannot_be_read_say_how_to_write_them(words: list[str], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_arguments(words, SCHEMA)
    assert str(caught.value) == sentence


def test_a_tool_is_shown_with_its_arguments() -> None:
    tool = ToolSpec("get_weather", "The weather.\nOf a place.", SCHEMA, "weather")
    assert tool_table([tool], Terminal()) == "NAME         SERVER   DESCRIPTION\nget_weather  weather  The weather.\n"
    assert tool_text(tool, Terminal()) == (
        "get_weather  (mcp__weather__get_weather)\n"
        "The weather.\nOf a place.\n\n"
        "location  string     required  A place\n"
        "days      integer\n"
        'unit      "C" | "F"\n'
        "any       any\n"
    )
    assert tool_text(ToolSpec("now"), Terminal()) == "now  (now)\n\n\nno arguments\n"
