"""Calls that servers run as tasks, as the extension of 2026-07-28 and as 2025-11-25 have them."""

from __future__ import annotations

import json

import anyio
import pytest

from rkllm_mcp.events import Approval, Elicitation
from rkllm_mcp.messages import ToolCall
from rkllm_mcp.protocols import CallContext, Decision, ElicitationAnswer
from rkllm_mcp.tools.toolbox import Toolbox
from tests.support.clock import standing_clock, turn
from tests.support.mcp_servers.calling import said, toolbox_with
from tests.support.mcp_servers.specs import asking

pytestmark = pytest.mark.anyio
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


class Owner:
    """Fills every form."""

    async def approve(self, question: Approval) -> Decision:
        return "once"

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        return ElicitationAnswer("accept", {"name": "Ann", "size": "s"})


@ERAS
@standing_clock
async def test_a_task_is_asked_after_until_it_has_its_result_and_its_state_is_progress(era: str) -> None:
    reports: list[tuple[float, float | None, str | None]] = []
    results: list[tuple[str, bool]] = []
    half_way = anyio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total, message))
        if message == "half way":
            half_way.set()

    async def call(toolbox: Toolbox) -> None:
        result = await toolbox.call(ToolCall("call_1", "long", {"kind": "done"}), CallContext(on_progress=note))
        results.append((result.text, result.is_error))

    # The task may take longer than a call.
    spec = asking("slow", era, timeout_s=30.0)
    async with toolbox_with(spec) as toolbox, anyio.create_task_group() as tasks:
        tasks.start_soon(call, toolbox)
        # Served in order: when this has its answer, the task has been asked after.
        await turn(0)
        await said(toolbox, "seen")
        await turn(15.0)
        await half_way.wait()
        for _ in range(2):
            await turn(15.0)
            await said(toolbox, "seen")
    assert results == [("It took a while.", False)]
    assert reports == [(1, None, "working"), (2, None, "half way"), (3, None, "completed")]


@ERAS
async def test_what_a_task_asks_is_asked_once_of_the_calls_owner(era: str) -> None:
    async with toolbox_with(asking("slow", era)) as toolbox:
        result = await toolbox.call(ToolCall("call_1", "long", {"kind": "asks"}), CallContext(asker=Owner()))
        assert (result.text, result.is_error) == ("It took a while.", False)
        (seen,) = (await said(toolbox, "seen"))[0].splitlines()
    assert json.loads(seen) == {"action": "accept", "content": {"name": "Ann", "size": "s", "count": 2}}


@ERAS
@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("fails", "The call failed: the disk is full (code -32603)."),
        ("is_cancelled", "the server has cancelled the task: the owner has left"),
    ],
)
async def test_a_task_that_comes_to_nothing_says_why(era: str, kind: str, sentence: str) -> None:
    async with toolbox_with(asking("slow", era)) as toolbox:
        assert await said(toolbox, "long", kind=kind) == (sentence, True)
        assert (await said(toolbox, "seen"))[0] == "(no output)"


@ERAS
async def test_a_task_that_does_not_end_is_cancelled_at_its_limit(era: str) -> None:
    async with toolbox_with(asking("slow", era, task_timeout_s=0.2)) as toolbox:
        text, is_error = await said(toolbox, "long", kind="never")
        assert text == "the task did not finish within 0.2 s and was cancelled; task_timeout_s allows more"
        assert is_error
        assert await said(toolbox, "seen") == ("cancelled task-never", False)


@ERAS
async def test_a_call_that_is_given_up_takes_its_task_with_it(era: str) -> None:
    at_work = anyio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        at_work.set()

    async def call(toolbox: Toolbox) -> None:
        await toolbox.call(ToolCall("call_1", "long", {"kind": "never"}), CallContext(on_progress=note))

    async with toolbox_with(asking("slow", era)) as toolbox:
        async with anyio.create_task_group() as callers:
            callers.start_soon(call, toolbox)
            await at_work.wait()
            callers.cancel_scope.cancel()
        assert await said(toolbox, "seen") == ("cancelled task-never", False)
