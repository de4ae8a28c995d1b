"""The file that remembers: who may read it, what harms it, and that nothing harms the assistant."""

from __future__ import annotations

import sqlite3
import stat
import sys
import threading
from ast import literal_eval
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.errors import StoreError
from rkllm_mcp.store.database import MIGRATIONS, SQLiteDatabase, Transaction, open_database, state_file
from tests.support.demo_app import open_descriptors
from tests.support.sampled import sampled

pytestmark = pytest.mark.anyio
PATIENCE_S = 60.0

WRITER = """
import sys, anyio
from pathlib import Path
from rkllm_mcp.records import CallRecord
from rkllm_mcp.store import open_store

async def main():
    async with open_store(path=Path(sys.argv[1]), required=True) as memory:
        for number in range(50):
            memory.calls.record(CallRecord(float(2**40 + number), "s", sys.argv[2], "{}", "free"))
        await memory.flush()

anyio.run(main)
"""


def count(connection: Transaction) -> int:
    return int(connection.execute("SELECT COUNT(*) FROM texts").fetchone()[0])


def put(connection: Transaction) -> None:
    connection.execute("INSERT INTO texts (kind, key, text, at) VALUES ('k', hex(randomblob(8)), 'x', 0)")


def break_in_the_middle(connection: Transaction) -> None:
    put(connection)
    raise KeyError("mine")


def tables(connection: Transaction) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}


@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({"RKLLM_MCP_STATE": "/a", "XDG_STATE_HOME": "/b"}, "/a"),
        ({"XDG_STATE_HOME": "/b"}, "/b/rkllm-mcp"),
        ({"XDG_STATE_HOME": "not/absolute"}, "~/.local/state/rkllm-mcp"),
        ({}, "~/.local/state/rkllm-mcp"),
    ],
)
def test_the_file_is_where_such_files_are(env: dict[str, str], folder: str) -> None:
    assert state_file(env) == Path(folder).expanduser() / "state.db"


