"""Migrations of SQLite files, and the kinds of their failures."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from rkllm_base.databases import Fault, NewerSchemaError, migrations_of
from rkllm_base.sqlite import create_private, fault_of, migrate, steps_taken

SCHEMA = """-- What this is.

-- migration 1
CREATE TABLE a (x);
CREATE TABLE b (x);

-- migration 2
ALTER TABLE a ADD COLUMN y;
"""


def test_missing_migrations_are_applied_and_a_newer_file_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "schema.sql").write_text(SCHEMA)
    migrations = migrations_of(tmp_path / "schema.sql")
    assert [len(statements) for statements in migrations] == [2, 1]
    file = tmp_path / "folder" / "a.db"
    create_private(file)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for known in (migrations[:1], migrations):
            migrate(connection, known)
            assert steps_taken(connection, known) == len(known)
        connection.execute("INSERT INTO a (x, y) VALUES (1, 2)")
        with pytest.raises(NewerSchemaError, match="layout 2, this program knows 1"):
            migrate(connection, migrations[:1])


def test_a_second_connection_of_a_process_leaves_the_locks_of_the_first(tmp_path: Path) -> None:
    """As a service that reads its configuration again, and a command that looks into the same file after that."""
    file = tmp_path / "state.db"
    create_private(file)
    first = sqlite3.connect(file, isolation_level=None)
    first.execute("PRAGMA journal_mode = WAL")
    first.execute("CREATE TABLE texts (text)")
    create_private(file)
    with closing(sqlite3.connect(file)) as second:
        assert second.execute("SELECT count(*) FROM texts").fetchone() == (0,)
    command = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM texts').fetchall(); c.close()"
    )
    subprocess.run([sys.executable, "-c", command, str(file)], check=True, timeout=60)
    assert (tmp_path / "state.db-wal").exists(), "the other process took itself for the last one"
    first.execute("INSERT INTO texts VALUES ('kept')")
    with closing(sqlite3.connect(file)) as other:
        assert other.execute("SELECT text FROM texts").fetchall() == [("kept",)]
    first.close()


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("file is not a database", Fault.DAMAGED),
        ("database disk image is malformed", Fault.DAMAGED),
        ("vtable constructor failed: text_1", Fault.DAMAGED),
        ("database or disk is full", Fault.FULL),
        ("database is locked", Fault.BUSY),
        ("disk I/O error", Fault.DISK),
        ("no such table: x", Fault.OTHER),
    ],
)
def test_a_failure_of_sqlite_has_its_kind(tmp_path: Path, words: str, fault: Fault) -> None:
    assert fault_of(sqlite3.OperationalError(words), tmp_path / "a.db") is fault


def test_the_words_of_sqlite_are_those_that_are_looked_for(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    file.write_bytes(b"no database at all, but longer than its header is" * 40)
    with closing(sqlite3.connect(file)) as connection, pytest.raises(sqlite3.Error) as damaged:
        connection.execute("SELECT 1 FROM sqlite_master")
    assert fault_of(damaged.value, file) is Fault.DAMAGED
    file.unlink()
    with closing(sqlite3.connect(file, timeout=0)) as one, closing(sqlite3.connect(file, timeout=0)) as other:
        one.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.Error) as busy:
            other.execute("CREATE TABLE a (x)")
    assert fault_of(busy.value, file) is Fault.BUSY
