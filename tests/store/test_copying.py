"""Copies between a board's file and a shared database: both ways, twice, and what was there before stays."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rkllm_mcp.messages import Conversation, Picture, StoredTurn
from rkllm_mcp.records import CallRecord, StoredApproval, StoredConversation, Switch
from rkllm_mcp.schedules.runner import new_schedule
from rkllm_mcp.store.conversations import Conversations, StoredResponses
from rkllm_mcp.store.copying import Copied, copy_store
from rkllm_mcp.store.database import Database, Transaction, open_database
from rkllm_mcp.store.memories import Memories
from rkllm_mcp.store.postgres import open_postgres
from rkllm_mcp.store.schedules import Schedules
from rkllm_mcp.store.tables import ApprovalTable, DailyUsage, DeviceKeys, SwitchTable, daily_totals
from rkllm_mcp.store.tool_calls import CallHistory
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.anyio
TENANT = "kitchen"
RESPONSE = {"id": "resp_1", "output": [{"type": "message", "text": "Tea."}]}
CALL = CallRecord(1.5, "files", "write_file", '{"path": "x"}', "once", True, "no room", 3, 0.25, "c1", "Tea?")


def exchange(question: str, at: float) -> list[StoredTurn]:
    answer = StoredTurn("assistant", f"{question} \0 ☕", "think", "memo", "answered", at + 0.1, '[{"kind": "text"}]')
    return [StoredTurn("user", question, at=at, pictures=(Picture.of(question.encode() * 9),)), answer]


async def filled(database: Database) -> None:
    """Two conversations, one of which has an edited question with an edited one inside, a response and calls."""
    conversations = Conversations(database)
    first = Conversation(
        "c1", own_system="Be brief.", calls_made=2, unkept=[*exchange("one", 1.0), *exchange("b", 2.0)]
    )
    await conversations.save(TENANT, first)
    for position, text in ((2, "better"), (0, "another")):
        first.replaces, first.kept_turns = position, position
        first.unkept += exchange(text, 3.0 + position)
        await conversations.save(TENANT, first)
    await conversations.change(TENANT, "c1", {"title": "Tea", "pinned": True, "settings": '{"temperature": 0.5}'})
    await conversations.save(TENANT, Conversation("c2", unkept=exchange("two", 9.0)))
    StoredResponses(database).save(TENANT, RESPONSE, [{"type": "message", "role": "user"}])
    calls = CallHistory(database)
    for at in (1.5, 2.5):
        calls.record(replace(CALL, at=at))
    ApprovalTable(database).keep("files", "write_file", StoredApproval("always", "abc"))
    SwitchTable(database).keep([Switch("files", "write_file", False)])
    await DeviceKeys(database).add("the doorbell", ("chat",))
    await DailyUsage(database).add("2026-11-26", 300)
    await DailyUsage(database).add("2026-11-27", 40)
    await database.ask(partial(add_running, TENANT), durable=True)
    await database.flush()


def add_running(tenant: str, transaction: Transaction) -> None:
    """What a board that was stopped leaves of an answer, of its question for a person and of its outbox."""
    for table, row in {
        "answers": ("c1", 7, "board of before", 0),
        "answer_events": ("c1", "a1", "key", 3, '[{"kind": "text"}]', 1, 2.5),
        "questions": ("q1", "board of before", '{"tool": "write_file"}', "", 99.5),
        "shipped": ("change 1",),
    }.items():
        transaction.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * (len(row) + 1))})", (tenant, *row))


# Of one board: changes that wait for the shared database, and that it lives now.
NOT_COPIED = {"outbox", "boards"}
# Numbers that each database gives itself, and the time of the copy.
OWN_COLUMNS = {"versions": {"id", "parent"}, "calls": {"id"}, "responses": {"position"}, "conversations": {"touched"}}
OWN_COLUMNS["schedule_runs"] = {"number"}


async def tables(database: Database, columns: dict[str, list[str]]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of every table, without the numbers that are a database's own."""
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for table, names in columns.items():
        chosen = ", ".join(name for name in names if name not in OWN_COLUMNS.get(table, set()))
        condition = " WHERE kind <> 'daily tokens'" if table == "texts" else ""
        read = [tuple(row) for row in await database.rows(f"SELECT {chosen} FROM {table}{condition}")]
        # PostgreSQL has no NUL in texts.
        plain = (tuple(v.replace("\0", "\ufffd") if isinstance(v, str) else v for v in row) for row in read)
        rows[table] = sorted(plain, key=str)
    return rows


