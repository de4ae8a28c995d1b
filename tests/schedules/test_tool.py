"""``schedule`` as a tool of the model: on demand, and asked each time."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkllm_mcp.events import End, ToolFinished
from rkllm_mcp.generation import AnswerOptions, ApprovalMode
from tests.support.demo_app import make_demo, reply_of, running
from tests.support.served import scripted_model

pytestmark = pytest.mark.anyio
EXTRA = '[agent]\nschedule_tool = true\n[security]\napprove = "never"\n[service]\ntimezone = "Asia/Tokyo"\n'
CALL = 'schedule {"sentence": "SENTENCE"}'


@pytest.mark.parametrize(
    ("approvals", "sentence", "result", "rules"),
    [
        ("grant", "every weekday at 7:30 tell me the weather", "Scheduled: tell me the weather;", ["weekdays 07:30"]),
        ("refuse", "every weekday at 7:30 tell me the weather", "'schedule' was not run", []),
        ("grant", "tell me the weather", "There is no time in this sentence. Write when and what", []),
    ],
)
async def test_the_model_makes_a_schedule_with_approval_only(
    approvals: ApprovalMode, sentence: str, result: str, rules: list[str], tmp_path: Path
) -> None:
    script = f"rule\n  results 0\n  call {CALL.replace('SENTENCE', sentence)}\n\nrule\n  say Done.\n"
    demo = make_demo(tmp_path, (), path=scripted_model(tmp_path / "model", script), extra=EXTRA)
    async with running(demo, RKLLM_MCP_STATE=str(tmp_path / "state")) as app:
        events = await reply_of(app, "Every weekday the weather, please", options=AnswerOptions(approvals=approvals))
        assert events[-1] == End("answered")
        finished = [event.text for event in events if isinstance(event, ToolFinished)]
        assert finished[0].startswith(result)
        assert [schedule.rule for schedule in await app.store.schedules.all("")] == rules
