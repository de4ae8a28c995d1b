"""Schedules in a database that boards share: each run is claimed and taken once, and a dead board's is ended."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from rkllm_mcp.records import Schedule, ScheduleRun
from rkllm_mcp.schedules.runner import RunResult, ScheduleRunner, moment_after, new_schedule
from rkllm_mcp.store import Store, open_store
from rkllm_mcp.store.copying import copy_store
from rkllm_mcp.store.database import open_database
from rkllm_mcp.store.schedules import Schedules
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def boards(url: str, folder: Path, count: int, tenant: str = "") -> AsyncGenerator[list[Store], None]:
    """As many boards on one database; another address for each, so that they share no connection."""
    async with AsyncExitStack() as stack:
        opening = [
            open_store(
                path=folder / f"{tenant}{n}.db", url=f"{url}&application_name=b{n}", tenant=tenant, required=True
            )
            for n in range(count)
        ]
        yield [await stack.enter_async_context(each) for each in opening]


def daily(now: float, prompt: str = "the weather") -> Schedule:
    return new_schedule(prompt, "every 1h", "Asia/Tokyo", now)


async def test_two_boards_run_what_is_due_once(postgres: PostgresServer, tmp_path: Path) -> None:
    url, asked = postgres.new_database(), list[tuple[int, str]]()
    async with boards(url, tmp_path, 2) as stores:
        for store in stores:
            assert store.leases is not None
            await store.leases.renew()
        now = await stores[0].schedules.now()
        for number in range(10):
            stored = await stores[0].schedules.add("", daily(now, f"question {number}"))
            # It became due a minute ago.
            await stores[0].schedules.change("", stored.id, next_at=now - 60)

        def runner(number: int) -> ScheduleRunner:
            async def perform(schedule: Schedule, run: ScheduleRun) -> RunResult:
                asked.append((number, schedule.prompt))
                await anyio.lowlevel.checkpoint()
                return RunResult("answered", "x")

            return ScheduleRunner(stores[number].schedules, "", perform)

        async def work(number: int) -> None:
            one = runner(number)
            await one.look()
            await one.work()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work, 0)
            tasks.start_soon(work, 1)
        assert sorted(prompt for _, prompt in asked) == [f"question {number}" for number in range(10)]
        assert len(await stores[1].schedules.runs("", limit=100)) == 10
        assert all(schedule.next_at and schedule.next_at > now for schedule in await stores[1].schedules.all(""))


async def test_a_run_of_a_board_that_died_is_ended_by_another_and_of_one_that_lives_is_not(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.new_database()
    async with boards(url, tmp_path, 2) as [first, second]:
        assert first.leases is not None
        await first.leases.renew()
        stored = await first.schedules.add("", daily(await first.schedules.now()))
        await first.schedules.request_run("", stored.id)
        (run,) = await first.schedules.waiting("")
        assert await first.schedules.take("", run.id)
        assert not await second.schedules.take("", run.id)
        assert await second.schedules.end_abandoned("") == 0
        await first.shared.change("DELETE FROM boards WHERE id = ?", (first.leases.board,), durable=True)
        assert await second.schedules.end_abandoned("") == 1
        assert [run.outcome for run in await second.schedules.runs("")] == ["interrupted"]


async def test_tenants_of_one_database_see_their_own_schedules_alone(postgres: PostgresServer, tmp_path: Path) -> None:
    url = postgres.new_database()
    async with boards(url, tmp_path, 1, "kitchen") as [kitchen], boards(url, tmp_path, 1, "garden") as [garden]:
        now = await kitchen.schedules.now()
        mine = await kitchen.schedules.add("kitchen", daily(now))
        await kitchen.schedules.request_run("kitchen", mine.id)
        assert await garden.schedules.all("kitchen") == []
        assert await garden.schedules.waiting("kitchen") == []
        assert not await garden.schedules.remove("kitchen", mine.id)
        assert [schedule.id for schedule in await kitchen.schedules.all("kitchen")] == [mine.id]


async def test_schedules_and_their_runs_move_to_a_shared_database_and_back(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.new_database()
    async with (
        open_database(tmp_path / "file.db", on_problem=pytest.fail, required=True) as file,
        boards(url, tmp_path, 1) as [board],
    ):
        own = Schedules(file)
        stored = await own.add("", daily(await own.now()))
        now = await own.now()
        assert await own.claim("", lambda schedule: moment_after(schedule, now), 1.0) == 0
        await own.request_run("", stored.id)
        for _ in range(2):
            await copy_store(file, board.shared, "")
        assert await board.schedules.all("") == [stored]
        (run,) = await board.schedules.waiting("")
        assert await board.schedules.take("", run.id)
        await board.schedules.finish("", run, "answered", "Sunny.")
        assert (await copy_store(board.shared, file, "")).schedules == 0
