"""The SQLite file: schema, migrations and transactions on pooled connections.

* WAL: a reader sees the file as of its start; a writer waits for other writers up to a time limit.
* ``synchronous = FULL``: committed data survives a power failure, which is frequent on boards.
* Folder and files are accessible to the owner only (0700, 0600).
* SQLite errors become StorageError. A damaged file is never repaired or deleted.

Each base has a contentless FTS5 table ``text_<base>``: one table for all bases is slower for a small base.
It stores no positions and ranks nothing: searches read the chunks of each term. Terms come from ``text_analysis``; the
``ascii`` tokenizer only splits at spaces, because all other non-ASCII characters are letters to it.

Requires SQLite 3.37 (Ubuntu 22.04). References: SQLite, "Write-Ahead Logging", "Result and Error Codes".
"""

# ruff: noqa: S608 - the SQL is put together from constants, whole numbers and question marks; values are parameters

from __future__ import annotations

import errno
import sqlite3
import threading
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mcp_servers.knowledge.errors import (
    StorageBusyError,
    StorageDamagedError,
    StorageError,
    StorageFullError,
    StorageNewerError,
)
from mcp_servers.knowledge.storage.database import BATCH_S, BUSY_TIMEOUT_S, NO_CHUNKS, ChunkKeys, DatabaseBase
from rkllm_base.databases import Fault, NewerSchemaError, migrations_of
from rkllm_base.sqlite import create_private, fault_of, migrate, steps_taken

MIGRATIONS = migrations_of(Path(__file__).with_name("schema.sql"))


@dataclass(frozen=True)
class FullTextTables:
    """Chunks by the terms that they contain: the full-text tables of the bases.

    Version 0 is the index of a base that is searched. One of another version, that of the analyzer, is built next to it
    and then replaces it. The background work merges the segments of the tables.
    """

    connection: sqlite3.Connection

    def create(self, base: int, version: int = 0) -> None:
        """Create an empty index; an unfinished one of another version is dropped."""
        for unfinished in self._tables(base, "rebuilt"):
            self.connection.execute(f"DROP TABLE {unfinished}")
        name = _table(base, version)
        sql = f"CREATE VIRTUAL TABLE {name} USING fts5(terms, content='', detail='none', tokenize='ascii')"
        self.connection.execute(sql)
        # Merging while it writes, FTS5 takes 50 ms for some commits.
        settings = {"automerge": 0, "crisismerge": 64}
        self.connection.executemany(f"INSERT INTO {name} ({name}, rank) VALUES (?, ?)", settings.items())

    def drop(self, base: int) -> None:
        """Drop all indexes of a base."""
        for kind in ("text", "rebuilt", "replaced", "vocabulary"):
            for name in self._tables(base, kind):
                self.connection.execute(f"DROP TABLE {name}")

    def add(self, base: int, chunks: Iterable[tuple[int, str]], version: int = 0) -> None:
        """Add chunks with their terms, which are separated by spaces."""
        self.connection.executemany(f"INSERT INTO {_table(base, version)} (rowid, terms) VALUES (?, ?)", chunks)

    def remove(self, base: int, chunks: Iterable[tuple[int, str]], version: int = 0) -> None:
        """Remove chunks with exactly the terms that were added."""
        name = _table(base, version)
        self.connection.executemany(f"INSERT INTO {name} ({name}, rowid, terms) VALUES ('delete', ?, ?)", chunks)

    def frequencies(self, base: int, terms: Sequence[str]) -> dict[str, int]:
        """Return the number of chunks that contain each term; a character that is not ASCII begins the term."""
        sql = f"SELECT COUNT(*) FROM text_{base:d} WHERE text_{base:d} MATCH ?"
        return {term: self.connection.execute(sql, (_phrase(term),)).fetchone()[0] for term in terms}

    def postings(self, base: int, terms: Sequence[str]) -> dict[str, ChunkKeys]:
        """Return the chunks that contain each term in ascending order, as ``frequencies``."""
        # One string is twice as fast as a row for each chunk.
        sql = f"SELECT GROUP_CONCAT(rowid) FROM text_{base:d} WHERE text_{base:d} MATCH ?"
        joined = {term: self.connection.execute(sql, (_phrase(term),)).fetchone()[0] for term in terms}
        return {term: np.fromstring(keys, np.int64, sep=",") if keys else NO_CHUNKS for term, keys in joined.items()}

    def last(self, base: int, version: int) -> int | None:
        """Return the last chunk of an unfinished index, 0 if it is empty; None if no such index exists."""
        name = _table(base, version)
        if not self.connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone():
            return None
        row = self.connection.execute(f"SELECT rowid FROM {name} ORDER BY rowid DESC LIMIT 1").fetchone()
        return row[0] if row else 0

    def replace(self, base: int, version: int) -> None:
        """Search a finished index from now on; the old one is deleted by ``delete_replaced``."""
        rebuilt = _table(base, version)
        # All segments in one are searched twice as fast as ten.
        self.connection.execute(f"INSERT INTO {rebuilt} ({rebuilt}, rank) VALUES ('merge', ?)", (-_MERGED_PAGES,))
        # Earlier versions had a vocabulary table as well.
        self.connection.execute(f"DROP TABLE IF EXISTS vocabulary_{base:d}")
        (number,) = self.connection.execute("SELECT MAX(rowid) FROM sqlite_master").fetchone()
        self.connection.execute(f"ALTER TABLE text_{base:d} RENAME TO replaced_{base:d}_{number:d}")
        self.connection.execute(f"ALTER TABLE {rebuilt} RENAME TO text_{base:d}")

    def merge(self, base: int, seconds: float, version: int = 0) -> bool:
        """Make an index faster for some time; return False if nothing is left to do."""
        name, end = _table(base, version), time.monotonic() + seconds
        while True:
            before = self.connection.total_changes
            self.connection.execute(f"INSERT INTO {name} ({name}, rank) VALUES ('merge', ?)", (_MERGED_PAGES,))
            # SQLite, "FTS5", 6.9: fewer than two changes mean that nothing was done.
            is_left = self.connection.total_changes - before > 1
            if not is_left or time.monotonic() > end:
                return is_left

    def has_replaced(self, base: int) -> bool:
        """Return True if ``delete_replaced`` has something to do."""
        return bool(self._tables(base, "replaced"))

    def delete_replaced(self, base: int) -> bool:
        """Delete a part of the replaced indexes, for ``BATCH_S``; return False if none exist."""
        end = time.monotonic() + BATCH_S
        for name in self._tables(base, "replaced"):
            for part, rows in (("data", _DELETED_PAGES), ("docsize", 20 * _DELETED_PAGES)):
                # The first rows describe the index.
                query = f"SELECT rowid FROM {name}_{part} WHERE rowid > 10 LIMIT {rows}"
                while self.connection.execute(f"DELETE FROM {name}_{part} WHERE rowid IN ({query})").rowcount:
                    if time.monotonic() > end:
                        return True
            self.connection.execute(f"DROP TABLE {name}")
            return True
        return False

    def _tables(self, base: int, kind: str) -> list[str]:
        sql = "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE %' AND name GLOB ?"
        pattern = f"{kind}_{base:d}{'' if kind in ('text', 'vocabulary') else '_*'}"
        return [name for (name,) in self.connection.execute(sql, (pattern,))]


