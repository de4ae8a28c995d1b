"""Schedules at their times: claimed once, late, missed, paused, and what a clock that is set does to them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.errors import RkllmMcpError, SchedulerClosedError, UsageError
from rkllm_mcp.events import Approval
from rkllm_mcp.protocols import FixedApprover
from rkllm_mcp.records import Schedule, ScheduleRun
from rkllm_mcp.schedules.rules import read_zone
from rkllm_mcp.schedules.runner import (
    RunResult,
    ScheduleRunner,
    find_schedule,
    new_schedule,
    notice_of,
    resume,
    schedule_of_sentence,
    upcoming,
    zone_here,
)
from rkllm_mcp.schedules.webhooks import Notice
from rkllm_mcp.store.database import open_database
from rkllm_mcp.store.schedules import Schedules

pytestmark = pytest.mark.anyio
HOUR, DAY = 3600.0, 86400.0


def at(wall: str, zone: str = "Asia/Tokyo") -> float:
    return datetime.fromisoformat(wall).replace(tzinfo=read_zone(zone)).timestamp()


@dataclass
class Board:
    """A board with a clock that the test sets, and what its model and its webhook have got."""

    path: Path
    clock: float = at("2026-11-27 07:00")  # a Friday
    steady: float = 0.0
    asked: list[str] = field(default_factory=list[str])
    sent: list[Notice] = field(default_factory=list[Notice])
    answers: list[RunResult | Exception] = field(default_factory=list[RunResult | Exception])

    @asynccontextmanager
    async def on(self, tenant: str = "") -> AsyncGenerator[tuple[Schedules, ScheduleRunner], None]:
        async with open_database(self.path, on_problem=pytest.fail, required=True) as database:
            schedules = Schedules(database, now=lambda _: self.clock)
            yield schedules, ScheduleRunner(schedules, tenant, self.perform, self.deliver, lambda: self.steady)

    async def perform(self, schedule: Schedule, run: ScheduleRun) -> RunResult:
        self.asked.append(schedule.prompt)
        answer = self.answers.pop(0) if self.answers else RunResult("answered", f"on {run.due:.0f}", "c1")
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def deliver(self, schedule: Schedule, run: ScheduleRun, notice: Notice) -> str:
        self.sent.append(notice)
        return "200"

    def schedule(self, rule: str = "weekdays 07:30", prompt: str = "the weather", **settings: object) -> Schedule:
        return replace(new_schedule(prompt, rule, "Asia/Tokyo", self.clock), **settings)  # pyright: ignore[reportArgumentType]

    async def pass_time(self, runner: ScheduleRunner, seconds: float, *, is_set: bool = False) -> None:
        """Let time pass, or set the clock."""
        self.clock += seconds
        self.steady += 1.0 if is_set else max(0.0, seconds)
        await runner.look()
        await runner.work()


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path / "state.db")


async def outcomes(schedules: Schedules, tenant: str = "") -> list[str]:
    return [run.outcome for run in reversed(await schedules.runs(tenant))]


async def test_every_weekday_is_asked_once_at_its_time(board: Board) -> None:
    async with board.on() as (schedules, runner):
        schedule = await schedules.add("", board.schedule())
        await board.pass_time(runner, 0)
        assert board.asked == []
        for _ in range(4 * 24):  # to Tuesday, hour by hour
            await board.pass_time(runner, HOUR)
        runs = await schedules.runs("")
        dues = [datetime.fromtimestamp(run.due, read_zone("Asia/Tokyo")).strftime("%a %H:%M") for run in runs]
        assert dues == ["Mon 07:30", "Fri 07:30"]
        assert board.asked == ["the weather"] * 2
        stored = await schedules.get("", schedule.id)
        assert stored is not None
        assert (stored.next_at, stored.conversation, stored.state) == (at("2026-12-01 07:30"), "c1", "active")


async def test_after_downtime_it_runs_once_and_says_that_it_is_late(board: Board) -> None:
    async with board.on() as (schedules, runner):
        schedule = await schedules.add("", board.schedule("every 1h"))
        # Off for five hours: one run, not five.
        await board.pass_time(runner, 5 * HOUR + 60)
        (run,) = await schedules.runs("")
        assert (run.due, run.outcome) == (board.clock - 4 * HOUR - 60, "answered")
        assert notice_of(schedule, run, "en").text.startswith("(Late: it was due Fri 2026-11-27 8:00, while the board")
        assert notice_of(schedule, run, "ja").text.startswith("(遅れて実行しました。予定は2026-11-27(金) 8:00でした")
        stored = await schedules.get("", schedule.id)
        assert stored is not None
        assert stored.next_at == at("2026-11-27 13:00")


async def test_what_is_more_than_half_a_day_late_is_reported_as_missed(board: Board) -> None:
    async with board.on() as (schedules, runner):
        schedule = await schedules.add("", board.schedule())
        await board.pass_time(runner, 14 * HOUR)
        (run,) = await schedules.runs("")
        assert (run.outcome, board.asked) == ("missed", [])
        assert "the board was off for more than 12 hours" in notice_of(schedule, run, "en").text
        await board.pass_time(runner, 3 * DAY)  # Monday 21:00
        assert await outcomes(schedules) == ["missed", "missed"]


async def test_a_reminder_is_a_notice_and_no_model_is_asked(board: Board) -> None:
    async with board.on() as (schedules, runner):
        said = schedule_of_sentence("3時間後に洗濯物", "Asia/Tokyo", board.clock)
        assert said is not None
        added = await schedules.add("", replace(said, webhook="http://x/"))
        await board.pass_time(runner, 3 * HOUR)
        (run,) = await schedules.runs("")
        assert (run.outcome, run.text, run.delivery, board.asked) == ("reminded", "洗濯物", "200", [])
        assert board.sent == [Notice("洗濯物", "洗濯物")]
        stored = await schedules.get("", added.id)
        assert stored is not None
        assert (stored.state, stored.next_at) == ("done", None)


async def test_a_clock_set_back_by_a_day_brings_the_next_moment_nearer(board: Board) -> None:
    async with board.on() as (schedules, runner):
        schedule = await schedules.add("", board.schedule("daily 07:30"))
        await board.pass_time(runner, HOUR)
        # The clock is a day ahead for a while, as one without a battery may be, and is set right again.
        await board.pass_time(runner, DAY, is_set=True)
        assert len(board.asked) == 2
        await board.pass_time(runner, -DAY, is_set=True)
        stored = await schedules.get("", schedule.id)
        assert stored is not None
        # The run of tomorrow was made too early, so tomorrow has one.
        assert stored.next_at == at("2026-11-28 07:30")
        await board.pass_time(runner, DAY)
        assert len(board.asked) == 3


async def test_a_clock_set_back_by_minutes_runs_nothing_twice(board: Board) -> None:
    async with board.on() as (schedules, runner):
        await schedules.add("", board.schedule("daily 07:30"))
        await board.pass_time(runner, 1900)
        await board.pass_time(runner, -300, is_set=True)
        await board.pass_time(runner, 600)
        assert len(board.asked) == 1


async def test_three_failures_in_a_row_pause_a_schedule_with_a_notice(board: Board) -> None:
    async with board.on() as (schedules, runner):
        schedule = await schedules.add("", board.schedule("every 1h"))
        board.answers = [
            RkllmMcpError("no model"),
            RunResult("answered", "ok"),
            *(RkllmMcpError("gone") for _ in range(3)),
        ]
        for _ in range(7):
            await board.pass_time(runner, HOUR)
        assert await outcomes(schedules) == ["failed", "answered", "failed", "failed", "failed", "paused"]
        stored = await schedules.get("", schedule.id)
        assert stored is not None
        assert (stored.state, stored.next_at) == ("paused", None)
        assert "Paused after 3 failures in a row" in notice_of(stored, (await schedules.runs(""))[0], "en").text
        assert await resume(schedules, "", stored) == board.clock + HOUR
        await board.pass_time(runner, HOUR)
        assert (await outcomes(schedules))[-1] == "answered"
        await schedules.change("", stored.id, state="paused", next_at=None)
        await board.pass_time(runner, 5 * HOUR)
        assert len(await outcomes(schedules)) == 7


async def test_a_quiet_schedule_shows_nothing_when_there_is_nothing_to_report(board: Board) -> None:
    async with board.on() as (schedules, runner):
        await schedules.add("", board.schedule("every 1h", is_quiet=True, webhook="http://x/"))
        texts = [
            "NOTHING",
            "なし。",
            "Nothing to report.",
            "特にありません",
            "No rain, but nothing else to report on wind",
        ]
        board.answers = [RunResult("answered", text) for text in texts]
        for _ in texts:
            await board.pass_time(runner, HOUR)
        assert await outcomes(schedules) == ["quiet"] * 4 + ["answered"]
        assert len(board.sent) == 1


async def test_a_run_that_has_not_begun_when_the_service_ends_is_taken_by_the_next_start(board: Board) -> None:
    async with board.on() as (schedules, runner):
        await schedules.add("", board.schedule("every 1h"))
        board.answers = [SchedulerClosedError()]
        await board.pass_time(runner, HOUR)
        assert await outcomes(schedules) == ["waiting"]
    async with board.on() as (schedules, runner):
        await board.pass_time(runner, 60)
        assert await outcomes(schedules) == ["answered"]


_CLAIM_AND_DIE = """
import anyio, os, signal, sys
from pathlib import Path
from rkllm_mcp.schedules.runner import moment_after
from rkllm_mcp.store.database import open_database
from rkllm_mcp.store.schedules import Schedules

