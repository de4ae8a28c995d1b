"""Other projects' test inputs, scored whole, by character and at every split.

Rows whose expectation is another policy than ours are listed with the reason; the list is exact in both directions, so
a row that starts to pass, or stops, fails the test. Rows that declare no tools but expect calls are run with tools of
these names and an open schema: without any, everything would be text.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from rkllm_mcp.events import Text, Thinking, ToolCallDetected
from rkllm_mcp.messages import ToolSpec
from tests.support.shared import shared_path
from tests.toolcalls.streams import events_of

OTHER_POLICY = {
    "d-xml-ollama-066": "the text null for a string is the text, as the schema says; Ollama makes every null a null",
    "d-xml-ollama-067": "NULL is no integer and the schema allows no null; Ollama makes every null a null",
    "d-xml-smg-052": "a value without a schema stays text (vLLM, SGLang, llama.cpp, Ollama); smg infers a number",
    "d-xml-smg-059": "one line break on each side is framing, other white space is the value's; smg trims it",
    "d-xml-smg-067": "one line break on each side is framing, other white space is the value's; smg trims it",
    "d-xml-smg-068": "the project's style is XML, so a value written in entities is decoded; smg keeps them",
    "d-xml-smg-069": "the project's style is XML, so a value written in entities is decoded; smg keeps them",
    "d-xml-smg-071": "entities are decoded, and a value without a schema stays text; smg keeps them and infers JSON",
}
OTHER_TEXT = dict.fromkeys(
    ("smg-004", "smg-009", "d-json-smg-004", "d-json-smg-009"),
    "text behind and between calls is kept; the peer drops it",
)
OTHER_THINKING = {"d-xml-llama.cpp-028": "the thinking is empty; the peer shows the tag itself as thinking"}

FILES = {
    "toolcalls.jsonl": ("hermes", "granite4_hermes"),
    "toolcalls_project_styles.jsonl": ("project_json", "project_xml"),
}


def _rows(file: str) -> list[dict[str, Any]]:
    lines = shared_path("cases", file).read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["format"] in FILES[file]]


def _tools(row: dict[str, Any]) -> list[ToolSpec]:
    schemas: dict[str, Any] = {tool["name"]: tool["parameters"] for tool in row["tools"]}
    if not schemas:
        schemas = {call["name"]: {} for call in row["expected"]}
    return [ToolSpec(name, "", schema or {}) for name, schema in schemas.items()]


@pytest.mark.parametrize("file", FILES)
def test_calls_text_and_thinking_of_the_peers_cases_are_as_expected_but_for_the_listed_rows(file: str) -> None:
    rows = _rows(file)
    wrong: dict[str, set[str]] = {"calls": set(), "text": set(), "thinking": set()}
    for row in rows:
        mode = "open" if row.get("starts_in_thinking") else "auto"
        events = events_of(row["text"], _tools(row), thinking=mode)
        calls = [{"name": e.name, "arguments": e.arguments} for e in events if isinstance(e, ToolCallDetected)]
        text = "".join(event.text for event in events if isinstance(event, Text))
        thinking = "".join(event.text for event in events if isinstance(event, Thinking))
        if calls != row["expected"]:
            wrong["calls"].add(row["id"])
        # Peers trim the edges of text in different ways; the words have to be the same.
        if row["expected_content"] is not None and text.strip() != row["expected_content"].strip():
            wrong["text"].add(row["id"])
        if row.get("expected_thinking") is not None and thinking.strip() != row["expected_thinking"].strip():
            wrong["thinking"].add(row["id"])
    ids = {row["id"] for row in rows}
    assert len(rows) >= 60
    assert wrong == {
        "calls": ids & set(OTHER_POLICY),
        "text": ids & set(OTHER_TEXT),
        "thinking": ids & set(OTHER_THINKING),
    }


def test_rows_of_other_formats_with_markers_and_no_call_give_no_call() -> None:
    lines = shared_path("cases", "toolcalls.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if "marker_but_no_call" in row["tags"]]
    assert len(rows) >= 20
    for row in rows:
        tools = [*_tools(row), ToolSpec("func", "", {})]
        assert not [event for event in events_of(row["text"], tools) if isinstance(event, ToolCallDetected)], row["id"]
