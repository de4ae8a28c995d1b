"""The SQLite file: schema, migrations and transactions on pooled connections.

* WAL: a reader sees the file as of its start; a writer waits for other writers up to a time limit.
* ``synchronous = FULL``: committed data survives a power failure, which is frequent on boards.
* Folder and files are accessible to the owner only (0700, 0600).
* SQLite errors become StorageError. A damaged file is never repaired or deleted.
* ``PRAGMA user_version`` counts migrations. Released migrations never change; newer files are left untouched.

Each base has a contentless FTS5 table ``text_<base>`` (one table for all bases is seven times slower for a small base,
docs/knowledge.md). It stores no positions and ranks nothing: searches read the chunks of each term. Terms come from
``text_analysis``; the ``ascii`` tokenizer only splits at spaces, because all other non-ASCII characters are letters to
it.

Requires SQLite 3.37 (Ubuntu 22.04). References: SQLite, "Write-Ahead Logging", "Result and Error Codes".
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from mcp_servers.knowledge.errors import (
    StorageBusyError,
    StorageDamagedError,
    StorageError,
    StorageFullError,
    StorageNewerError,
)

T = TypeVar("T")

# One SQL file for each migration.
_MIGRATIONS = ("schema.sql",)


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Run the missing migrations; raise StorageNewerError or sqlite3.Error."""
    if schema_version(connection, path) == len(_MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Checked again: another process may have migrated meanwhile.
        version = schema_version(connection, path)
        for number, step in enumerate(_MIGRATIONS[version:], version + 1):
            for statement in Path(__file__).with_name(step).read_text("utf-8").split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def schema_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the number of migrations in the file; raise StorageNewerError if this version knows fewer."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(_MIGRATIONS):
        raise StorageNewerError(str(path), f"layout {version}, this program knows {len(_MIGRATIONS)}")
    return version


def create_text_index(connection: sqlite3.Connection, name: str) -> None:
    """Create a contentless full-text table, whose segments the background work merges."""
    connection.execute(f"CREATE VIRTUAL TABLE {name} USING fts5(terms, content='', detail='none', tokenize='ascii')")
    # Merging while it writes, FTS5 takes 50 ms for some commits.
    settings = {"automerge": 0, "crisismerge": 64}
    connection.executemany(f"INSERT INTO {name} ({name}, rank) VALUES (?, ?)", settings.items())  # noqa: S608


def merge_segments(connection: sqlite3.Connection, name: str, seconds: float, *, are_all: bool = False) -> bool:
    """Merge segments of a full-text table for some time; return False if nothing is left to merge.

    With ``are_all`` begin to merge all segments into one, which is searched twice as fast as ten.
    """
    pages, end = (-_MERGED_PAGES if are_all else _MERGED_PAGES), time.monotonic() + seconds
    while True:
        before = connection.total_changes
        connection.execute(f"INSERT INTO {name} ({name}, rank) VALUES ('merge', ?)", (pages,))  # noqa: S608
        # SQLite, "FTS5", 6.9: fewer than two changes mean that nothing was done.
        is_left = connection.total_changes - before > 1
        if not is_left or time.monotonic() > end:
            return is_left


def replace_text_index(connection: sqlite3.Connection, base: int, rebuilt: str) -> None:
    """Search a rebuilt table from now on; the old one is deleted in parts by ``delete_replaced_index``."""
    # Earlier versions had a vocabulary table as well.
    connection.execute(f"DROP TABLE IF EXISTS vocabulary_{base:d}")
    (number,) = connection.execute("SELECT MAX(rowid) FROM sqlite_master").fetchone()
    connection.execute(f"ALTER TABLE text_{base:d} RENAME TO replaced_{base:d}_{number:d}")
    connection.execute(f"ALTER TABLE {rebuilt} RENAME TO text_{base:d}")


def delete_replaced_index(connection: sqlite3.Connection, base: int) -> bool:
    """Delete a part of the replaced text indexes of a base, for ``BATCH_S``; return False if there are none."""
    end = time.monotonic() + BATCH_S
    for name in text_tables(connection, base, "replaced"):
        for part, rows in (("data", _DELETED_PAGES), ("docsize", 20 * _DELETED_PAGES)):
            # The first rows describe the index.
            query = f"SELECT rowid FROM {name}_{part} WHERE rowid > 10 LIMIT {rows}"  # noqa: S608
            while connection.execute(f"DELETE FROM {name}_{part} WHERE rowid IN ({query})").rowcount:  # noqa: S608
                if time.monotonic() > end:
                    return True
        connection.execute(f"DROP TABLE {name}")
        return True
    return False


def text_tables(connection: sqlite3.Connection, base: int, kind: str) -> list[str]:
    """Return the full-text tables of a base: text, or those rebuilt or replaced."""
    sql = "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE %' AND name GLOB ?"
    pattern = f"{kind}_{base:d}{'' if kind in ('text', 'vocabulary') else '_*'}"
    return [name for (name,) in connection.execute(sql, (pattern,))]


def drop_text_tables(connection: sqlite3.Connection, base: int, *kinds: str) -> None:
    """Drop full-text tables of a base."""
    for name in [name for kind in kinds for name in text_tables(connection, base, kind)]:
        connection.execute(f"DROP TABLE {name}")


FILE_NAME = "knowledge.sqlite3"
# Imports wait for one transaction of the background work, which ends after the statement that exceeds this.
BATCH_S = 0.02
# Of 4 KB each.
_DELETED_PAGES, _MERGED_PAGES = 50, 8
# Transactions are short; replacing a text index takes longest.
_BUSY_TIMEOUT_S = 60.0
# So background work ends some day, however many searches come.
_GIVES_WAY_S = 0.05
# Cache for frequently used pages. Memory mapping is not used: a read error of the card would kill the process.
_CACHE_KIB = 16_384
# SQLite reports a disk without room for its side files as an I/O error.
_SIDE_FILES_BYTES = 65_536
# Imports rewrite the same index pages; checkpoints at 16 MiB save writes.
_LOG_BYTES = 16 << 20
# Of 4 KB each. The background work makes the checkpoints, so that imports do not wait for one, unless it falls behind.
_CHECKPOINT_PAGES = 10_000


class Database:
    """The database of a folder, created if missing; raises StorageError if it is damaged, newer or unusable."""

    def __init__(self, folder: Path, busy_timeout_s: float = _BUSY_TIMEOUT_S) -> None:
        self.path = folder / FILE_NAME
        self._busy_timeout_s = busy_timeout_s
        self._idle: list[sqlite3.Connection] = []
        self._idle_lock = threading.Lock()
        self._is_closed = False
        # SQLite polls for its lock; writers of one process queue here instead.
        self._writing = threading.Lock()
        self._searches = 0
        self._searches_changed = threading.Condition()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # SQLite would create it world-readable; its side files inherit this mode.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            kind = StorageFullError if error.errno in (errno.ENOSPC, errno.EDQUOT) else StorageError
            raise kind(str(self.path), error.strerror or str(error)) from error
        with self._translate_errors():
            connection = self._connect()
            try:
                migrate(connection, self.path)
            except BaseException:
                connection.close()
                raise
            self._idle.append(connection)

    def close(self) -> None:
        """Close idle connections now and the others when they are returned."""
        with self._idle_lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            with suppress(sqlite3.Error):
                connection.close()

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection, None, None]:
        """Open a read transaction: a consistent snapshot."""
        with self._translate_errors(), self._connection() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")

    def read(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return the result of a function of a connection and the arguments, in a read transaction."""
        with self.reading() as connection:
            return function(connection, *arguments)

    @contextmanager
    def writing(self, *, is_durable: bool = True) -> Generator[sqlite3.Connection, None, None]:
        """Open a write transaction: committed at the end, rolled back on an exception.

        One that is not durable waits for no disk: it may be lost if the power fails before the next durable one. The
        background work uses it, and copies a long write-ahead log into the file before.
        """
        if not is_durable:
            self.checkpoint()
        if not self._writing.acquire(timeout=self._busy_timeout_s):
            raise StorageBusyError(str(self.path), f"another import has been writing for {self._busy_timeout_s:g} s")
        try:
            with self._translate_errors(), self._connection() as connection:
                connection.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                    raise
        finally:
            self._writing.release()

    @contextmanager
    def searching(self) -> Generator[None, None, None]:
        """Have the background work of this process give way while this is open."""
        with self._searches_changed:
            self._searches += 1
        try:
            yield
        finally:
            with self._searches_changed:
                self._searches -= 1
                self._searches_changed.notify_all()

    def give_way(self) -> None:
        """Wait until no thread of this process writes, and at most ``_GIVES_WAY_S`` until none searches.

        Computing beside one makes it wait 5 ms for the interpreter after each of its statements.
        """
        with self._writing:
            pass
        with self._searches_changed:
            self._searches_changed.wait_for(lambda: not self._searches, _GIVES_WAY_S)

    def checkpoint(self) -> None:
        """Copy a long write-ahead log into the file; others read and write meanwhile."""
        with suppress(OSError), self._translate_errors(), self._connection() as connection:
            if Path(f"{self.path}-wal").stat().st_size > _LOG_BYTES:
                connection.execute("PRAGMA wal_checkpoint").fetchall()

    @contextmanager
    def _connection(self) -> Generator[sqlite3.Connection, None, None]:
        with self._idle_lock:
            connection = self._idle.pop() if self._idle else None
        connection = connection or self._connect()
        try:
            yield connection
        except sqlite3.Error:
            connection.close()
            raise
        except BaseException:
            self._give_back(connection)
            raise
        self._give_back(connection)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._idle_lock:
            if not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self) -> sqlite3.Connection:
        timeout_s = self._busy_timeout_s
        connection = sqlite3.connect(self.path, timeout=timeout_s, isolation_level=None, check_same_thread=False)
        try:
            # Checked first: a newer file must not be modified.
            schema_version(connection, self.path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _translate_errors(self) -> Generator[None, None, None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _storage_error(str(self.path), error) from error


def _storage_error(path: str, error: sqlite3.Error) -> StorageError:
    # Python 3.10 has no sqlite_errorcode; SQLite's messages have been stable for ten years.
    text = str(error)
    # SQLite's message if the disk has no space even for its side files.
    if "disk I/O error" in text and _is_full(path):
        return StorageFullError(path, text)
    for words, kind in _ERROR_CLASSES:
        if words in text:
            return kind(path, text)
    return StorageError(path, text)


def _is_full(path: str) -> bool:
    try:
        disk = os.statvfs(Path(path).parent)
        return disk.f_bavail * disk.f_frsize < _SIDE_FILES_BYTES
    except OSError:
        return False


_ERROR_CLASSES: tuple[tuple[str, type[StorageError]], ...] = (
    ("disk is full", StorageFullError),
    ("malformed", StorageDamagedError),
    ("not a database", StorageDamagedError),
    ("vtable constructor failed", StorageDamagedError),
    ("locked", StorageBusyError),
    ("busy", StorageBusyError),
)
