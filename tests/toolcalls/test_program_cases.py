"""Texts that models really write (``shared/cases/programs``), whole, by character, and cut in every way."""

from __future__ import annotations

from typing import Any

import pytest

from rkllm_mcp.events import DetectorEvent, Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.messages import ToolSpec
from tests.support.program_cases import listed, program_rows
from tests.toolcalls.streams import events_of


def _fits(expected: dict[str, Any], events: list[DetectorEvent]) -> bool:
    """Return True if the events are those of one alternative of a case."""
    calls = [[event.name, event.arguments] for event in events if isinstance(event, ToolCallDetected)]
    failed = [event for event in events if isinstance(event, ToolCallFailed)]
    text = "".join(event.text for event in events if isinstance(event, Text)).strip()
    if calls != expected.get("calls", []) or len(failed) != expected.get("failed", 0):
        return False
    words = expected.get("reason_not_contains", ())
    if any(word in event.reason for word in words for event in failed):
        return False
    return text == expected.get("text", "")


@pytest.mark.parametrize("card", ["own", "none"])
def test_every_text_of_the_cases_gives_the_right_calls(card: str) -> None:
    failed: dict[str, list[DetectorEvent]] = {}
    for row in program_rows("detector.jsonl"):
        tools = [ToolSpec(tool["name"], "", tool["parameters"]) for tool in row["tools"]]
        events = events_of(row["text"], tools, [row["syntax"]] if card == "own" else None)
        if not any(_fits(expected, events) for expected in row["expect"]):
            failed[row["id"]] = events
    assert listed(failed) == ""


CITY = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
# ggml-org/llama.cpp#24807
CLOSED_TWICE = """<tool_call>
<function=get_weather>
<parameter=city>
{}
</parameter>
</parameter>
<parameter=days>
3
</parameter>
</parameter>
</function>
</tool_call>"""


@pytest.mark.parametrize("city", ["Oslo", "a\nb", "say </parameter> aloud"])
def test_a_closing_tag_that_is_written_twice_is_no_part_of_the_value(city: str) -> None:
    (call,) = events_of(CLOSED_TWICE.format(city), [ToolSpec("get_weather", "", CITY)], ["qwen3_xml"])
    assert isinstance(call, ToolCallDetected)
    assert call.arguments == {"city": city, "days": 3}


NOTE = [ToolSpec("write_note", "", {"type": "object", "properties": {"body": {"type": "string"}}})]


def _noted(body: str) -> str:
    written = f"<parameter=body>\n{body}\n</parameter>"
    return f"<tool_call>\n<function=write_note>\n{written}\n</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("written", "body"),
    [
        ("write <parameter=x>\nv\n</parameter>", "write <parameter=x>\nv\n</parameter>"),
        ('<parameter name="x">\n  v\n</parameter>', '<parameter name="x">\n  v\n</parameter>'),
        ("a\n<parameter>\n</parameter>", "a\n<parameter>\n</parameter>"),
        # A file that ends with a line break has an empty line before the closing tag.
        ("a\nb\n</parameter>\n", "a\nb\n</parameter>\n"),
        ("a\r\nb\r\n</parameter>\r\n", "a\r\nb\r\n</parameter>\r\n"),
        ("a\n</parameter>", "a"),
    ],
)
def test_a_closing_tag_that_belongs_to_the_value_is_a_part_of_it(written: str, body: str) -> None:
    (call,) = events_of(_noted(written), NOTE, ["qwen3_xml"])
    assert isinstance(call, ToolCallDetected)
    assert call.arguments == {"body": body}


def test_a_file_whose_last_line_may_be_a_closing_tag_is_not_written_shorter() -> None:
    (call,) = events_of(_noted("a\nb\n</parameter>"), NOTE, ["qwen3_xml"])
    assert isinstance(call, ToolCallFailed)
    assert call.reason.startswith(
        "'body' has </parameter> twice at its end; if one of them is a part of the value, "
        "write an empty line behind that one."
    )
