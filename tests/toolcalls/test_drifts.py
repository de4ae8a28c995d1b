"""What models really write: values that mention tags, other programs' wrappers, drifts that gateways repair."""

from __future__ import annotations

from itertools import product

import pytest

from rkllm_mcp.messages import ToolSpec
from tests.toolcalls.streams import TOOLS, told

OSLO = ("get_weather", {"city": "Oslo"})
JSON = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
WRITE = ToolSpec(
    "write_file",
    "",
    {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("path", "content", "mode")},
        "required": ["path", "content"],
    },
)

CALLS = {
    "invoke alone": '<invoke name="get_weather">\n<parameter name="city">Oslo</parameter>\n</invoke>',
    "invoke in another tag": (
        '<function_calls>\n<invoke name="get_weather"><parameter name="city">Oslo</parameter></invoke>\n'
        "</function_calls>"
    ),
    "OpenAI's list around it": f'{{"tool_calls": [{JSON}]}}',
    "OpenAI's list with functions": (
        '{"tool_calls": [{"id": "a", "type": "function", "function": '
        '{"name": "get_weather", "arguments": "{\\"city\\": \\"Oslo\\"}"}}]}'
    ),
    "one call around it": f'{{"tool_call": {JSON}}}',
    "a wrapper inside the tag": f'<tool_call>\n{{"tool_call": {JSON}}}\n</tool_call>',
    "equals signs": '<tool_call>{"name"="get_weather", "arguments"={"city"="Oslo"}}</tool_call>',
    "a dot before the arguments": '<tool_call>{"name": "get_weather", "arguments".{"city": "Oslo"}}</tool_call>',
    "line breaks as escapes": f"<tool_call>\\n{JSON}\\n</tool_call>",
    "OpenAI's namespace": '<tool_call>{"name": "functions.get_weather", "arguments": {"city": "Oslo"}}</tool_call>',
    "the namespace without a tag": '{"name": "functions.get_weather", "arguments": {"city": "Oslo"}}',
    "a name behind a colon": '[tool_call: get_weather {"city": "Oslo"}]',
    "a name behind a capital word and a colon": '[FunctionCall: get_weather\n{"city": "Oslo"}]',
    "a fence called function_call": f"```function_call\n{JSON}\n```",
    "parentheses with colons": '<|tool_call>call:get_weather(city: "Oslo")<tool_call|>',
    "parentheses with equals signs": '<|tool_call>call:get_weather(city="Oslo")<tool_call|>',
}


@pytest.mark.parametrize("text", CALLS.values(), ids=CALLS.keys())
def test_a_drift_is_a_call(text: str) -> None:
    assert told(text) == [OSLO]


def test_a_name_after_a_colon_is_a_call_only_with_arguments_of_a_declared_tool() -> None:
    lists = '[tool_call: anything {"days": [1, 2]}]'
    assert told(f"I look.\n{lists}\n{lists} Done.") == ["I look.\n", *2 * [("anything", {"days": [1, 2]})], " Done."]
    for text in (
        "[tool_call: get_weather] is how.",
        '[tool_call: nobody {"city": "Oslo"}]',
        "`[tool_call: get_time {}]`",
    ):
        assert told(text) == [text]


STYLES = {
    "qwen3_xml": "<tool_call>\n<function=write_file>\n<parameter=path>\na.md\n</parameter>\n<parameter=content>\n{}\n"
    "</parameter>\n</function>\n</tool_call>",
    "project_xml": '<tool_call name="write_file"><argument name="path">a.md</argument><argument name="content">\n{}\n'
    "</argument></tool_call>",
    "minimax_m2": '<minimax:tool_call><invoke name="write_file"><parameter name="path">a.md</parameter>\n'
    '<parameter name="content">\n{}\n</parameter></invoke></minimax:tool_call>',
    "glm4_xml": "<tool_call>write_file\n<arg_key>path</arg_key>\n<arg_value>a.md</arg_value>\n"
    "<arg_key>content</arg_key>\n"
    "<arg_value>\n{}\n</arg_value>\n</tool_call>",
}
OPENERS = {
    "qwen3_xml": "<parameter={}>",
    "project_xml": '<argument name="{}">',
    "minimax_m2": '<parameter name="{}">',
    "glm4_xml": "<arg_key>{}</arg_key>",
}


@pytest.mark.parametrize("syntax", STYLES)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *product(["city", "path", "mode"], ["Use `{}` here.\nMore.", "write {} first"]),
        # At the beginning of a line a declared name is an argument whose end the model left out.
        *product(["city", "path"], ["{}\nfirst", "first\n{}\nthen"]),
    ],
)
def test_a_value_that_mentions_an_argument_is_whole_or_the_call_fails(syntax: str, name: str, value: str) -> None:
    content = value.format(OPENERS[syntax].format(name))
    (event,) = told(STYLES[syntax].format(content), tools=[WRITE], syntaxes=[syntax])
    assert isinstance(event, tuple)
    assert event[0] == "failed" or event == ("write_file", {"path": "a.md", "content": content})


CLOSERS = {
    "It is fine.\n</tool_call>": ["It is fine.\n"],
    "It is fine.</function>\n</tool_call>": ["It is fine."],
    "</tool_call>\nIt is fine.": ["It is fine."],
    "One.\n[END_TOOL_CALL]\nTwo.": ["One.\nTwo."],
    "The tag </tool_call> ends a call.": ["The tag </tool_call> ends a call."],
    "It ends with `</tool_call>`": ["It ends with `</tool_call>`"],
    "```\n</tool_call>\n```": ["```\n</tool_call>\n```"],
    "<tool_call>\n</tool_call>": ["<tool_call>\n</tool_call>"],
}


@pytest.mark.parametrize(("text", "shown"), CLOSERS.items())
def test_a_closer_without_a_call_is_dropped_where_it_is_not_a_word_of_a_sentence(
    text: str, shown: list[object]
) -> None:
    assert told(text, tools=TOOLS) == shown