async def test_the_file_and_its_folder_are_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state" / "state.db"
    async with open_database(path, on_problem=pytest.fail, required=True) as database:
        database.tell(put)
        await database.flush()
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        assert modes == {"state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [file.name for file in path.parent.iterdir()] == ["state.db"]


async def test_work_that_fails_leaves_nothing(tmp_path: Path) -> None:
    async with open_database(tmp_path / "state.db", on_problem=pytest.fail) as database:
        with pytest.raises(KeyError, match="mine"):
            await database.ask(break_in_the_middle)
        assert await database.ask(count) == 0


def damaged(path: Path) -> None:
    path.write_bytes(b"this is no database" * 100)


def newer(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()


def folder_instead(path: Path) -> None:
    path.mkdir()


def file_above(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("a file")


UNUSABLE: dict[Callable[[Path], None], str] = {
    damaged: "file is not a database); move it away; a new one is made",
    newer: "written by a newer version of rkllm-mcp); update rkllm-mcp, or name another folder in RKLLM_MCP_STATE",
    folder_instead: "Is a directory); name another folder in RKLLM_MCP_STATE",
    file_above: "name another folder in RKLLM_MCP_STATE",
}


@pytest.mark.parametrize("harm", UNUSABLE)
async def test_a_file_that_cannot_be_used_costs_the_memory_and_not_the_assistant(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    path = tmp_path / "folder" / "state.db"
    path.parent.mkdir()
    harm(path)
    before = path.read_bytes() if path.is_file() else b""
    problems: list[str] = []
    async with open_database(path, on_problem=problems.append) as database:
        database.tell(put)
        assert await database.ask(count) == 1
        await anyio.lowlevel.checkpoint()
    (problem,) = problems
    assert problem.startswith(f"[State: {path} cannot be used (")
    assert f"{UNUSABLE[harm]}. The assistant continues without saving data.]" in problem
    assert (path.read_bytes() if path.is_file() else b"") == before
    with pytest.raises(StoreError, match="cannot be used"):
        async with open_database(path, on_problem=pytest.fail, required=True):
            raise AssertionError("it must not open")


async def test_a_disk_that_fills_up_is_reported_once_and_nothing_stops(tmp_path: Path) -> None:
    def fill(connection: Transaction) -> None:
        pages = int(connection.execute("PRAGMA page_count").fetchone()[0])
        connection.execute(f"PRAGMA max_page_count = {pages}")

    def put_much(connection: Transaction) -> None:
        connection.execute("INSERT INTO texts (kind, key, text, at) VALUES ('k', 'k', zeroblob(1000000), 0)")

    problems: list[str] = []
    async with open_database(tmp_path / "state.db", on_problem=problems.append) as database:
        await database.ask(fill)
        for _ in range(3):
            database.tell(put_much)
        with pytest.raises(StoreError, match="is full"):
            await database.flush()
        assert await database.ask(count) == 0
    assert [problem.partition(" (")[2] for problem in problems] == [
        "database or disk is full); make room on that disk. The assistant continues without saving data.]"
    ]


async def test_a_writer_that_another_process_delays_for_too_long_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    def be_impatient(connection: Transaction) -> None:
        connection.execute("PRAGMA busy_timeout = 1")

    async with open_database(path, on_problem=pytest.fail) as database:
        await database.ask(be_impatient)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another rkllm-mcp is using it; end that process"):
            await database.ask(count)
        # Readers do not wait for a writer, and the next write waits less.
        assert await database.rows("PRAGMA busy_timeout") == [(200,)]
        assert await database.ask(count, reads=True) == 0
        other.execute("ROLLBACK")
        other.close()
        assert await database.ask(count) == 0
        assert await database.rows("PRAGMA busy_timeout") == [(5000,)]


KILLED_MIGRATION = """
import os, shutil, signal, sqlite3, sys
from itertools import count
from pathlib import Path
from rkllm_base.sqlite import migrate, steps_taken
from rkllm_mcp.store.database import MIGRATIONS

old, path, reports = Path(sys.argv[1]), Path(sys.argv[2]), []
for number in count(1, 11):
    shutil.copy(old, path)
    if not (child := os.fork()):
        connection = sqlite3.connect(path, isolation_level=None)
        left = iter(range(number))
        connection.execute("PRAGMA journal_mode = WAL")
        # Called for each instruction of SQLite's machine.
        connection.set_progress_handler(lambda: next(left, None) is None and os.kill(os.getpid(), signal.SIGKILL), 1)
        migrate(connection, MIGRATIONS)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
    connection = sqlite3.connect(path, isolation_level=None)
    reports.append((steps_taken(connection, MIGRATIONS), connection.execute("PRAGMA integrity_check").fetchone()[0]))
    migrate(connection, MIGRATIONS)
    reports.append((steps_taken(connection, MIGRATIONS), connection.execute("SELECT text FROM texts").fetchone()[0]))
    connection.close()
    for suffix in ("", "-journal", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
print(reports)
"""


# The oldest takes every migration, the last of them alone is the shortest.
@sampled("version", range(1, len(MIGRATIONS)), every=len(MIGRATIONS))
async def test_a_migration_that_is_killed_at_any_moment_has_not_begun_and_is_done_whole_by_the_next(
    tmp_path: Path, version: int
) -> None:
    old = tmp_path / "old.db"
    connection = sqlite3.connect(old, isolation_level=None)
    for statement in (statement for migration in MIGRATIONS[:version] for statement in migration):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {version}")
    put(connection)
    connection.close()
    arguments = [sys.executable, "-c", KILLED_MIGRATION, str(old), str(tmp_path / "state.db")]
    done = await anyio.run_process(arguments)
    reports = literal_eval(done.stdout.decode())
    assert set(reports) == {(version, "ok"), (len(MIGRATIONS), "x")}
    assert len(reports) >= 10


async def test_several_processes_write_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    names = ["a", "b", "c"]
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as writers:
            for name in names:
                writers.start_soon(anyio.run_process, [sys.executable, "-c", WRITER, str(path), name])
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT tool, COUNT(*) FROM calls GROUP BY tool ORDER BY tool").fetchall()
    connection.close()
    assert found == [("a", 50), ("b", 50), ("c", 50)]


async def test_leaving_a_wait_harms_no_other_caller(tmp_path: Path) -> None:
    async with open_database(tmp_path / "state.db", on_problem=pytest.fail) as database:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await database.ask(count)
        assert scope.cancelled_caught
        assert await database.ask(count) == 0


async def test_errors_after_the_end_are_logged_and_not_raised(tmp_path: Path) -> None:
    problems: list[str] = []
    database = SQLiteDatabase(tmp_path / "state.db", problems.append)
    await database.open(required=True)
    await database.aclose()
    database.tell(put)
    await anyio.lowlevel.checkpoint()
    assert len(problems) == 1


async def test_no_descriptor_and_no_thread_is_left(tmp_path: Path) -> None:
    before = open_descriptors(), threading.active_count()
    for _ in range(3):
        async with open_database(tmp_path / "state.db", on_problem=pytest.fail) as database:
            await database.ask(count)
            assert threading.active_count() == before[1] + 1
    assert (open_descriptors(), threading.active_count()) == before
