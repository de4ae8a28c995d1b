"""``rkllm-mcp schedules`` and the chat's ``/every``: made, listed, changed, and what they say."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.records import Schedule, ScheduleRun
from rkllm_mcp.schedules.runner import RunResult, ScheduleRunner
from rkllm_mcp.store import open_store
from rkllm_mcp.store.database import state_file
from tests.support.demo_app import make_demo
from tests.support.outcome import Command

MADE = """\
To be asked: tell me the weather
When: every weekday (Monday to Friday) at 7:30 (Europe/Berlin)
"""


@pytest.fixture
def typed(command: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """``rkllm-mcp schedules`` with a state of its own."""
    monkeypatch.setenv("RKLLM_MCP_STATE", str(Path.cwd() / "state"))
    return lambda *words: command("schedules", *words)


def add(typed: Command, *words: str) -> str:
    made = typed("add", "--yes", "--zone", "Europe/Berlin", *words)
    assert made.code == 0, made.err
    found = re.search(r"Schedule (\w+) is saved", made.err)
    assert found is not None, made.err
    return found[1]


async def run_all() -> None:
    """What the service does with the runs that wait."""

    async def perform(schedule: Schedule, run: ScheduleRun) -> RunResult:
        return RunResult("answered", f"About {schedule.prompt}: sunny.")

    async with open_store(path=state_file(os.environ), required=True) as store:
        runner = ScheduleRunner(store.schedules, "", perform)
        await runner.look()
        await runner.work()


def test_a_sentence_is_shown_as_a_rule_saved_listed_run_and_removed(typed: Command) -> None:
    assert typed("list").err == "There are no schedules; 'rkllm-mcp schedules add' makes one.\n"
    made = typed("add", "--yes", "--zone", "Europe/Berlin", "every weekday at 7:30 tell me the weather")
    assert made.err.startswith(MADE)
    assert "they run while the service does; 'rkllm-mcp serve' starts it" in made.err
    listed = json.loads(typed("list", "--json").out)
    assert [(each["prompt"], each["rule"], each["zone"]) for each in listed] == [
        ("tell me the weather", "weekdays 07:30", "Europe/Berlin")
    ]
    (name,) = (each["id"] for each in listed)
    assert typed("list").out.splitlines()[1].startswith("tell me the weather  every weekday (Monday to Friday) at 7:30")
    assert "runs as soon as nothing else is asked" in typed("run", name[:3]).err
    anyio.run(run_all)
    (run,) = json.loads(typed("log", "--json").out)
    assert (run["outcome"], run["text"]) == ("answered", "About tell me the weather: sunny.")
    assert "is paused" in typed("pause", name).err
    assert "paused" in typed("list").out
    assert "runs again; next: " in typed("resume", name).err
    assert "is removed" in typed("remove", name).err
    assert typed("log").err == "No schedule has run yet.\n"


def test_a_rule_may_be_next_to_the_words_and_a_webhook_gets_a_secret(typed: Command) -> None:
    words = ("--rule", "monthly 31 18:00", "--webhook", "http://homeassistant.local:8123/api/webhook/x", "the bills")
    made = typed("add", "--yes", "--zone", "Asia/Tokyo", *words)
    assert "When: on the last day of every month at 18:00 (Asia/Tokyo)" in made.err
    assert re.search(r"The webhook's secret: [\w-]{32}\n", made.err)
    assert "http://homeassistant.local" in typed("list", "--json").out


def test_a_list_is_imported_again(typed: Command) -> None:
    add(typed, "every hour say the time")
    add(typed, "--quiet-runs", "every Monday and Thursday at 18:00 check the logs")
    Path("all.json").write_text(typed("list", "--json").out, "utf-8")
    assert len(typed("import", "all.json").out.splitlines()) == 2
    rules = [each["rule"] for each in json.loads(typed("list", "--json").out)]
    assert sorted(rules) == ["every 1h", "every 1h", "weekly mon,thu 18:00", "weekly mon,thu 18:00"]
    Path("none.json").write_text('{"a": 1}', "utf-8")
    assert "this is no export of schedules" in typed("import", "none.json").err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("tell me the weather",), "there is no time in 'tell me the weather'; write a sentence such as"),
        (("--rule", "0 7 * * *", "x"), "'0 7 * * *' is no rule of time; write one such as once 2026-12-01 15:00"),
        (("--rule", "once 2020-01-01 07:00", "x"), "is over already; choose a later time"),
        (("--zone", "Mars/Base", "every hour say the time"), "there is no time zone 'Mars/Base'"),
        (("--webhook", "ftp://x", "every hour say the time"), "is no address of a webhook"),
    ],
)
def test_what_cannot_be_a_schedule_is_refused_with_a_remedy(
    words: tuple[str, ...], problem: str, typed: Command
) -> None:
    refused = typed("add", "--yes", "--zone", "Asia/Tokyo", *words)
    assert (refused.code, problem in refused.err) == (2, True), refused.err


def test_the_chat_makes_lists_and_removes_schedules(tmp_path: Path) -> None:
    lines = [
        *("/every weekday at 7:30 tell me the weather", "/every 3時間後に洗濯物", "/every so often", "/schedules"),
        *("/schedules pause", "/schedules jump x", "/quit"),
    ]
    demo = make_demo(tmp_path, servers=(), extra='[service]\ntimezone = "Asia/Tokyo"\n')
    done = demo.run_here("chat", "--alone", stdin="\n".join(lines))
    assert done.returncode == 0
    for piece in (
        "When: every weekday (Monday to Friday) at 7:30 (Asia/Tokyo)",
        "Reminder: 洗濯物",
        "/every needs a sentence: /every weekday at 7:30 tell me the weather",
        "there is no schedule ''",
    ):
        assert piece in done.stderr
    assert "tell me the weather  every weekday (Monday to Friday) at 7:30" in done.stdout
