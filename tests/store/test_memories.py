"""What a person wants remembered, in both kinds of databases: rows, limits, tenants, and what erasing leaves."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from rkllm_mcp.errors import UsageError
from rkllm_mcp.messages import Conversation, StoredTurn
from rkllm_mcp.records import MOST_ROWS, MemoryRow, recalled_block
from rkllm_mcp.store.conversations import Conversations
from rkllm_mcp.store.database import Database, open_database
from rkllm_mcp.store.memories import Memories
from rkllm_mcp.store.postgres import open_postgres

pytestmark = pytest.mark.anyio
Place: TypeAlias = "Path | str"
FACT = 'my dog\'s name is "Hachi_100%"'


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return tmp_path if request.param == "sqlite" else request.getfixturevalue("postgres").new_database()


@asynccontextmanager
async def opened(place: Place, tenant: str = "") -> AsyncGenerator[Database, None]:
    """A board's database: its file, which each tenant has for itself, or the one that boards share."""
    async with AsyncExitStack() as stack:
        if isinstance(place, Path):
            file = place / (tenant or "owner") / "state.db"
            yield await stack.enter_async_context(open_database(file, on_problem=print, required=True))
        else:
            yield await stack.enter_async_context(open_postgres(place, tenant, on_problem=print, required=True))


async def test_a_row_is_stored_once_changed_and_removed_and_another_board_sees_it(place: Place) -> None:
    async with opened(place) as one, opened(place) as other:
        memories, there = Memories(one, clock=lambda: 5.0), Memories(other)
        row, is_new = await memories.add(FACT, "en", source="c1")
        assert is_new
        assert row == MemoryRow(row.id, FACT, "en", source="c1", created=5.0)
        again, is_new = await there.add(FACT.upper(), "en", is_pinned=True)
        assert (again.id, is_new) == (row.id, False)
        assert await there.all() == [replace(row, is_pinned=True)]
        proposed, _ = await there.add("I like tea", "en", state="proposed")
        assert [each.id for each in await memories.kept()] == [row.id]
        assert await memories.change(proposed.id, state="kept", text="I like green tea", is_pinned=False) == replace(
            proposed, state="kept", text="I like green tea"
        )
        memories.note_used([row])
        await one.flush()
        assert [each.used for each in await there.all() if each.id == row.id] == [5.0]
        assert await memories.change("unknown", text="x") is None
        assert await there.remove([row.id, "unknown"]) == [replace(row, is_pinned=True, used=5.0)]
        assert [each.text for each in await memories.remove(None)] == ["I like green tea"]
        assert await there.all() == []


async def test_tenants_never_see_each_others_rows(place: Place) -> None:
    async with opened(place, "kitchen") as kitchen, opened(place, "office") as office:
        row, _ = await Memories(kitchen).add(FACT, "en")
        assert await Memories(office).all() == []
        assert await Memories(office).remove([row.id]) == []
        assert await Memories(office).remove(None) == []
        assert await Memories(kitchen).all() == [row]


async def test_there_is_a_limit_of_rows(place: Place) -> None:
    async with opened(place) as database:
        memories = Memories(database)
        for number in range(MOST_ROWS):
            await memories.add(f"fact {number}", "en")
        with pytest.raises(UsageError, match="200 things are remembered"):
            await memories.add("one more", "en")
        assert (await memories.add("fact 3", "en"))[1] is False


async def test_a_removed_row_is_gone_from_what_conversations_recalled_and_no_other_is(place: Place) -> None:
    other = "my cat is Mike"
    async with opened(place) as database:
        memories, conversations = Memories(database), Conversations(database)
        (first, _), (second, _) = await memories.add(FACT, "en"), await memories.add(other, "en")
        shown = [{"id": row.id, "text": row.text, "source": ""} for row in (first, second)]
        for name, rows in (("both", [first, second]), ("one", [first])):
            context = f"[a note]\n\n{recalled_block(rows, 'en')}"
            events = [
                {"kind": "memories", "rows": shown[: len(rows)], "is_new": False},
                {"kind": "text", "text": "Hi."},
            ]
            turns = [
                StoredTurn("user", "Who?", context=context, at=1.0),
                StoredTurn("assistant", "Hi.", ending="answered", at=2.0, events=json.dumps(events)),
            ]
            conversation = Conversation(name, unkept=list(turns))
            await conversations.save("", conversation)
            # The same turns once more, as an earlier version of a question.
            conversation.replaces, conversation.unkept = 0, [StoredTurn("user", "Which?", at=3.0), turns[1]]
            await conversations.save("", conversation)
        await memories.remove([first.id])
        for name, rest in (("both", [second]), ("one", [])):
            await conversations.show_version("", name, 0, 1)
            stored = await conversations.get("", name)
            assert stored is not None
            question, answer = stored.turns
            expected = f"\n\n{recalled_block(rest, 'en')}" if rest else ""
            assert question.context == f"[a note]{expected}"
            assert [event["kind"] for event in json.loads(answer.events)] == (["memories"] if rest else []) + ["text"]
            assert FACT not in answer.events
            await conversations.show_version("", name, 0, 2)
            assert FACT not in str(await conversations.get("", name))


async def test_nothing_of_a_removed_row_is_left_in_the_file_or_its_log(tmp_path: Path) -> None:
    async with opened(tmp_path) as database:
        memories = Memories(database)
        row, _ = await memories.add("my locker is number 214", "en")
        changed = await memories.change(row.id, text="my locker is number 215")
        assert changed is not None
        await memories.remove([row.id])
        files = [file for file in (tmp_path / "owner").iterdir() if file.is_file()]
        assert files
        assert [file.name for file in files if b"my locker" in file.read_bytes()] == []
