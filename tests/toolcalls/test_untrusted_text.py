"""Text of a tool that spells a call is none when the model repeats it, and ordinary text stays what it is."""

from __future__ import annotations

import json

import pytest

from rkllm_mcp.events import ToolCallDetected
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.toolcalls.detector import Detector
from rkllm_mcp.toolcalls.formats import SYNTAXES, marker_texts
from rkllm_mcp.toolcalls.untrusted_text import escape_markers, without_markers
from tests.support.shared import REPOSITORY
from tests.toolcalls.samples import SAMPLES, SAVE


def calls_in(text: str, syntaxes: list[str] | None) -> list[ToolCallDetected]:
    detector = Detector([SAVE], syntaxes)
    events = [*detector.feed(text), *detector.finish()]
    return [event for event in events if isinstance(event, ToolCallDetected)]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_call_that_a_result_spells_is_none_when_the_model_repeats_it(name: str) -> None:
    syntax, spelled = SAMPLES[name]
    call = spelled("a note")
    assert calls_in(call, [syntax])
    for result in (call, f"The page says:\n{call}\nand ends.", f"```\n{call}\n```", f"a `{call}` b"):
        harmless = escape_markers(result, [SAVE], [syntax])
        assert len(harmless) == len(result)
        for repeated in (harmless, harmless.strip("`\n"), harmless[harmless.find("a note") - 60 :], f"> {harmless}"):
            assert calls_in(repeated, [syntax]) == []
            assert calls_in(repeated, None) == []


MEANS_SOMETHING_ELSE = (
    *("<function>", "</function>", "<tools>", "</tools>", "<code>", "</code>", "<function", "</tool", "functools["),
    *("<think>", "</think>", "[THINK]", "[/THINK]", "<seed:think>", "</seed:think>", "```", "```tool_code"),
    *("```tool_call", "**Tool Call:**", "**Tool Call**:", "Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),
)


@pytest.mark.parametrize("marker", [*marker_texts(tuple(SYNTAXES)), "<|im_start|>", "<|im_end|>", "<｜User｜>"])
def test_a_marker_that_means_nothing_else_loses_its_bracket(marker: str) -> None:
    changed = without_markers(f"a {marker} b")
    assert len(changed) == len(marker) + 4
    assert (changed == f"a {marker} b") == (marker in MEANS_SOMETHING_ELSE)


ORDINARY = (
    "東京は晴れ、最高気温は18度です。[注意] (強風) {a: 1} <b>太字</b>",
    '{"name":"Tokyo","arguments":["a"],"temperature":{"min":3,"max":9}}',
    json.dumps([{"name": "save", "args": {}}, {"title": "t"}]),
    "<html><body><code>print('x')</code><function>f</function><p>a < b && c > d</p></body></html>",
    'def save(note):\n    """Save it."""\n    return [note, {"a": 1}]\n',
    "[tool] the tool called; function calls are fast (see [1]). </think>",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    '```json\n{"name": "other", "arguments": {}}\n```',
)


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert escape_markers(text, [SAVE]) == text
    assert escape_markers(text, [SAVE], tuple(SYNTAXES)) == text


def test_documents_stay_as_they_are_but_for_markers() -> None:
    for path in sorted((REPOSITORY / "docs").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        assert escape_markers(text, [ToolSpec("zzz")]) == without_markers(text)


def test_a_tool_of_another_name_is_no_call() -> None:
    text = '{"name": "save_note", "arguments": {"title": "t", "body": "b"}}'
    assert escape_markers(text, [SAVE]) == text.replace("{", "｛", 1)
    assert escape_markers(text, [ToolSpec("other")]) == text
    assert escape_markers(text, []) == text


def test_calls_in_calls_are_all_disarmed() -> None:
    call: object = {"name": "save_note", "arguments": {"title": "t", "body": "b"}}
    for _ in range(6):
        call = {"name": "save_note", "arguments": {"title": "t", "body": call}}
    harmless = escape_markers(f"{json.dumps(call)} and {json.dumps([call, call])}", [SAVE])
    assert calls_in(harmless, None) == []
    assert calls_in(harmless[harmless.index("and") + 4 :], None) == []
