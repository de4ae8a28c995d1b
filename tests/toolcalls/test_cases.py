"""Other projects' test inputs, scored whole, by character, by token, and split in two.

Every row is run with the syntax of its format and, once more, as from a model nobody described. Rows whose expectation
is another policy than ours are listed with the reason in ``docs/toolcalls.md``; its tables are exact in both
directions, so a row that starts to pass, or stops, fails the test.

A row is run with the tools it declares; those it expects calls of and does not declare are declared with an open
schema, because peers pass undeclared names on and we do not. Rows that expect no call and declare no tool have none.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from rkllm_mcp.events import DetectorEvent, Text, Thinking, ToolCallDetected
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.toolcalls.detector import Detector
from rkllm_mcp.toolcalls.formats import SYNTAXES
from tests.support.shared import REPOSITORY, shared_path
from tests.toolcalls.streams import events_of, merged, pieces_of

Row = dict[str, Any]
DOCS = REPOSITORY / "docs" / "toolcalls.md"
PROJECT = ("project_json", "project_xml")
WANTED_SHARE = 0.97


def _rows(file: str) -> list[Row]:
    lines = shared_path("cases", file).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _tools(row: Row) -> list[ToolSpec]:
    schemas: dict[str, Any] = {tool["name"]: tool["parameters"] for tool in row["tools"]}
    for call in row["expected"]:
        schemas.setdefault(call["name"], {})
    return [ToolSpec(name, "", schema or {}) for name, schema in schemas.items()]


def _syntaxes(row: Row) -> list[str] | None:
    return [row["format"]] if row["format"] in SYNTAXES else None


def _events(row: Row, syntaxes: list[str] | None) -> list[DetectorEvent]:
    mode = "open" if row.get("starts_in_thinking") else "auto"
    events = events_of(row["text"], _tools(row), syntaxes, mode)
    tokens = row.get("chunks") or re.findall(r"\s?\w{1,4}|\s|[^\s\w]", row["text"])
    by_token = pieces_of(tokens, _tools(row), syntaxes, mode)
    assert merged(event for piece in by_token for event in piece.events) == events
    return events


def _calls(events: Iterable[DetectorEvent]) -> list[dict[str, Any]]:
    return [{"name": e.name, "arguments": e.arguments} for e in events if isinstance(e, ToolCallDetected)]


def _text(events: Iterable[DetectorEvent], kind: type[Text] | type[Thinking]) -> str:
    # Peers trim the edges of text in different ways; the words have to be the same.
    return "".join(event.text for event in events if isinstance(event, kind)).strip()


def _listed(title: str) -> set[str]:
    """The first cells of the table under a heading of the document."""
    section = DOCS.read_text(encoding="utf-8").partition(f"### {title}\n")[2].partition("\n#")[0]
    return {cell for line in section.splitlines() for cell in re.findall(r"\A\| `([^`]+)` \|", line)}


@pytest.fixture(scope="module")
def outcomes() -> list[tuple[Row, list[DetectorEvent]]]:
    rows = _rows("toolcalls.jsonl") + _rows("toolcalls_project_styles.jsonl")
    return [(row, _events(row, _syntaxes(row))) for row in rows]


def test_every_format_of_the_cases_is_a_syntax(outcomes: list[tuple[Row, list[DetectorEvent]]]) -> None:
    assert {row["format"] for row, _ in outcomes} - set(SYNTAXES) <= {"none"}


def test_the_calls_of_the_cases_are_as_expected_but_for_the_rows_the_document_lists(
    outcomes: list[tuple[Row, list[DetectorEvent]]],
) -> None:
    wrong = {row["id"] for row, events in outcomes if _calls(events) != row["expected"]}
    rows = [row for row, _ in outcomes if row["format"] not in PROJECT]
    assert len(rows) >= 600
    assert wrong == _listed("Calls")
    # In the project's own formats nothing is read otherwise but what is decided for the peer's format as well.
    own = {row["id"] for row, _ in outcomes if row["format"] in PROJECT} & wrong
    assert {name.removeprefix("d-xml-") for name in own} <= wrong - own
    assert len(wrong) <= (1 - WANTED_SHARE) * len(rows)


def test_the_text_and_thinking_of_the_cases_are_as_expected_but_for_the_rows_the_document_lists(
    outcomes: list[tuple[Row, list[DetectorEvent]]],
) -> None:
    text = {
        row["id"]
        for row, events in outcomes
        if row["expected_content"] is not None and _text(events, Text) != row["expected_content"].strip()
    }
    thinking = {
        row["id"]
        for row, events in outcomes
        if row.get("expected_thinking") is not None and _text(events, Thinking) != row["expected_thinking"].strip()
    }
    assert text == _listed("Text")
    assert thinking == _listed("Thinking")


def test_the_document_tells_the_score_by_format(outcomes: list[tuple[Row, list[DetectorEvent]]]) -> None:
    total = Counter(row["format"] for row, _ in outcomes)
    calls = Counter(row["format"] for row, events in outcomes if _calls(events) == row["expected"])
    wanted = [(row, events) for row, events in outcomes if row["expected_content"] is not None]
    texts = Counter(row["format"] for row, _ in wanted)
    same = Counter(row["format"] for row, events in wanted if _text(events, Text) == row["expected_content"].strip())
    lines = [f"| `{name}` | {calls[name]} of {total[name]} | {same[name]} of {texts[name]} |" for name in sorted(total)]
    table = DOCS.read_text(encoding="utf-8")
    assert [line for line in lines if line not in table] == []


def test_an_undescribed_model_scores_as_well_but_for_bare_forms_in_the_middle_of_an_answer() -> None:
    wrong: set[str] = set()
    for row in _rows("toolcalls.jsonl"):
        mode = "open" if row.get("starts_in_thinking") else "auto"
        detector = Detector(_tools(row), None, mode)
        if _calls([*detector.feed(row["text"]), *detector.finish()]) != row["expected"]:
            wrong.add(row["id"])
    in_the_middle = {"sglang-025", "sglang-032", "vllm-089", "vllm-096", "vllm-256"}
    assert wrong == {name for name in _listed("Calls") if not name.startswith("d-")} | in_the_middle


def test_rows_with_markers_and_no_call_give_no_call_for_any_syntaxes() -> None:
    rows = [row for row in _rows("toolcalls.jsonl") if "marker_but_no_call" in row["tags"]]
    assert len(rows) >= 20
    for row in rows:
        # With a tool that is not one of the row's, so that its markers are looked at.
        tools = [*_tools(row), ToolSpec("some_other_tool", "", {})]
        for syntaxes in (None, list(SYNTAXES)):
            assert not _calls(events_of(row["text"], tools, syntaxes)), row["id"]
