"""What boards that share a database know of each other, the same with a file and on a real PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import pytest

from rkllm_mcp.errors import StoreAwayError
from rkllm_mcp.messages import Conversation, Picture, StoredTurn
from rkllm_mcp.store.boards import LEASE_S, Leases
from rkllm_mcp.store.conversations import EXCHANGE, Conversations, StoredResponses, append_again
from rkllm_mcp.store.database import Database, SQLiteDatabase, Transaction, open_database
from rkllm_mcp.store.limits import HistoryLimits, StoreLimits
from rkllm_mcp.store.outbox import Behind, Outbox
from rkllm_mcp.store.postgres import database_time, open_postgres
from rkllm_mcp.store.tables import TOKENS, AgreedLimits, DailyUsage, add_tokens, read_limits, write_limits
from rkllm_mcp.store.tool_calls import CallHistory

pytestmark = pytest.mark.anyio
QUESTION = StoredTurn("user", "why?", at=1.0)
DRAFT = [QUESTION, StoredTurn("assistant", "", ending="interrupted", at=1.0)]
ANSWERED = [QUESTION, StoredTurn("assistant", "because", ending="answered", at=2.0)]


Opening: TypeAlias = "Callable[[], AbstractAsyncContextManager[Database]]"


class Clock:
    """The time of the boards."""

    now = 1000.0

    def __call__(self, _: Transaction) -> float:
        return self.now


@dataclass
class Boards:
    """Boards by their names, and their common clock and database."""

    clock: Clock
    database: Database
    leases: dict[str, Leases]
    conversations: dict[str, Conversations]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
def open_shared(request: pytest.FixtureRequest, tmp_path: Path) -> Opening:
    if request.param == "sqlite":
        return lambda: open_database(tmp_path / "shared.db", on_problem=pytest.fail)
    url = request.getfixturevalue("postgres").new_database()
    return lambda: open_postgres(url, "", on_problem=pytest.fail, required=True)


@pytest.fixture
async def boards(open_shared: Opening) -> AsyncGenerator[Boards, None]:
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(open_shared())
        clock = Clock()
        leases = {name: Leases(database, name, clock) for name in ("a", "b")}
        yield Boards(
            clock, database, leases, {name: Conversations(database, leases=each) for name, each in leases.items()}
        )


async def begun(boards: Boards, name: str, conversation: Conversation) -> bool:
    return await boards.conversations[name].begin("", conversation, DRAFT)


async def texts(boards: Boards) -> list[tuple[str, str]]:
    stored = await boards.conversations["b"].get("", "c1")
    assert stored is not None
    return [(turn.ending, turn.text) for turn in stored.turns]


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_while_a_board_answers_in_a_conversation_no_other_does(boards: Boards) -> None:
    conversation = Conversation("c1")
    assert await begun(boards, "a", conversation)
    held = [
        await each.is_held("", "c1", elsewhere=elsewhere)
        for each in boards.leases.values()
        for elsewhere in (False, True)
    ]
    assert held == [True, False, True, True]
    assert not await begun(boards, "b", Conversation("c1"))
    conversation.unkept += ANSWERED
    assert await boards.conversations["a"].save("", conversation) == 0
    assert not await boards.leases["b"].is_held("", "c1")
    assert await texts(boards) == [("", "why?"), ("answered", "because")]


async def test_the_answer_of_a_dead_board_is_begun_anew_elsewhere_and_what_it_still_says_is_an_earlier_version(
    boards: Boards,
) -> None:
    dead = Conversation("c1")
    assert await begun(boards, "a", dead)
    assert await boards.conversations["a"].grow("", dead, StoredTurn("assistant", "bec"))
    boards.clock.now += LEASE_S + 0.1
    assert not await boards.leases["b"].is_held("", "c1")
    assert await texts(boards) == [("", "why?"), ("interrupted", "bec")]
    again, asked_again = Conversation("c1", draft=range(2)), replace(QUESTION, at=2.5)
    assert await boards.conversations["b"].begin("", again, [asked_again, DRAFT[1]])
    # It was not dead: it could not reach the database.
    assert not await boards.conversations["a"].grow("", dead, StoredTurn("assistant", "becau"))
    dead.unkept += ANSWERED
    assert await boards.conversations["a"].save("", dead) == 1
    assert await texts(boards) == [("", "why?"), ("interrupted", "")]
    again.unkept += [asked_again, StoredTurn("assistant", "for a reason", ending="answered", at=3.0)]
    assert await boards.conversations["b"].save("", again) == 0
    stored = await boards.conversations["b"].get("", "c1")
    assert stored is not None
    assert (stored.turns[-1].text, stored.versions) == ("for a reason", {0: (2, 2)})


async def test_an_answer_that_is_saved_late_stays_before_what_was_asked_elsewhere_meanwhile(boards: Boards) -> None:
    late = Conversation("c1")
    assert await begun(boards, "a", late)
    boards.clock.now += LEASE_S + 0.1
    # Another board, which has not heard of the end of the answer, is asked the next question.
    other = Conversation("c1", kept_turns=2)
    assert await boards.conversations["b"].begin("", other, [StoredTurn("user", "and?", at=3.0), DRAFT[1]])
    # The record that saves is another than the one that began.
    late.unkept += [StoredTurn("user", "why?", at=1.5), ANSWERED[1]]
    assert await boards.conversations["a"].save("", late) == 1
    other.unkept += [StoredTurn("user", "and?", at=3.0), StoredTurn("assistant", "so", ending="answered", at=4.0)]
    await boards.conversations["b"].save("", other)
    assert await texts(boards) == [("", "why?"), ("answered", "because"), ("", "and?"), ("answered", "so")]


async def test_an_answer_is_cancelled_from_another_board_and_saved_as_far_as_it_came(boards: Boards) -> None:
    conversation = Conversation("c1")
    assert await begun(boards, "a", conversation)
    assert await boards.leases["b"].cancel("", "c1")
    assert not await boards.conversations["a"].grow("", conversation, StoredTurn("assistant", "bec"))
    conversation.unkept += [QUESTION, StoredTurn("assistant", "bec", ending="cancelled", at=2.0)]
    assert await boards.conversations["a"].save("", conversation) == 0
    assert await texts(boards) == [("", "why?"), ("cancelled", "bec")]
    assert not await boards.leases["b"].cancel("", "c1")


async def test_events_are_read_at_another_board_from_any_number_on_by_their_key_alone(boards: Boards) -> None:
    a, b = boards.leases.values()
    assert await begun(boards, "a", Conversation("c1"))
    whose = ("", "c1", "answer 1", "key")
    await a.add_events(whose, {}, is_end=False)
    assert await b.events("", "c1", "key", 0) == ([], False)
    await a.add_events(whose, {1: "one", 2: "two"}, is_end=False)
    await a.add_events(whose, {3: "three"}, is_end=False)
    assert await b.events("", "c1", "key", 1) == ([(2, "two"), (3, "three")], False)
    assert await b.events("", "c1", "another key", 0) is None
    boards.clock.now += LEASE_S + 0.1
    # The board died: what it has written is read, and then nothing follows.
    assert await b.events("", "c1", "key", 2) == ([(3, "three")], False)
    assert await b.events("", "c1", "key", 3) is None
    await a.add_events(whose, {4: "end"}, is_end=True)
    assert await b.events("", "c1", "key", 3) == ([(4, "end")], True)
    await b.add_events(("", "c1", "answer 2", "key"), {}, is_end=False)
    assert await b.events("", "c1", "key", 0) is None


# --- questions --------------------------------------------------------------------------------------------------------


async def test_a_question_is_answered_once_at_whichever_board(boards: Boards) -> None:
    a, b = boards.leases.values()
    for name in ("q1", "q2"):
        await a.ask("", name, {"id": name}, 60.0)
    assert (await a.questions(""), await b.questions("")) == ([], [({"id": "q1"}, 60.0), ({"id": "q2"}, 60.0)])
    assert await a.answer_to("", "q1") is None
    assert [await each.answer("", "q1", "once") for each in (b, a, b)] == [True, False, False]
    assert (await a.answer_to("", "q1"), await a.close("", "q1")) == ("once", "once")
    assert await b.answer("", "q1", "deny") is None
    assert await b.questions("") == [({"id": "q2"}, 60.0)]
    boards.clock.now += LEASE_S + 0.1
    assert (await b.questions(""), await b.answer("", "q2", "once")) == ([], False)


# --- the database is away ---------------------------------------------------------------------------------------------


class Away:
    """A database that can be away."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.is_away = False

    def __getattr__(self, name: str) -> Any:
        if self.is_away:
            raise StoreAwayError("postgresql://", "away", "wait")
        return getattr(self._database, name)


