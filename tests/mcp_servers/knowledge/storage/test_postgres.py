"""Knowledge in PostgreSQL: ranked as in a file, shared by several servers, and whole when the database dies."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from bench.own_words import read_office
from mcp_servers.knowledge.embedding.hashing import HashingEmbedder
from mcp_servers.knowledge.errors import (
    BadArgumentError,
    KnowledgeError,
    StorageAwayError,
    StorageBusyError,
    StorageError,
    StorageNewerError,
)
from mcp_servers.knowledge.importing.folders import FolderRules, WatchRules
from mcp_servers.knowledge.library import Library, LibrarySettings, open_library
from mcp_servers.knowledge.service import open_service
from mcp_servers.knowledge.settings import Settings, WatchedFolder
from mcp_servers.knowledge.storage.bases import bases, create_base
from mcp_servers.knowledge.storage.postgres import PostgresDatabase
from mcp_servers.knowledge.types import UNRESTRICTED, SearchRequest
from tests.support.knowledge import document
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.anyio
CHUNKS = 12


@asynccontextmanager
async def servers(folder: Path, url: str, count: int) -> AsyncGenerator[list[Library], None]:
    """As many servers over one database."""
    async with AsyncExitStack() as stack:
        settings = LibrarySettings(HashingEmbedder(), database_url=url)
        yield [await stack.enter_async_context(open_library(folder, settings)) for _ in range(count)]


class Progress:
    """What two servers have done so far."""

    def __init__(self) -> None:
        self.committed: set[str] = set()
        self.errors: list[KnowledgeError] = []
        self._changed = anyio.Event()

    def note(self) -> None:
        """Wake those who wait."""
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, documents: int, errors: int) -> None:
        """Wait until there are this many more of them."""
        documents, errors = documents + len(self.committed), errors + len(self.errors)
        while len(self.committed) < documents or len(self.errors) < errors:
            await self._changed.wait()


async def found(library: Library, base_id: str, query: str) -> list[str]:
    result = await library.search(SearchRequest(query, base_id, threshold=0.0, max_results=50))
    return [hit.uri for hit in result.hits]


# --- the same ranking -------------------------------------------------------------------------------------------------


async def test_an_offices_questions_have_the_same_passages_in_the_same_order(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    documents, questions = read_office()
    orders: list[list[list[tuple[str, float]]]] = []
    for url in ("", postgres.new_database()):
        async with open_library(tmp_path, LibrarySettings(HashingEmbedder(), database_url=url)) as library:
            base = await library.create("office")
            for title, text in documents.items():
                await library.add(base.id, document(text, title=title, uri=title))
            results = [await library.search(SearchRequest(each.text, base.id, 0.0)) for each in questions]
            orders.append([[(hit.uri, round(hit.score, 9)) for hit in each.hits] for each in results])
    assert len(orders[0]) > 50
    assert orders[1] == orders[0]


@pytest.mark.parametrize("query", ["全", "ц", "x" * 5000, "a\0b", "100%", "?", "熟語"])
async def test_single_characters_and_long_words_are_looked_up_as_in_a_file(
    query: str, tmp_path: Path, postgres: PostgresServer
) -> None:
    results: list[list[str]] = []
    for url in ("", postgres.new_database()):
        async with open_library(tmp_path, LibrarySettings(database_url=url)) as library:
            base = await library.create("words")
            for name, text in {
                "begins": "全部の熟語",
                "ends": "安全",
                "alone": "全 ц",
                "cyrillic": "царь",
                "long": f"{'x' * 5000} {'x' * 4999}y",
                "odd": "a\0b 100% of it, %s?",
            }.items():
                added = await library.add(base.id, document(text, uri=name))
                assert added.is_new
            results.append(await found(library, base.id, query))
    assert results[1] == results[0]


# --- several servers --------------------------------------------------------------------------------------------------


async def test_what_one_server_imports_or_removes_the_other_knows_at_once(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    async with servers(tmp_path, postgres.new_database(), 2) as (first, second):
        base = await first.create("shared")
        assert await found(second, base.id, "rain") == []
        added = await first.add(base.id, document("rain and wind", uri="a"))
        assert await found(second, base.id, "rain") == ["a"]
        await second.add(base.id, document("more rain", uri="b"))
        assert sorted(await found(first, base.id, "rain")) == ["a", "b"]
        assert (await second.add(base.id, document("rain and wind", uri="a"))).is_new is False
        await second.remove(added.document_id)
        assert await found(first, base.id, "rain") == ["b"]


async def test_servers_that_write_at_once_lose_and_double_nothing(tmp_path: Path, postgres: PostgresServer) -> None:
    url, count = postgres.new_database(), 8
    async with servers(tmp_path, url, 3) as several:
        base = await several[0].create("shared")

        async def write(server: int) -> None:
            for number in range(count):
                # All write the last one.
                uri = f"{server}.{number}" if number < count - 1 else "last"
                # The same content at another place is not indexed again.
                await several[server].add(base.id, document(*[f"rain {uri}"] * CHUNKS, uri=uri, title=uri))

        async with anyio.create_task_group() as tasks:
            for server in range(len(several)):
                tasks.start_soon(write, server)
        expected = {f"{server}.{number}" for server in range(3) for number in range(count - 1)} | {"last"}
        for library in several:
            documents = await library.documents(base.id)
            assert sorted(each.uri for each in documents) == sorted(expected)
            assert (await library.summary(base.id)).total_chunks == len(expected) * CHUNKS
    name = url.partition("@/")[2].partition("?")[0]
    figures = "SELECT chunks, (SELECT COUNT(*) FROM knowledge.chunk), (SELECT vectors FROM knowledge.embedding)"
    assert postgres.run(f"{figures} FROM knowledge.base", name) == "|".join([str(len(expected) * CHUNKS)] * 3)


async def test_servers_that_begin_together_make_the_tables_once(postgres: PostgresServer) -> None:
    url, databases = postgres.new_database(), list[PostgresDatabase]()

    async def begin() -> None:
        databases.append(await anyio.to_thread.run_sync(PostgresDatabase, url))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(begin)
    for database in databases:
        assert database.read(bases, UNRESTRICTED) == []
        database.close()
    name = url.partition("@/")[2].partition("?")[0]
    assert postgres.run("SELECT version FROM knowledge.schema_version", name) == "1"


# --- refusals ---------------------------------------------------------------------------------------------------------


async def test_a_layout_of_a_newer_version_is_left_alone(tmp_path: Path, postgres: PostgresServer) -> None:
    url = postgres.new_database()
    async with servers(tmp_path, url, 1):
        pass
    name = url.partition("@/")[2].partition("?")[0]
    postgres.run("INSERT INTO knowledge.schema_version VALUES (99)", name)
    with pytest.raises(StorageNewerError, match="layout 99"):
        async with servers(tmp_path, url, 1):
            pass


async def test_a_role_that_may_not_make_tables_is_told_so(tmp_path: Path, postgres: PostgresServer) -> None:
    with pytest.raises(StorageError, match="permission denied for database postgres"):
        async with servers(tmp_path, f"postgresql://board@/postgres?host={postgres.folder}", 1):
            pass


def test_a_write_that_waits_too_long_for_another_server_says_so(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    patient, impatient = PostgresDatabase(url), PostgresDatabase(url, busy_timeout_s=0.1)
    is_held, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        with patient.writing():
            is_held.set()
            is_over.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert is_held.wait(30)
        with pytest.raises(StorageBusyError, match="lock timeout"), impatient.writing():
            pass
        with impatient.reading() as connection:
            assert connection.execute("SELECT COUNT(*) FROM base").fetchone() == (0,)
    finally:
        is_over.set()
        holder.join()
        patient.close()
        impatient.close()


def test_a_write_that_fails_leaves_nothing(postgres: PostgresServer) -> None:
    database = PostgresDatabase(postgres.new_database())
    with pytest.raises(LookupError), database.writing() as connection:
        create_base(connection, "half", "", "")
        raise LookupError
    with database.reading() as connection:
        assert connection.execute("SELECT name FROM base").fetchall() == []
    database.close()


async def test_a_backup_is_left_to_the_database(tmp_path: Path, postgres: PostgresServer) -> None:
    async with servers(tmp_path, postgres.new_database(), 1) as (library,):
        with pytest.raises(BadArgumentError, match="pg_dump"):
            await library.back_up(tmp_path / "backup")
        assert not await anyio.Path(tmp_path / "backup").exists()


# --- death of the database --------------------------------------------------------------------------------------------


async def test_a_server_that_starts_before_its_database_waits_for_it(tmp_path: Path, mortal: PostgresServer) -> None:
    url = mortal.new_database()
    mortal.kill()
    async with servers(tmp_path, url, 1) as (library,):
        with pytest.raises(StorageAwayError, match="cannot be reached") as problem:
            await library.create("early")
        assert problem.value.status == 503
        assert "board@" not in str(problem.value)
        await anyio.to_thread.run_sync(mortal.start)
        base = await library.create("late")
        assert await library.bases() == (base,)


async def test_a_watched_folder_is_read_when_the_database_is_there(tmp_path: Path, mortal: PostgresServer) -> None:
    url, folder = mortal.new_database(), tmp_path / "notes"
    folder.mkdir()
    (folder / "rain.txt").write_text("rain and wind", "utf-8")
    mortal.kill()
    settings = Settings(tmp_path / "data", database_url=url, watch=(WatchedFolder(folder, "notes"),))
    rules = WatchRules(FolderRules(settle_s=0.0), debounce_s=0.05, interval_s=0.2)
    async with open_service(settings, rules) as service:
        await anyio.to_thread.run_sync(mortal.start)
        with anyio.fail_after(120):
            overview = await service.library.overview()
            while not overview or not overview[0][1].total_documents:
                await anyio.sleep(0.1)
                overview = await service.library.overview()
        (base, _) = overview[0]
        assert base.name == "notes"
        assert await found(service.library, base.id, "rain") == [(folder / "rain.txt").as_uri()]


async def test_a_database_killed_in_imports_and_searches_loses_nothing_and_leaves_no_halves(
    tmp_path: Path, mortal: PostgresServer
) -> None:
    url, kills = mortal.new_database(), 3
    progress = Progress()
    async with servers(tmp_path, url, 2) as several:
        base = await several[0].create("shared")

        async def write(server: int, scope: anyio.CancelScope) -> None:
            number = 0
            while not scope.cancel_called:
                number += 1
                uri = f"{server}.{number}"
                try:
                    await several[server].add(base.id, document(*[f"rain {uri}"] * CHUNKS, uri=uri))
                    progress.committed.add(uri)
                    assert await found(several[server], base.id, uri)
                except KnowledgeError as error:
                    progress.errors.append(error)
                    await anyio.sleep(0.05)
                progress.note()

        with anyio.fail_after(180):
            async with anyio.create_task_group() as tasks:
                scope = anyio.CancelScope()
                for server in range(len(several)):
                    tasks.start_soon(write, server, scope)
                for _ in range(kills):
                    await progress.until(documents=4, errors=0)
                    await anyio.to_thread.run_sync(mortal.kill)
                    await progress.until(documents=0, errors=2)
                    await anyio.to_thread.run_sync(mortal.start)
                scope.cancel()
        assert {type(error) for error in progress.errors} <= {StorageAwayError}
        stored: set[str] = set()
        for library in several:
            stored = {each.uri for each in await library.documents(base.id)}
            # The end of a transaction that was under way at a kill is unknown.
            assert progress.committed <= stored
            assert len(stored - progress.committed) <= kills * len(several)
            assert {each.chunks for each in await library.documents(base.id)} == {CHUNKS}
            for uri in sorted(stored):
                assert uri in await found(library, base.id, uri)
    name = url.partition("@/")[2].partition("?")[0]
    tables = ("chunk", "profile", "vector")
    counts = [mortal.run(f"SELECT COUNT(*) FROM knowledge.{table}", name) for table in tables]
    assert counts == [str(len(stored) * CHUNKS)] * len(tables)
    sums = "SELECT chunks, terms, (SELECT SUM(terms) FROM knowledge.profile) FROM knowledge.base"
    chunks, terms, in_profiles = mortal.run(sums, name).split("|")
    assert (int(chunks), terms) == (len(stored) * CHUNKS, in_profiles)
