"""Texts that models really write (``shared/cases/programs``), whole, by character, and cut in every way."""

from __future__ import annotations

from typing import Any

import pytest

from rkllm_mcp.events import DetectorEvent, Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.messages import ToolSpec
from tests.support.program_cases import SETS, listed, program_rows
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


@pytest.mark.parametrize("cases", SETS)
@pytest.mark.parametrize("card", ["own", "none"])
def test_every_text_of_the_cases_gives_the_right_calls(card: str, cases: str) -> None:
    failed: dict[str, list[DetectorEvent]] = {}
    for row in program_rows("detector.jsonl", cases):
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
def test_a_closing_tag_that_is_written_twice_is_not_part_of_the_value(city: str) -> None:
    (call,) = events_of(CLOSED_TWICE.format(city), [ToolSpec("get_weather", "", CITY)], ["qwen3_xml"])
    assert isinstance(call, ToolCallDetected)
    assert call.arguments == {"city": city, "days": 3}


_READ = {"type": "object", "properties": {"path": {"type": "string"}, "text": {"type": "string"}}, "required": ["path"]}
TOOLS = [
    ToolSpec("read", "", _READ),
    ToolSpec("run", "", {"type": "object", "properties": {"value": {"type": "object"}}}),
    ToolSpec("now", "", {"type": "object", "properties": {}}),
]
READ = "<function=read>\n<parameter=path>\na.md\n</parameter>\n</function>"
INLINE = "<parameter={}>\n{}</parameter>\n</parameter>"
NEXT_BEHIND_VALUE = """<tool_call>
<function=read>
<parameter=path>
a.md</parameter>
<parameter=text>
x
</parameter>
</function>
</tool_call>"""
RUN = """<tool_call>
<function=run>
<parameter=value>{"ok":true}</parameter>
</function>
</tool_call>"""
A_MD = ("read", {"path": "a.md"})
# Report, what is written, the calls, a text, words of the reason of a failure.
REPORTS: list[tuple[str, str, list[tuple[str, Any]], str, str]] = [
    ("llama.cpp#24863", f"<tool_call>\n<function=read>\n{INLINE.format('path', 'a.md')}\n</function>", [A_MD], "", ""),
    (
        "llama.cpp#24863",
        f"<tool_call><function=read>{INLINE.format('path', 'a.md')}{INLINE.format('text', 'x')}</function></tool_call>",
        [("read", {"path": "a.md", "text": "x"})],
        "",
        "",
    ),
    (
        "llama.cpp#26763",
        f"{NEXT_BEHIND_VALUE}\n<tool_call>\n<function=now></function></tool_call>",
        [("read", {"path": "a.md", "text": "x"}), ("now", {})],
        "",
        "",
    ),
    ("QwenLM/Qwen3.8#178", f"<tool_call>\n{READ}\n</function>\n</function_invocation>\n</tool_call>", [A_MD], "", ""),
    ("QwenLM/Qwen3.8#178", f"<tool_call>\n{READ}\n</tool_call>\n</function_invocation>\nDone.", [A_MD], "Done.", ""),
    ("ollama#16686", f"{READ}\n</tool_call>", [A_MD], "", ""),
    (
        "ollama PR 16398",
        f"A call such as `<function=read>`:\n```\n{READ}\n```",
        [],
        f"A call such as `<function=read>`:\n```\n{READ}\n```",
        "",
    ),
    (
        "ninfer#158",
        f"{RUN}\n<tool_call>\n{READ.replace('read', 'rid')}\n</tool_call>",
        [("run", {"value": {"ok": True}})],
        "",
        "unknown tool 'rid'",
    ),
    (
        "vllm-mlx PR 583",
        f'<tool_call>\n{{"name": "now", "arguments": {{}}}}\n</tool_call>\n{READ}',
        [("now", {}), A_MD],
        "",
        "",
    ),
    ("vllm-mlx PR 583", "See.\n<tool_call>\n<function=read>\n<parameter=path>\na.", [], "See.", "cut off"),
    (
        "maclocal-api#141",
        '<tool_call>\n{"name="read", "arguments": {"path": "a.md"}}\n</tool_call>',
        [],
        "",
        "not closed",
    ),
    ("dynamo PR 10722", '<tool_call>\n{"name": "now"}\n</tool_call>', [("now", {})], "", ""),
    ("dynamo PR 10722", "It is noon.</tool_call>", [], "It is noon.", ""),
    ("frontend-crates PR 60", "It is noon.[/TOOL_CALLS]", [], "It is noon.", ""),
]


@pytest.mark.parametrize("card", ["own", "none"])
@pytest.mark.parametrize(("report", "written", "calls", "text", "reason"), REPORTS)
def test_the_text_of_a_report_gives_its_calls(
    card: str, report: str, written: str, calls: list[tuple[str, Any]], text: str, reason: str
) -> None:
    events = events_of(written, TOOLS, ["qwen3_xml"] if card == "own" else None)
    assert [(event.name, event.arguments) for event in events if isinstance(event, ToolCallDetected)] == calls, report
    assert "".join(event.text for event in events if isinstance(event, Text)).strip() == text
    failed = [event.reason for event in events if isinstance(event, ToolCallFailed)]
    assert [reason in each for each in failed] == [True] * bool(reason)


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
        ("a</parameter>", "a"),
    ],
)
def test_a_closing_tag_that_belongs_to_the_value_is_a_part_of_it(written: str, body: str) -> None:
    (call,) = events_of(_noted(written), NOTE, ["qwen3_xml"])
    assert isinstance(call, ToolCallDetected)
    assert call.arguments == {"body": body}


@pytest.mark.parametrize("written", ["a\nb\n</parameter>", "a\nb</parameter>", "</parameter>"])
def test_a_file_whose_last_line_may_be_a_closing_tag_is_not_written_shorter(written: str) -> None:
    (call,) = events_of(_noted(written), NOTE, ["qwen3_xml"])
    assert isinstance(call, ToolCallFailed)
    assert call.reason.startswith(
        "'body' has </parameter> twice at its end; if one of them is a part of the value, "
        "write an empty line behind that one."
    )


@pytest.mark.parametrize(("syntax", "call"), [("hermes", "<tool_call>\n{}\n</tool_call>"), (None, "{}")])
def test_an_invisible_character_before_a_call_is_white_space(syntax: str | None, call: str) -> None:
    text = "\u200b" + call.replace("{}", '{"name": "get_weather", "arguments": {"city": "Oslo"}}')
    events = events_of(text, [ToolSpec("get_weather", "", CITY)], [syntax] if syntax else None)
    assert [getattr(event, "arguments", event) for event in events] == [{"city": "Oslo"}]


@pytest.mark.parametrize(
    "value",
    [
        "Hello, world and more",
        'He said "hi", then left',
        '"hi", he said',
        "<b>bold</b>, <i>it</i>",
        "a {b} c",
        "3 apples, 4 pears",
        "see http://a.example, https://b.example",
    ],
)
def test_a_value_without_quotes_in_gemmas_braces_holds_commas_quotes_and_markup(value: str) -> None:
    text = f"<|tool_call>call:get_weather{{city:{value},days:3}}<tool_call|>"
    (call,) = events_of(text, [ToolSpec("get_weather", "", CITY)], ["gemma4"])
    assert isinstance(call, ToolCallDetected)
    assert call.arguments == {"city": value, "days": 3}
