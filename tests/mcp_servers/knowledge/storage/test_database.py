"""The file: who may write when, and what is said when it cannot be used."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import pytest

from mcp_servers.knowledge.errors import (
    StorageBusyError,
    StorageDamagedError,
    StorageError,
    StorageFullError,
    StorageNewerError,
)
from mcp_servers.knowledge.library import open_library
from mcp_servers.knowledge.storage.bases import base_by_key, create_base
from mcp_servers.knowledge.storage.documents import PreparedDocument, write_document
from mcp_servers.knowledge.storage.sqlite import FILE_NAME, SQLiteDatabase
from mcp_servers.knowledge.storage.text_index import index_chunk
from mcp_servers.knowledge.types import UNRESTRICTED, SearchRequest
from tests.support.knowledge import document
from tests.support.shared import REPOSITORY


def add(database: SQLiteDatabase, *texts: str, uri: str) -> None:
    """A document into the first base."""
    new = document(*texts, uri=uri)
    with database.writing() as connection:
        prepared = PreparedDocument(new, [index_chunk("", (), text) for text in texts], {})
        write_document(connection, base_by_key(connection, 1), prepared, UNRESTRICTED)


def documents(folder: Path) -> list[str]:
    with sqlite3.connect(folder / FILE_NAME) as connection:
        uris = [row[0] for row in connection.execute("SELECT uri FROM document ORDER BY id")]
    connection.close()
    return uris


def new_database(folder: Path) -> SQLiteDatabase:
    database = SQLiteDatabase(folder)
    with database.writing() as connection:
        create_base(connection, "base", "", "")
    return database


def test_the_folder_and_the_file_are_for_their_owner_alone(tmp_path: Path) -> None:
    SQLiteDatabase(tmp_path / "deep" / "folder").close()
    assert stat.S_IMODE((tmp_path / "deep" / "folder").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "deep" / "folder" / FILE_NAME).stat().st_mode) == 0o600


def test_what_a_failed_transaction_wrote_is_gone(tmp_path: Path) -> None:
    database = new_database(tmp_path)
    with pytest.raises(LookupError), database.writing() as connection:
        create_base(connection, "half", "", "")
        raise LookupError
    with database.reading() as connection:
        assert connection.execute("SELECT name FROM base").fetchall() == [("base",)]
    database.close()


def test_a_reader_sees_one_moment_while_another_writes(tmp_path: Path) -> None:
    database = new_database(tmp_path)
    count = "SELECT COUNT(*) FROM document"
    with database.reading() as reader:
        assert reader.execute(count).fetchone() == (0,)
        add(database, "rain", uri="a")
        assert reader.execute(count).fetchone() == (0,)
    with database.reading() as reader:
        assert reader.execute(count).fetchone() == (1,)
    database.close()


def test_a_full_disk_is_an_error_and_costs_only_the_current_write(tmp_path: Path) -> None:
    database = new_database(tmp_path)
    add(database, "rain", uri="kept")
    # SQLite's own limit on the pages of a file gives the result code of a full disk.
    with database.reading() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageFullError, match="Make room and repeat") as caught:
        add(database, *(f"many words {number}" for number in range(2000)), uri="too much")
    assert caught.value.status == 507
    assert documents(tmp_path) == ["kept"]
    add(database, "and on it goes", uri="later")
    assert documents(tmp_path) == ["kept", "later"]
    database.close()


def test_background_work_waits_for_searches_and_writers_but_not_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = SQLiteDatabase(tmp_path)
    for busy, limit_s in ((database.searching, 60.0), (database.writing, 0.0)):
        monkeypatch.setattr("mcp_servers.knowledge.storage.database._GIVES_WAY_S", limit_s)
        background = threading.Thread(target=database.give_way)
        with busy():
            background.start()
            background.join(0.1)
            assert background.is_alive()
        background.join(10)
        assert not background.is_alive()
    with database.searching(), database.searching():
        database.give_way()
    database.close()


def test_a_writer_that_waits_too_long_says_so(tmp_path: Path) -> None:
    database, elsewhere = new_database(tmp_path), SQLiteDatabase(tmp_path, busy_timeout_s=0.05)
    with (
        database.writing(),
        pytest.raises(StorageBusyError, match="try again"),
        elsewhere.writing(),
    ):
        pass
    impatient = SQLiteDatabase(tmp_path, busy_timeout_s=0.05)
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with impatient.writing():
            held.set()
            release.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    with pytest.raises(StorageBusyError), impatient.writing():
        pass
    release.set()
    thread.join()
    for one in (database, elsewhere, impatient):
        one.close()


def test_a_file_that_is_not_a_database_is_left_unchanged_and_reported(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"these are my holiday pictures" * 100)
    with pytest.raises(StorageDamagedError, match="put back a backup"):
        SQLiteDatabase(tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes() == b"these are my holiday pictures" * 100


def test_a_file_with_a_hole_is_reported_as_damaged(tmp_path: Path) -> None:
    database = new_database(tmp_path)
    for number in range(30):
        add(database, *(f"words of document {number} place {place}" for place in range(20)), uri=str(number))
    with database.writing() as connection:
        page_size = connection.execute("PRAGMA page_size").fetchone()[0]
    database.close()
    path = tmp_path / FILE_NAME
    content = bytearray(path.read_bytes())
    content[page_size:] = bytes(len(content) - page_size)
    path.write_bytes(content)

    async def search() -> None:
        async with open_library(tmp_path) as library:
            await library.search(SearchRequest("words of document"))

    with pytest.raises(StorageDamagedError, match="damaged"):
        anyio.run(search)


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    new_database(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StorageNewerError, match="Update this program"):
        SQLiteDatabase(tmp_path)


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="permissions"):
        SQLiteDatabase(tmp_path / "file" / "folder")


_WRITER = """
import sys
from pathlib import Path
import anyio
from mcp_servers.knowledge.library import open_library
from tests.support.knowledge import document

async def main(folder, base_id, name):
    async with open_library(Path(folder)) as library:
        for number in range(15):
            await library.add(base_id, document(f"rain {name} {number}", uri=f"{name}/{number}"))

anyio.run(main, *sys.argv[1:])
"""


def start_writer(folder: Path, base_id: str, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", _WRITER, str(folder), base_id, name], cwd=REPOSITORY)


@pytest.mark.anyio
async def test_several_processes_import_while_this_one_searches(tmp_path: Path) -> None:
    async with open_library(tmp_path) as library:
        base = await library.create("shared")
        writers = [start_writer(tmp_path, base.id, name) for name in ("one", "two")]
        seen = [0]
        with anyio.fail_after(60):
            while seen[-1] < 30:
                assert all(writer.poll() in {None, 0} for writer in writers)
                seen.append((await library.summary(base.id)).total_documents)
                result = await library.search(SearchRequest("rain", base.id, threshold=0, max_results=50))
                # What was committed before the search began is found by it.
                assert len(result.hits) >= seen[-1]
        assert [writer.wait(60) for writer in writers] == [0, 0]
    assert seen == sorted(seen)
