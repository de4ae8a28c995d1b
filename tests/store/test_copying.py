"""Copies between a board's file and a shared database: both ways, twice, and what was there before stays."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rkllm_mcp.messages import Conversation, Picture, StoredTurn
from rkllm_mcp.records import CallRecord, StoredConversation
from rkllm_mcp.store.conversations import Conversations, StoredResponses
from rkllm_mcp.store.copying import Copied, copy_store
from rkllm_mcp.store.database import Database, open_database
from rkllm_mcp.store.postgres import open_postgres
from rkllm_mcp.store.tool_calls import CallHistory, Retention
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
    calls = CallHistory(database, Retention())
    for at in (1.5, 2.5):
        calls.record(replace(CALL, at=at))
    await database.settled()


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
        "response": await StoredResponses(database).get(TENANT, "resp_1"),
        "calls": await CallHistory(database, Retention()).latest(9),
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
        whole, nothing = Copied(2, 1, 2), Copied(0, 0, 0, 2)
        assert [await copy_store(file, shared, TENANT) for _ in range(2)] == [whole, nothing]
        assert [await copy_store(shared, other, TENANT) for _ in range(2)] == [whole, nothing]
        before = await content(file)
        assert len(before["conversations"][1].turns) == 4
        assert [await content(shared), await content(other)] == [before, before]


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