async def main(path, now, is_taken):
    async with open_database(Path(path), on_problem=print, required=True) as database:
        schedules = Schedules(database, now=lambda _: now)
        assert await schedules.claim("", lambda schedule: moment_after(schedule, now), 43200.0) == 1
        if is_taken:
            (run,) = await schedules.waiting("")
            assert await schedules.take("", run.id)
        os.kill(os.getpid(), signal.SIGKILL)

anyio.run(main, sys.argv[1], float(sys.argv[2]), sys.argv[3] == "taken")
"""


@pytest.mark.parametrize(("where", "expected"), [("claimed", ["answered"]), ("taken", ["interrupted"])])
async def test_a_process_killed_between_claim_and_end_loses_no_run_and_doubles_none(
    where: str, expected: list[str], board: Board
) -> None:
    async with board.on() as (schedules, _):
        await schedules.add("", board.schedule("daily 07:30"))
    board.clock += HOUR
    command = [sys.executable, "-c", _CLAIM_AND_DIE, str(board.path), str(board.clock), where]
    killed = await anyio.run_process(command, check=False, stderr=subprocess.STDOUT)
    assert (killed.returncode, killed.stdout) == (-9, b"")
    for _ in range(2):
        async with board.on() as (schedules, runner):
            await board.pass_time(runner, 60)
            assert await outcomes(schedules) == expected
    assert len(board.asked) == expected.count("answered")


async def test_a_thousand_schedules_that_wait_cost_one_look_at_an_index(board: Board) -> None:
    async with board.on() as (schedules, runner):
        for number in range(20):
            await schedules.add("", board.schedule("daily 07:30", f"question {number}"))
        database = schedules.database
        copy = (
            "INSERT INTO schedules SELECT tenant, id || n, "
            "prompt, rule, zone, language, is_reminder, is_quiet, tools, webhook, webhook_form, secret, conversation, "
            "next_at, state, failures, created FROM schedules, "
            "(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 49) SELECT n FROM c)"
        )
        await database.ask(lambda transaction: transaction.execute(copy).rowcount)
        with pytest.raises(UsageError, match="there are 1000 schedules already"):
            await schedules.add("", board.schedule())
        await runner.look()
        query = "EXPLAIN QUERY PLAN SELECT MIN(next_at) FROM schedules WHERE tenant = '' AND state = 'active'"
        plans = [row[-1] for row in await database.rows(query)]
        assert any("schedules_by_time" in plan for plan in plans), plans
        await board.pass_time(runner, 60)
        assert board.asked == []


async def test_tenants_have_their_own_schedules_in_one_database(board: Board) -> None:
    async with board.on("kitchen") as (schedules, runner):
        mine = await schedules.add("kitchen", board.schedule("every 1h"))
        theirs = await schedules.add("garden", board.schedule("every 1h", "secret"))
        await board.pass_time(runner, HOUR)
        assert board.asked == ["the weather"]
        assert await schedules.all("kitchen") != await schedules.all("garden")
        assert await schedules.get("kitchen", theirs.id) is None
        assert not await schedules.remove("kitchen", theirs.id)
        assert not await schedules.request_run("kitchen", theirs.id)
        assert await outcomes(schedules, "garden") == []
        assert await schedules.remove("kitchen", mine.id)
        assert await schedules.runs("kitchen") == []


async def test_a_run_on_request_waits_once_and_leaves_the_times_alone(board: Board) -> None:
    async with board.on() as (schedules, runner):
        schedule = await schedules.add("", board.schedule())
        assert [await schedules.request_run("", schedule.id) for _ in range(2)] == [True, False]
        await board.pass_time(runner, 1)
        assert await outcomes(schedules) == ["answered"]
        stored = await schedules.get("", schedule.id)
        assert stored is not None
        assert stored.next_at == schedule.next_at


async def test_only_the_last_hundred_runs_are_kept(board: Board) -> None:
    async with board.on() as (schedules, runner):
        await schedules.add("", board.schedule("every 1m", is_reminder=True))
        for _ in range(103):
            await board.pass_time(runner, 60)
        assert len(await schedules.runs("", limit=500)) == 100


async def test_the_next_times_and_what_cannot_be_a_schedule(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = board.schedule()
    assert upcoming(schedule, board.clock, "en") == [
        "Fri 2026-11-27 7:30",
        "Mon 2026-11-30 7:30",
        "Tue 2026-12-01 7:30",
    ]
    assert upcoming(schedule, board.clock, "ja")[0] == "2026-11-27(金) 7:30"
    for prompt, rule, problem in [
        ("  ", "daily 07:30", "a schedule needs words"),
        ("a", "once 2020-01-01 07:30", "is over already; choose a later time"),
        ("a", "sometimes", "is no rule of time"),
    ]:
        with pytest.raises(UsageError, match=problem):
            new_schedule(prompt, rule, "Asia/Tokyo", board.clock)
    with pytest.raises(UsageError, match="is no address of a webhook"):
        new_schedule("a", "daily 07:30", "Asia/Tokyo", board.clock, webhook="file:///etc/passwd")
    async with board.on() as (schedules, _):
        first = await schedules.add("", replace(schedule, id="aa1"))
        await schedules.add("", replace(schedule, id="aa2"))
        assert (await find_schedule(schedules, "", "aa1")).id == first.id
        with pytest.raises(UsageError, match="several schedules begin with 'aa'"):
            await find_schedule(schedules, "", "aa")
        with pytest.raises(UsageError, match="there is no schedule 'zz'; 'rkllm-mcp schedules list'"):
            await find_schedule(schedules, "", "zz")
    monkeypatch.setattr("rkllm_mcp.schedules.runner._LOCALTIME", Path("/usr/share/zoneinfo/Etc/UTC"))
    assert zone_here("Europe/Berlin") == "Europe/Berlin"
    with pytest.raises(UsageError, match=r"no time zone but UTC; write timezone = 'Europe/Berlin' below"):
        zone_here(None)


async def test_nobody_allows_what_a_schedule_does_not_name() -> None:
    asker = FixedApprover("deny", allowed=frozenset({"send_mail"}))
    decisions = [await asker.approve(Approval("1", name, {}, "")) for name in ("send_mail", "rm", "rm")]
    assert decisions == ["once", "deny", "deny"]