class SQLiteTransaction(sqlite3.Connection):
    """A connection inside of a transaction, with the index of terms."""

    @property
    def terms(self) -> FullTextTables:
        """The index of terms."""
        return FullTextTables(self)


def _table(base: int, version: int) -> str:
    return f"rebuilt_{base:d}_{version:d}" if version else f"text_{base:d}"


def _phrase(term: str) -> str:
    # Quoted, so that terms are not parsed as operators. A single character is a prefix of bigrams.
    return f'"{term}"*' if len(term) == 1 and not term.isascii() else f'"{term}"'


FILE_NAME = "knowledge.sqlite3"
# Of 4 KB each.
_DELETED_PAGES, _MERGED_PAGES = 50, 8
# Cache for frequently used pages. Memory mapping is not used: a read error of the card would kill the process.
_CACHE_KIB = 16_384
# Imports rewrite the same index pages; checkpoints at 16 MiB save writes.
_LOG_BYTES = 16 << 20
# Of 4 KB each. The background work makes the checkpoints, so that imports do not wait for one, unless it falls behind.
_CHECKPOINT_PAGES = 10_000


class SQLiteDatabase(DatabaseBase):
    """The database of a folder, created if missing; raises StorageError if it is damaged, newer or unusable."""

    def __init__(self, folder: Path, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        super().__init__(busy_timeout_s)
        self.path = folder / FILE_NAME
        self._idle: list[SQLiteTransaction] = []
        self._idle_lock = threading.Lock()
        self._is_closed = False
        try:
            create_private(self.path)
        except OSError as error:
            kind = StorageFullError if error.errno in (errno.ENOSPC, errno.EDQUOT) else StorageError
            raise kind(str(self.path), error.strerror or str(error)) from error
        with self._translate_errors():
            connection = self._connect()
            try:
                migrate(connection, MIGRATIONS)
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
    def reading(self) -> Generator[SQLiteTransaction, None, None]:
        """Open a read transaction: a consistent snapshot."""
        with self._translate_errors(), self._connection() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")

    @contextmanager
    def writing(self, *, is_durable: bool = True) -> Generator[SQLiteTransaction, None, None]:
        """Open a write transaction: committed at the end, rolled back on an exception. There is one at a time.

        One that is not durable waits for no disk: it may be lost if the power fails before the next durable one. The
        background work uses it, and it copies a long write-ahead log into the file before.
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

    def back_up(self, file: Path) -> None:
        """Copy the database, also in use, to a file."""
        with self.reading() as connection, closing(sqlite3.connect(file)) as target:
            connection.backup(target)

    def checkpoint(self) -> None:
        """Copy a long write-ahead log into the file; others read and write meanwhile."""
        with suppress(OSError), self._translate_errors(), self._connection() as connection:
            if Path(f"{self.path}-wal").stat().st_size > _LOG_BYTES:
                connection.execute("PRAGMA wal_checkpoint").fetchall()

    @contextmanager
    def _connection(self) -> Generator[SQLiteTransaction, None, None]:
        with self._idle_lock:
            connection = self._idle.pop() if self._idle else None
        connection = connection or self._connect()
        has_failed = False
        try:
            yield connection
        except sqlite3.Error:
            has_failed = True
            raise
        finally:
            with self._idle_lock:
                is_usable = not has_failed and not self._is_closed
                if is_usable:
                    self._idle.append(connection)
            if not is_usable:
                connection.close()

    def _connect(self) -> SQLiteTransaction:
        connection = sqlite3.connect(
            self.path,
            timeout=self._busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
            factory=SQLiteTransaction,
        )
        try:
            # Checked first: a newer file must not be modified.
            steps_taken(connection, MIGRATIONS)
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
            kind = _ERRORS.get(fault_of(error, self.path), StorageError)
            raise kind(str(self.path), str(error)) from error
        except NewerSchemaError as error:
            raise StorageNewerError(str(self.path), str(error)) from None


_ERRORS: Mapping[Fault, type[StorageError]] = {
    Fault.FULL: StorageFullError,
    Fault.DAMAGED: StorageDamagedError,
    Fault.BUSY: StorageBusyError,
}