async def columns_of(file: Database) -> dict[str, list[str]]:
    """The columns of every table of a file that boards share."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    names = {name for (name,) in await file.rows(query)} - NOT_COPIED
    return {
        name: [column for (column,) in await file.rows("SELECT name FROM pragma_table_info(?)", (name,))]
        for name in names
    }


async def content(database: Database) -> dict[str, Any]:
    """Everything that can be read of a tenant, with the versions of the first conversation one after the other.

    NUL, which PostgreSQL has not in texts, is what it has in its place.
    """
    conversations = Conversations(database)
    stored: list[StoredConversation] = []
    for name, position, number in (("c2", 0, 0), ("c1", 0, 1), ("c1", 2, 1), ("c1", 2, 2), ("c1", 0, 2)):
        assert not number or await conversations.show_version(TENANT, name, position, number)
        conversation = await conversations.get(TENANT, name)
        assert conversation is not None
        turns = (replace(turn, text=turn.text.replace("\0", "\ufffd")) for turn in conversation.turns)
        stored.append(replace(conversation, turns=tuple(turns)))
    return {
        "conversations": stored,
        "pictures": [picture.data for each in stored for turn in each.turns for picture in turn.pictures],
        "order": [each.id for each in await conversations.latest(TENANT)],
        "response": (await StoredResponses(database).get(TENANT, "resp_1"))[0],
        "calls": await CallHistory(database).latest(9),
    }


async def test_a_copy_there_and_back_is_what_it_was_and_a_second_one_adds_nothing(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    url = postgres.new_database()
    async with AsyncExitStack() as stack:
        file = await stack.enter_async_context(open_database(tmp_path / "a.db", on_problem=pytest.fail, required=True))
        other = await stack.enter_async_context(open_database(tmp_path / "b.db", on_problem=pytest.fail, required=True))
        shared = await stack.enter_async_context(open_postgres(url, TENANT, on_problem=pytest.fail, required=True))
        await filled(file)
        schedule = await Schedules(file).add(TENANT, new_schedule("the weather", "daily 07:30", "Asia/Tokyo", 0.0))
        assert await Schedules(file).request_run(TENANT, schedule.id)
        await Memories(file).add("my dog's name is Hachi", "en", is_pinned=True)
        whole, nothing = Copied(2, 1, 2, permissions=1, devices=1, schedules=1), Copied(0, 0, 0, 2)
        assert [await copy_store(file, shared, TENANT) for _ in range(2)] == [whole, nothing]
        assert [await copy_store(shared, other, TENANT) for _ in range(2)] == [whole, nothing]
        columns = await columns_of(file)
        every = await tables(file, columns)
        assert {table for table, rows in every.items() if not rows} == set()
        assert [await tables(shared, columns), await tables(other, columns)] == [every, every]
        for database in (shared, other):
            assert await database.ask(daily_totals) == {"2026-11-26": 300, "2026-11-27": 40}
            assert await DeviceKeys(database).all() == await DeviceKeys(file).all()
        before = await content(file)
        assert len(before["conversations"][1].turns) == 4
        assert [await content(shared), await content(other)] == [before, before]


async def test_of_the_tokens_of_a_day_the_larger_total_counts(tmp_path: Path, postgres: PostgresServer) -> None:
    async with AsyncExitStack() as stack:
        file = await stack.enter_async_context(open_database(tmp_path / "a.db", on_problem=pytest.fail, required=True))
        opening = open_postgres(postgres.new_database(), TENANT, on_problem=pytest.fail, required=True)
        shared = await stack.enter_async_context(opening)
        for database, spent in ((file, (100, 200, 0)), (shared, (0, 150, 30))):
            for day, tokens in enumerate(spent, 1):
                await DailyUsage(database).add(f"2026-11-0{day}", tokens)
        await copy_store(file, shared, TENANT)
        assert await shared.ask(daily_totals) == {"2026-11-01": 100, "2026-11-02": 200, "2026-11-03": 30}
        assert await DailyUsage(shared).add("2026-11-03", 5) == 35


async def test_what_another_board_has_stored_under_the_same_id_stays(tmp_path: Path, postgres: PostgresServer) -> None:
    async with AsyncExitStack() as stack:
        file = await stack.enter_async_context(open_database(tmp_path / "a.db", on_problem=pytest.fail, required=True))
        url = postgres.new_database()
        shared = await stack.enter_async_context(open_postgres(url, TENANT, on_problem=pytest.fail, required=True))
        for database, text in ((file, "mine"), (shared, "there")):
            await Conversations(database).save(TENANT, Conversation("c1", unkept=exchange(text, 1.0)))
        assert await copy_store(file, shared, TENANT) == Copied(known=1)
        stored = await Conversations(shared).get(TENANT, "c1")
    assert stored is not None
    assert [turn.text for turn in stored.turns[::2]] == ["there"]
