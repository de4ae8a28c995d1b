"""What served earlier requests, for the choice of tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkllm_mcp.messages import ToolCall, ToolResult, ToolSpec
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.records import CallRecord
from rkllm_mcp.store import open_store
from rkllm_mcp.tools.execution import call_record

pytestmark = pytest.mark.anyio


def call(tool: str, request: str, *, is_error: bool = False) -> CallRecord:
    return CallRecord(1.0, "s", tool, "{}", "free", is_error, request=request)


async def test_tools_that_worked_for_a_request_are_listed_newest_first_and_once(tmp_path: Path) -> None:
    calls = [
        call("a", "Weather?"),
        call("b", "Time?"),
        call("c", "Broken?", is_error=True),
        call("d", ""),
        call("a", "Weather?"),
    ]
    async with open_store(path=tmp_path / "state.db") as memory:
        for one in calls:
            memory.calls.record(one)
        assert await memory.calls.list_served(10) == [("Weather?", "mcp__s__a"), ("Time?", "mcp__s__b")]
        assert await memory.calls.list_served(1) == [("Weather?", "mcp__s__a")]


async def test_what_cannot_be_read_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"not a database" * 100)
    async with open_store(path=tmp_path / "state.db") as memory:
        assert await memory.calls.list_served(10) == []


def test_a_record_says_which_words_it_served_without_their_secrets() -> None:
    context = CallContext(tokens={"desk": "tok-very-secret-1"}, request="Use tok-very-secret-1 and call it")
    record = call_record(
        ToolSpec("t", server="s"), ToolCall("1", "t", {}), context, ToolResult("1", "t", "fine"), at=1.0
    )
    assert record.request == "Use [REDACTED] and call it"
