"""What is remembered comes back in the next run: calls, decisions, switches, texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkllm_mcp.records import CallRecord, StoredApproval, Switch
from rkllm_mcp.store import open_store
from rkllm_mcp.store.database import open_database
from rkllm_mcp.store.limits import Limits, Retention, StoreLimits
from rkllm_mcp.store.tool_calls import CallHistory

pytestmark = pytest.mark.anyio
NOW = float(2**40)
DAY_S = 86400.0


def limits_of(calls: Retention, now: float = NOW) -> Limits:
    """The limits of a board at a fixed time."""
    return Limits(StoreLimits(calls=calls), now=lambda _: now)


def call(tool: str, *, at: float = NOW, server: str = "s", is_error: bool = False) -> CallRecord:
    error = "no such file" if is_error else ""
    return CallRecord(at, server, tool, '{"名":"値"}', "once", is_error, error, 7, 0.25, "conversation_1")


async def test_calls_come_back_as_they_were_newest_first(tmp_path: Path) -> None:
    calls = [call("a"), call("b", server="other"), call("c", is_error=True)]
    async with open_store(path=tmp_path / "state.db") as memory:
        for one in calls:
            memory.calls.record(one)
    async with open_store(path=tmp_path / "state.db") as memory:
        assert await memory.calls.latest(10) == calls[::-1]
        assert await memory.calls.latest(1) == [calls[2]]
        assert await memory.calls.latest(10, server="other") == [calls[1]]
        assert await memory.calls.latest(10, errors_only=True) == [calls[2]]
        assert await memory.calls.latest(10, server="other", errors_only=True) == []


async def test_old_calls_and_too_many_are_forgotten(tmp_path: Path) -> None:
    async with open_database(tmp_path / "state.db", on_problem=pytest.fail) as database:
        history = CallHistory(database, limits_of(Retention(days=2, calls=3)))
        history.record(call("old", at=NOW - 3 * DAY_S))
        assert await history.latest(10) == []
        for number in range(5):
            history.record(call(str(number)))
        history.clean()
        assert [one.tool for one in await history.latest(10)] == ["4", "3", "2"]


@pytest.mark.parametrize("wrong", [0.0, NOW + 36500 * DAY_S], ids=["back", "far ahead"])
async def test_a_clock_that_was_set_makes_no_call_old(tmp_path: Path, wrong: float) -> None:
    times = [NOW - 3 * DAY_S, NOW - DAY_S, wrong, NOW]
    async with open_database(tmp_path / "state.db", on_problem=pytest.fail) as database:
        for at in times:
            # Each one a start, with the clock as it is then.
            history = CallHistory(database, limits_of(Retention(days=2), at))
            history.record(call(str(at), at=at))
            history.clean()
            assert [one.at for one in await history.latest(1)] == [at]
        assert len(await CallHistory(database).latest(10)) == len(times)
        later = CallHistory(database, limits_of(Retention(days=2), NOW + 1.5 * DAY_S))
        later.clean()
        # Time goes on from there: the first is three days old now, two of them before the clock was set.
        assert [one.at for one in await later.latest(10)] == [NOW, wrong, NOW - DAY_S]


async def test_a_service_that_runs_for_long_cleans_up_by_itself(tmp_path: Path) -> None:
    async with open_database(tmp_path / "state.db", on_problem=pytest.fail) as database:
        history = CallHistory(database, limits_of(Retention(days=2, calls=3)))
        for number in range(1000):
            history.record(call(str(number)))
        assert len(await history.latest(1000)) <= 250


@pytest.mark.parametrize("retention", [Retention(days=0), Retention(calls=0)])
async def test_with_storage_off_nothing_is_stored(tmp_path: Path, retention: Retention) -> None:
    async with open_store(path=tmp_path / "state.db", limits=StoreLimits(calls=retention)) as memory:
        memory.calls.record(call("a"))
        assert await memory.calls.latest(10) == []


async def test_a_grant_is_found_replaced_and_forgotten(tmp_path: Path) -> None:
    async with open_store(path=tmp_path / "state.db") as memory:
        assert await memory.grants.find("s", "t") is None
        memory.grants.keep("s", "t", StoredApproval("always", "one"))
        memory.grants.keep("s", "t", StoredApproval("never", "two"))
        memory.grants.keep("a", "t", StoredApproval("configured", "x"))
        assert await memory.grants.find("s", "t") == StoredApproval("never", "two")
        assert await memory.grants.all() == [
            ("a", "t", StoredApproval("configured", "x")),
            ("s", "t", StoredApproval("never", "two")),
        ]
        assert await memory.grants.forget("s", "t")
        assert not await memory.grants.forget("s", "t")
        assert await memory.grants.find("s", "t") is None


async def test_switches_are_stored_and_removed(tmp_path: Path) -> None:
    async with open_store(path=tmp_path / "state.db") as memory:
        memory.switches.keep([Switch("s", "", False), Switch("s", "a", True), Switch("s", "b", False)])
        memory.switches.keep([Switch("s", "b", None), Switch("s", "", True)])
    async with open_store(path=tmp_path / "state.db") as memory:
        assert await memory.switches.all() == [Switch("s", "", True), Switch("s", "a", True)]


async def test_texts_of_one_kind_come_back_and_are_read_without_waiting(tmp_path: Path) -> None:
    async with open_store(path=tmp_path / "state.db") as memory:
        servers = await memory.texts("servers")
        assert servers.texts.get("weather") is None
        servers.write("weather", "晴れ")
        servers.write("weather", "雨")
        assert servers.texts.get("weather") == "雨"
        (await memory.texts("others")).write("weather", "not this")
    async with open_store(path=tmp_path / "state.db") as memory:
        assert (await memory.texts("servers")).texts.get("weather") == "雨"


async def test_a_damaged_file_is_an_empty_memory_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"no database" * 500)
    problems: list[str] = []
    async with open_store(path=tmp_path / "state.db", on_problem=problems.append) as memory:
        memory.calls.record(call("a"))
        assert await memory.switches.all() is None
        assert (await memory.texts("servers")).texts.get("x") is None
        assert [one.tool for one in await memory.calls.latest(5)] == ["a"]
    assert len(problems) == 1