@asynccontextmanager
async def opened(
    open_shared: Opening, file: Path
) -> AsyncGenerator[tuple[Away, SQLiteDatabase, Outbox, Conversations, DailyUsage], None]:
    """A board as it begins."""
    async with AsyncExitStack() as stack:
        away = Away(await stack.enter_async_context(open_shared()))
        shared = cast("Database", away)
        local = await stack.enter_async_context(open_database(file, on_problem=pytest.fail))
        outbox = Outbox(local, shared, "", {EXCHANGE: append_again, TOKENS: add_tokens})
        conversations = Conversations(shared, leases=Leases(shared, "a", Clock()), outbox=outbox)
        yield away, local, outbox, conversations, DailyUsage(shared, outbox)


async def test_what_was_said_while_the_database_was_away_is_there_afterwards_in_order(
    open_shared: Opening, tmp_path: Path
) -> None:
    picture = Picture.of(b"GIF89a picture")
    async with opened(open_shared, tmp_path / "board.db") as (shared, _, outbox, board, _):
        conversation = Conversation("c1")
        assert await board.begin("", conversation, DRAFT)
        shared.is_away = True
        conversation.unkept += ANSWERED
        assert await board.save("", conversation) == 0
        second = StoredTurn("user", "and now?", at=3.0, pictures=(picture,))
        assert await board.begin("", conversation, [second, StoredTurn("assistant", "", ending="interrupted", at=3.0)])
        assert await board.grow("", conversation, StoredTurn("assistant", "no"))
        assert (await outbox.behind()).entries == 2
        # An answer that is not over waits although the database is back.
        shared.is_away = False
        assert await outbox.ship()
        assert (await outbox.behind()).entries == 1
        conversation.unkept += [second, StoredTurn("assistant", "now.", ending="answered", at=4.0)]
        assert (await board.save("", conversation), conversation.kept_turns) == (0, 4)
        assert await board.is_current("", conversation)
        assert await outbox.behind() == Behind(0, 0.0)
        stored = await board.get("", "c1")
        assert stored is not None
        assert [turn.text for turn in stored.turns] == ["why?", "because", "and now?", "now."]
        assert stored.turns[2].pictures[0].data == b"GIF89a picture"


