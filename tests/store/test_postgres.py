"""A database that several boards share: tenants apart, boards together, and what is left when it dies."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.errors import StoreAwayError, StoreError
from rkllm_mcp.events import to_json
from rkllm_mcp.messages import Conversation, StoredTurn
from rkllm_mcp.records import CallRecord, StoredApproval, Switch
from rkllm_mcp.store import Store, open_store
from rkllm_mcp.store.conversations import Conversations
from rkllm_mcp.store.database import DAY_S, Transaction
from rkllm_mcp.store.limits import HistoryLimits, Retention, StoreLimits
from rkllm_mcp.store.postgres import MIGRATIONS, PostgresDatabase, open_postgres, translate_statement
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.anyio
TABLES = ("conversations", "messages", "versions", "responses", "calls", "grants", "texts")


def exchange(name: str, at: float = 1.0) -> list[StoredTurn]:
    return [StoredTurn("user", name, at=at), StoredTurn("assistant", f"of {name}", ending="answered", at=at + 0.5)]


@asynccontextmanager
async def boards(
    url: str, count: int, tenant: str = "", on_problem: Callable[[str], None] = pytest.fail
) -> AsyncGenerator[list[Conversations], None]:
    """As many boards."""
    async with AsyncExitStack() as stack:
        opening = [open_postgres(url, tenant, on_problem=on_problem, required=True) for _ in range(count)]
        yield [Conversations(await stack.enter_async_context(each)) for each in opening]


async def saved(conversations: Conversations, conversation: Conversation, *turns: StoredTurn, tenant: str = "") -> None:
    conversation.unkept += turns
    await conversations.save(tenant, conversation)


# --- tenants ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES)
async def test_a_statement_that_forgets_the_tenant_reaches_its_own_rows_only(
    table: str, postgres: PostgresServer
) -> None:
    url = postgres.new_database()
    lines: list[str] = []
    async with (
        boards(url, 1, "kitchen") as [kitchen],
        open_postgres(url, "garden", on_problem=lines.append, required=True) as database,
    ):
        await saved(kitchen, Conversation("c1"), *exchange("secret"), tenant="kitchen")

        def reach(transaction: Transaction) -> tuple[int, int]:
            count = transaction.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
            return count, transaction.execute(f"DELETE FROM {table}").rowcount

        assert await database.ask(reach) == (0, 0)
        with pytest.raises(StoreError, match="row-level security"):
            await saved(Conversations(database), Conversation("c2"), *exchange("planted"), tenant="kitchen")
        stored = await kitchen.get("kitchen", "c1")
        assert stored is not None
        assert [turn.text for turn in stored.turns] == ["secret", "of secret"]


async def test_every_table_with_rows_of_tenants_shows_a_tenant_its_own_alone(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    async with boards(url, 1):
        pass
    name = url.partition("@/")[2].partition("?")[0]
    with_tenant = "SELECT table_name FROM information_schema.columns WHERE column_name = 'tenant' ORDER BY 1"
    guarded = """SELECT c.relname FROM pg_class AS c JOIN pg_policy AS p ON p.polrelid = c.oid
        WHERE c.relrowsecurity AND c.relforcerowsecurity AND p.polcmd = '*' AND p.polpermissive
        AND pg_get_expr(p.polqual, c.oid) = '(tenant = current_setting(''rkllm.tenant''::text))' ORDER BY 1"""
    assert postgres.run(guarded, name).split() == postgres.run(with_tenant, name).split()
    assert "pictures" in postgres.run(guarded, name).split()


NAMES = (
    "",
    "a' OR '1'='1",
    'b"; DROP TABLE messages; --',
    "%",
    "_",
    "kitchen",
    "kitchen ",
    "KITCHEN",
    "台所",
    "\u202e",
    "$1",
)


async def test_odd_names_of_tenants_and_conversations_are_names_and_tenants_at_once_see_nothing_of_each_other(
    postgres: PostgresServer,
) -> None:
    url = postgres.new_database()
    ids = ("c%", "c_", "c1'; DELETE FROM messages; --", "c1", "会話")
    async with AsyncExitStack() as stack:
        views: dict[str, Conversations] = {}
        for tenant in NAMES:
            opening = open_postgres(url, tenant, on_problem=pytest.fail, required=True)
            views[tenant] = Conversations(await stack.enter_async_context(opening))

        async def use(tenant: str, number: int) -> None:
            for each in ids:
                await saved(views[tenant], Conversation(each), *exchange(f"{number} {each}"), tenant=tenant)
                assert [found.id for found in await views[tenant].matching(tenant, each)] == [each]
            for each in ids:
                stored = await views[tenant].get(tenant, each)
                assert stored is not None
                assert stored.turns[0].text == f"{number} {each}"

        async with anyio.create_task_group() as tasks:
            for number, tenant in enumerate(NAMES):
                tasks.start_soon(use, tenant, number)
        assert {await views[tenant].count(tenant) for tenant in NAMES} == {len(ids)}
        assert await views["%"].delete_all("%") == len(ids)
        assert [await views[tenant].count(tenant) for tenant in NAMES].count(len(ids)) == len(NAMES) - 1
        with pytest.raises(StoreError):
            async with open_postgres(url, "a\0b", on_problem=pytest.fail, required=True):
                pass


async def test_a_role_that_sees_every_tenant_is_refused(postgres: PostgresServer) -> None:
    url = postgres.new_database().replace("board@", "root@")
    with pytest.raises(StoreError, match="create a role without SUPERUSER"):
        async with open_postgres(url, "", on_problem=pytest.fail, required=True):
            pass


# --- boards -----------------------------------------------------------------------------------------------------------


async def test_boards_that_begin_together_make_the_tables_once(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    opened: list[PostgresDatabase] = []

    async def begin(stack: AsyncExitStack, number: int) -> None:
        # Another address for each: they share no connections, as processes do.
        own = f"{url}&application_name=board{number}"
        opened.append(await stack.enter_async_context(open_postgres(own, "", on_problem=pytest.fail, required=True)))

    async with AsyncExitStack() as stack:
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(begin, stack, number)
        assert len(opened) == 5
    name = url.partition("@/")[2].partition("?")[0]
    assert postgres.run("SELECT version FROM schema_versions", name).split() == [
        str(number + 1) for number in range(len(MIGRATIONS))
    ]


@pytest.mark.parametrize(("ahead", "is_readable"), [(1, True), (2, False)])
async def test_a_schema_of_the_next_release_is_used_and_none_beyond(
    ahead: int, is_readable: bool, postgres: PostgresServer
) -> None:
    url = postgres.new_database()
    async with boards(url, 1):
        pass
    name = url.partition("@/")[2].partition("?")[0]
    postgres.run(f"INSERT INTO schema_versions VALUES ({len(MIGRATIONS) + ahead})", name)
    if is_readable:
        async with boards(url, 1) as [board]:
            await saved(board, Conversation("c1"), *exchange("a"))
    else:
        with pytest.raises(StoreError, match="newer by more than one release"):
            async with boards(url, 1):
                pass


async def test_boards_that_go_on_with_one_conversation_at_once_lose_and_double_nothing(
    postgres: PostgresServer,
) -> None:
    url, number_of_boards, exchanges = postgres.new_database(), 3, 8
    async with boards(url, number_of_boards) as several:

        async def go_on(board: Conversations, number: int) -> None:
            conversation = Conversation("c1")
            for turn in range(exchanges):
                draft = exchange(f"{number}.{turn}", at=float(turn))
                await board.begin("", conversation, [draft[0], StoredTurn("assistant", "", at=float(turn))])
                await saved(board, conversation, *draft)

        await saved(several[0], Conversation("c1"), *exchange("first"))
        async with anyio.create_task_group() as tasks:
            for number, board in enumerate(several):
                tasks.start_soon(go_on, board, number)
        stored = await several[0].get("", "c1")
    assert stored is not None
    questions = [turn.text for turn in stored.turns[2::2]]
    assert sorted(questions) == sorted(f"{n}.{turn}" for n in range(number_of_boards) for turn in range(exchanges))
    assert [turn.text for turn in stored.turns[3::2]] == [f"of {question}" for question in questions]


async def test_a_board_notices_that_a_conversation_went_on_elsewhere(postgres: PostgresServer) -> None:
    async with boards(postgres.new_database(), 2) as [here, there]:
        conversation = Conversation("c1")
        await saved(here, conversation, *exchange("one"))
        assert await here.is_current("", conversation)
        await saved(there, Conversation("c1", kept_turns=2), *exchange("two", at=2.0))
        assert not await here.is_current("", conversation)


@asynccontextmanager
async def stores(
    postgres: PostgresServer, folder: Path, count: int, tenant: str = ""
) -> AsyncGenerator[list[Store], None]:
    """The stores of as many boards, each with its own file."""
    url = postgres.new_database()
    async with AsyncExitStack() as stack:
        paths = [folder / str(number) / "state.db" for number in range(count)]
        opening = [open_store(path=path, url=url, tenant=tenant, required=True) for path in paths]
        yield [await stack.enter_async_context(each) for each in opening]


async def test_a_device_is_linked_on_one_board_known_on_all_and_revoked_on_all_at_once(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    async with stores(postgres, tmp_path, 2) as [here, there]:
        code = await here.devices.new_code()
        linked = await there.devices.exchange(code, "phone")
        assert linked is not None
        device, key = linked
        assert await here.devices.exchange(code, "again") is None
        assert [await board.devices.find(key) for board in (here, there)] == [device, device]
        assert await here.devices.revoke(device.id)
        assert [await board.devices.find(key) for board in (here, there)] == [None, None]


async def test_one_code_is_exchanged_once_by_whichever_board_is_first(postgres: PostgresServer, tmp_path: Path) -> None:
    async with stores(postgres, tmp_path, 4) as boards:
        for _ in range(5):
            code = await boards[0].devices.new_code()
            linked: list[object] = []

            async def exchange_at(board: Store, code: str, linked: list[object]) -> None:
                linked.append(await board.devices.exchange(code, "phone"))

            async with anyio.create_task_group() as tasks:
                for board in boards:
                    tasks.start_soon(exchange_at, board, code, linked)
            assert linked.count(None) == 3


async def test_tokens_that_boards_add_at_once_are_counted_together(postgres: PostgresServer, tmp_path: Path) -> None:
    async with stores(postgres, tmp_path, 4, "kitchen") as boards:

        async def spend(board: Store) -> None:
            for _ in range(25):
                await board.tally.add("2026-11-26", 3)

        async with anyio.create_task_group() as tasks:
            for board in boards:
                tasks.start_soon(spend, board)
        assert [await board.tally.add("2026-11-26") for board in boards] == [300] * 4


async def test_a_permission_and_a_switch_count_on_every_board_and_not_for_another_tenant(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    never, always = StoredApproval("never", "f"), StoredApproval("always", "f")
    async with stores(postgres, tmp_path, 2, "kitchen") as [here, there]:
        here.grants.keep("files", "write_file", always)
        here.grants.keep("files", "write_file", never)
        await here.flush()
        assert await there.grants.find("files", "write_file") == never
        assert await there.grants.forget("files", "write_file")
        assert (await here.grants.find("files", "write_file"), here.grants.is_readable) == (None, True)
        here.switches.keep([Switch("files", "write_file", False)])
        await here.flush()
        assert await there.switches.all() == [Switch("files", "write_file", False)]
        there.switches.keep([Switch("files", "write_file", None), Switch("notes", "", False)])
        await there.flush()
        assert await here.switches.all() == [Switch("notes", "", False)]


async def test_linked_devices_are_known_and_tools_ask_while_the_database_is_away(
    mortal: PostgresServer, tmp_path: Path
) -> None:
    async with stores(mortal, tmp_path, 1) as [board]:
        linked = await board.devices.exchange(await board.devices.new_code(), "phone")
        assert linked is not None
        board.grants.keep("files", "write_file", StoredApproval("always", "f"))
        await board.flush()
        assert await board.devices.find(linked[1]) == linked[0]
        mortal.kill()
        assert await board.devices.find(linked[1]) == linked[0]
        assert await board.devices.find(f"{linked[1]}x") is None
        assert (await board.grants.find("files", "write_file"), board.grants.is_readable) == (None, False)


async def test_a_board_whose_clock_is_days_ahead_or_behind_deletes_nothing_that_another_keeps(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, now = postgres.new_database(), time.time()
    two_days = StoreLimits(HistoryLimits(days=2), Retention(days=2))
    for number, ahead in enumerate((0, 3, -3, -20_000)):
        at = now + ahead * DAY_S
        monkeypatch.setattr(time, "time", lambda at=at: at)
        async with open_store(path=tmp_path / f"{number}.db", url=url, limits=two_days, required=True) as store:
            await saved(store.conversations, Conversation(f"c{number}"), *exchange("?", at=at))
            store.calls.record(CallRecord(at, "s", "t", "{}", "once"))
            store.responses.save("", {"id": f"r{number}", "output": []}, [])
            store.calls.clean()
            assert await store.conversations.clean("") == 0
            await store.flush()
            assert await store.conversations.count("") == number + 1
            assert len(await store.calls.latest(9)) == number + 1
            assert (await store.responses.get("", "r0"))[0] is not None


@pytest.mark.parametrize(
    ("first", "second", "given", "clean", "erased"),
    [
        (StoreLimits(HistoryLimits(keep_results=True)), StoreLimits(), (), True, False),
        (StoreLimits(HistoryLimits(keep_results=True)), StoreLimits(), {"service.keep_results"}, False, False),
        (StoreLimits(), StoreLimits(HistoryLimits(conversations=1)), {"service.history_conversations"}, False, False),
        (StoreLimits(HistoryLimits(conversations=1)), StoreLimits(), (), True, True),
    ],
    ids=["a default", "results off", "fewer", "agreed"],
)
async def test_limits_are_the_databases_and_a_board_with_others_says_so_and_deletes_nothing(
    postgres: PostgresServer,
    tmp_path: Path,
    first: StoreLimits,
    second: StoreLimits,
    given: Collection[str],
    clean: bool,
    erased: bool,
) -> None:
    url, lines = postgres.new_database(), list[str]()
    events = to_json([{"type": "tool_finished", "text": "the result", "blocks": []}])
    async with open_store(path=tmp_path / "1.db", url=url, limits=first, required=True) as one:
        for name in ("c1", "c2"):
            question, answer = exchange("?")
            await saved(one.conversations, Conversation(name), question, replace(answer, events=events))
        opening = open_store(
            path=tmp_path / "2.db", url=url, limits=second, given=given, required=True, on_problem=lines.append
        )
        async with opening as two:
            assert await two.conversations.clean("") == int(erased)
            assert await two.conversations.count("") == 2 - erased
            kept = await two.conversations.get("", "c2")
            assert kept is not None
            assert kept.turns[1].events == events
            assert two.conversations.limits.current.history.keep_results == first.history.keep_results
    assert len(lines) == (0 if clean else 1)
    assert all("store settings" in line for line in lines)


# --- a database that dies ---------------------------------------------------------------------------------------------


async def test_a_database_that_is_away_is_reported_once_and_what_was_not_saved_is_saved_afterwards(
    mortal: PostgresServer,
) -> None:
    lines: list[str] = []
    conversation = Conversation("c1")
    async with open_postgres(mortal.new_database(), "", on_problem=lines.append, required=True) as database:
        conversations = Conversations(database)
        await saved(conversations, conversation, *exchange("before"))
        assert conversations.database.catching_up is None
        mortal.kill()
        for name in ("during", "still"):
            with pytest.raises(StoreError, match="see whether PostgreSQL runs"), anyio.fail_after(20):
                await saved(conversations, conversation, *exchange(name, at=3.0 + len(name)))
        assert database.failing is not None
        assert len(lines) == 1
        mortal.start()
        with anyio.fail_after(30):
            while conversation.unkept:
                with anyio.move_on_after(0.2):
                    await anyio.Event().wait()
                try:
                    await conversations.save("", conversation)
                except StoreError:
                    continue
        assert (database.failing, lines[1:]) == (None, ["[State: data is saved again.]"])
        # What is missing now may wait on another board.
        assert isinstance(conversations.database.catching_up, StoreAwayError)
        stored = await conversations.get("", "c1")
    assert stored is not None
    assert [turn.text for turn in stored.turns[::2]] == ["before", "during", "still"]


async def test_a_board_begins_while_the_database_is_away(
    mortal: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    url, lines = mortal.new_database(), list[str]()
    mortal.kill()
    with anyio.fail_after(30):
        async with open_postgres(url, "", on_problem=lines.append) as database:
            assert database.failing is not None
    assert len(lines) == 1
    # libpq's own reason, once, and no line of the pool's for each attempt.
    assert "Connection refused" in lines[0]
    assert [record.name for record in caplog.records if record.name.startswith("psycopg")] == []
    with pytest.raises(StoreError):
        async with open_postgres(url, "", on_problem=lines.append, required=True):
            pass


async def test_nothing_that_was_acknowledged_is_lost_when_the_server_is_killed(mortal: PostgresServer) -> None:
    acknowledged: list[str] = []

    async def write(board: Conversations, number: int) -> None:
        conversation = Conversation(f"c{number}")
        for turn in range(40):
            try:
                await saved(board, conversation, *exchange(f"{number}.{turn}", at=float(turn)))
            except StoreError:
                return
            acknowledged.append(f"{number}.{turn}")
            if len(acknowledged) == 30:
                mortal.kill()

    url = mortal.new_database()
    lines: list[str] = []
    async with boards(url, 3, on_problem=lines.append) as several, anyio.create_task_group() as tasks:
        for number, board in enumerate(several):
            tasks.start_soon(write, board, number)
    mortal.start()
    async with boards(url, 1) as [board]:
        stored = [await board.get("", f"c{number}") for number in range(3)]
    kept = [turn.text for conversation in stored if conversation for turn in conversation.turns[::2]]
    assert 30 <= len(acknowledged) < 120
    assert set(acknowledged) <= set(kept)
    assert len(kept) == len(set(kept))


# --- statements -------------------------------------------------------------------------------------------------------


_REPLACED = """INSERT INTO texts (kind, key, at) VALUES (%s, %s, %s) \
ON CONFLICT (tenant, kind, key) DO UPDATE SET at = excluded.at"""


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT 1 WHERE a = ? AND b LIKE ?", "SELECT 1 WHERE a = %s AND b ILIKE %s"),
        ("SELECT a::jsonb WHERE b = :name", "SELECT a::jsonb WHERE b = %(name)s"),
        ("SELECT a LIKE '%x%'", "SELECT a ILIKE '%%x%%'"),
        ("INSERT OR REPLACE INTO texts (kind, key, at) VALUES (?, ?, ?)", _REPLACED),
    ],
)
def test_a_statement_is_written_as_postgresql_reads_it(statement: str, expected: str) -> None:
    assert translate_statement(statement) == expected
