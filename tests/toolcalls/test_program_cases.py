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