async def test_what_waits_survives_the_death_of_its_board_and_an_answer_it_had_begun_is_broken_off(
    open_shared: Opening, tmp_path: Path
) -> None:
    file = tmp_path / "board.db"
    async with opened(open_shared, file) as (shared, local, _, board, _):
        shared.is_away = True
        conversation = Conversation("c1")
        assert await board.begin("", conversation, DRAFT)
        assert await board.grow("", conversation, StoredTurn("assistant", "bec"))
        # A process of this number that began at another time is dead.
        await local.change("UPDATE outbox SET writer = '1:0'", ())
    async with opened(open_shared, file) as (_, _, outbox, board, _):
        assert (await outbox.behind()).entries == 1
        assert await outbox.ship()
        stored = await board.get("", "c1")
        assert stored is not None
        assert [(turn.ending, turn.text) for turn in stored.turns] == [("", "why?"), ("interrupted", "bec")]
        assert await outbox.behind() == Behind(0, 0.0)


async def test_a_change_whose_entry_could_not_be_deleted_is_made_once(open_shared: Opening, tmp_path: Path) -> None:
    file = tmp_path / "board.db"
    async with opened(open_shared, file) as (shared, local, outbox, _, usage):
        shared.is_away = True
        with pytest.raises(StoreAwayError):
            await usage.add("2026-11-27", 7)
        entry = await local.rows("SELECT id, kind, change, writer, at FROM outbox")
        shared.is_away = False
        assert await outbox.ship()
        await local.change("INSERT INTO outbox (id, kind, change, writer, at) VALUES (?, ?, ?, ?, ?)", entry[0])
    async with opened(open_shared, file) as (_, _, outbox, _, usage):
        assert await outbox.ship()
        assert await usage.add("2026-11-27") == 7
        assert await outbox.behind() == Behind(0, 0.0)


@pytest.mark.parametrize("days", [None, 3.0])
async def test_what_waits_leaves_the_limits_that_boards_agree_on(
    open_shared: Opening, tmp_path: Path, days: float | None
) -> None:
    agreed, own = (StoreLimits(HistoryLimits(each)) for each in (90.0, days))
    async with opened(open_shared, tmp_path / "board.db") as (shared, _, outbox, _, _):
        database = cast("Database", shared)
        await database.ask(partial(write_limits, agreed))
        limits = AgreedLimits(own, (), database_time, pytest.fail)
        away = cast("Database", SimpleNamespace(tell=outbox.keep))
        StoredResponses(away, limits).save("", {"id": "resp_1", "output": []}, [])
        CallHistory(away, limits).clean()
        await outbox.behind()
        assert await outbox.ship()
        assert await database.ask(read_limits) == agreed
        assert (await StoredResponses(database).get("", "resp_1"))[0] == {"id": "resp_1", "output": []}
        assert await outbox.behind() == Behind(0, 0.0)


async def test_a_board_knows_how_far_its_clock_is_behind_that_of_all(boards: Boards) -> None:
    boards.clock.now = time.time() + 86_400
    await boards.leases["a"].renew()
    assert boards.leases["a"].clock_behind_s == pytest.approx(86_400, abs=60)
