"""The tables, and the steps that bring an older file to them.

``PRAGMA user_version`` counts the steps that were taken; each is one transaction, and none is ever changed once it was
released. A file that has taken more steps than there are is left alone.

Text index: ``text_<base>`` is a contentless FTS5 table per base (one for all bases is seven times slower for a small
base among large ones, docs/knowledge.md), ``vocabulary_<base>`` its vocabulary. Terms are made in ``analysis``; the
``ascii`` tokenizer only cuts at the spaces between them, as it takes every other character beyond ASCII for a letter.

Written for SQLite 3.37 (Ubuntu 22.04) and later.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from mcp_servers.knowledge.errors import (
    StorageBusyError,
    StorageDamagedError,
    StorageError,
    StorageFullError,
    StorageNewerError,
)

_MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE base (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        uuid TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        description TEXT NOT NULL,
        tenant TEXT NOT NULL,
        created TEXT NOT NULL,
        analyzer INTEGER NOT NULL,
        chunks INTEGER NOT NULL DEFAULT 0,
        terms INTEGER NOT NULL DEFAULT 0,
        embedding INTEGER REFERENCES embedding(id),
        becoming INTEGER REFERENCES embedding(id)
    );
    -- The vectors one embedder made of a base; total is their sum, which points where the base's documents lie;
    -- changes tells a process whether the vectors it has in memory are still these.
    CREATE TABLE embedding (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        base INTEGER NOT NULL REFERENCES base(id),
        embedder TEXT NOT NULL,
        dimensions INTEGER NOT NULL DEFAULT 0,
        vectors INTEGER NOT NULL DEFAULT 0,
        changes INTEGER NOT NULL DEFAULT 0,
        total BLOB NOT NULL DEFAULT x''
    );
    CREATE TABLE collection (
        id INTEGER PRIMARY KEY,
        uuid TEXT NOT NULL UNIQUE,
        base INTEGER NOT NULL REFERENCES base(id),
        name TEXT NOT NULL,
        UNIQUE (base, name)
    );
    CREATE TABLE document (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        uuid TEXT NOT NULL UNIQUE,
        base INTEGER NOT NULL REFERENCES base(id),
        collection INTEGER NOT NULL REFERENCES collection(id),
        title TEXT NOT NULL,
        uri TEXT NOT NULL,
        content_hash TEXT NOT NULL,
        version INTEGER NOT NULL,
        chunks INTEGER NOT NULL,
        tenant TEXT NOT NULL,
        department TEXT NOT NULL,
        clearance INTEGER NOT NULL,
        fields TEXT NOT NULL,
        created TEXT NOT NULL
    );
    CREATE INDEX document_by_uri ON document (base, uri, tenant);
    CREATE INDEX document_by_content ON document (base, content_hash);
    CREATE TABLE field (
        document INTEGER NOT NULL REFERENCES document(id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (document, name)
    ) WITHOUT ROWID;
    -- An id is never used again: vectors in memory are told apart by it.
    CREATE TABLE chunk (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        document INTEGER NOT NULL REFERENCES document(id) ON DELETE CASCADE,
        base INTEGER NOT NULL,
        position INTEGER NOT NULL,
        text TEXT NOT NULL,
        headings TEXT NOT NULL,
        page INTEGER
    );
    CREATE INDEX chunk_by_document ON chunk (document, position);
    CREATE INDEX chunk_by_base ON chunk (base);
    -- What the re-rank counts, apart from the text so that a hundred of them lie close together.
    CREATE TABLE profile (
        chunk INTEGER PRIMARY KEY REFERENCES chunk(id) ON DELETE CASCADE,
        terms INTEGER NOT NULL,
        hashes BLOB NOT NULL,
        counts BLOB NOT NULL
    );
    CREATE TABLE vector (
        chunk INTEGER NOT NULL REFERENCES chunk(id) ON DELETE CASCADE,
        embedding INTEGER NOT NULL REFERENCES embedding(id),
        half_floats BLOB NOT NULL
    );
    CREATE UNIQUE INDEX vector_by_chunk ON vector (chunk, embedding);
    CREATE INDEX vector_by_embedding ON vector (embedding, chunk);
    """,
)


class NewerFileError(Exception):
    """The file has taken more steps than this version knows."""


def migrate(connection: sqlite3.Connection) -> None:
    """Take the steps that are missing.

    Raises:
        NewerFileError: it has taken more than there are.
        sqlite3.Error: it cannot be read or written, or is no database.
    """
    if schema_version(connection) == len(_MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Asked again: another process may have been faster.
        for number, step in enumerate(_MIGRATIONS[schema_version(connection) :], schema_version(connection) + 1):
            for statement in step.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def schema_version(connection: sqlite3.Connection) -> int:
    """How many steps the file has taken.

    Raises:
        NewerFileError: more than there are.
        sqlite3.Error: it cannot be read, or is no database.
    """
    taken: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if taken > len(_MIGRATIONS):
        raise NewerFileError(f"layout {taken}, this program knows {len(_MIGRATIONS)}")
    return taken


def create_text_index(connection: sqlite3.Connection, base: int) -> None:
    """An empty text index for a base, in place of any that is there."""
    drop_text_index(connection, base)
    connection.execute(f"CREATE VIRTUAL TABLE text_{base:d} USING fts5(terms, content='', tokenize='ascii')")
    connection.execute(f"CREATE VIRTUAL TABLE vocabulary_{base:d} USING fts5vocab(text_{base:d}, row)")


def drop_text_index(connection: sqlite3.Connection, base: int) -> None:
    """Remove the text index of a base."""
    connection.execute(f"DROP TABLE IF EXISTS vocabulary_{base:d}")
    connection.execute(f"DROP TABLE IF EXISTS text_{base:d}")


FILE_NAME = "knowledge.sqlite3"
# Vectors are written in batches and documents one by one, so nobody writes for long; building a text index anew is
# the exception, and takes 15 s for 100,000 chunks on the slowest machine it was measured on.
_BUSY_TIMEOUT_S = 60.0
# The pages a query touches again and again. The file is not mapped into memory instead: a card that fails to read
# would end the process there, where it is an error here.
_CACHE_KIB = 16_384
# An import rewrites the same pages of the text index again and again; 16 MiB of them are worth one write to the file.
_CHECKPOINT_PAGES = 4_000


class Database:
    """The file of a folder; connections are opened as they are needed and kept until ``close``.

    Args:
        folder: made when there is none.
        busy_timeout_s: how long a writer waits for another one.

    Raises:
        StorageError: it cannot be used, is damaged, or is of a newer version.
    """

    def __init__(self, folder: Path, busy_timeout_s: float = _BUSY_TIMEOUT_S) -> None:
        self.path = folder / FILE_NAME
        self._busy_timeout_s = busy_timeout_s
        self._idle: list[sqlite3.Connection] = []
        self._idle_lock = threading.Lock()
        self._is_closed = False
        # SQLite's own waiting is a series of naps; writers of one process take turns without.
        self._writing = threading.Lock()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # SQLite would make it readable for everybody; its side files take over this file's mode.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            raise StorageError(str(self.path), error.strerror or str(error)) from error
        with self._translate_errors():
            connection = self._connect()
            try:
                migrate(connection)
            except BaseException:
                connection.close()
                raise
            self._idle.append(connection)

    def close(self) -> None:
        """Closes every connection that is not at work, and the others when their work is done."""
        with self._idle_lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            with suppress(sqlite3.Error):
                connection.close()

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection, None, None]:
        """A transaction that sees one moment of the file.

        Raises:
            StorageError: the file cannot be read.
        """
        with self._translate_errors(), self._connection() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection, None, None]:
        """A transaction that is committed when the block ends, and undone when it raises.

        Raises:
            StorageError: the file cannot be written, or another process wrote for too long.
        """
        if not self._writing.acquire(timeout=self._busy_timeout_s):
            raise StorageBusyError(str(self.path), f"another import has been writing for {self._busy_timeout_s:g} s")
        try:
            with self._translate_errors(), self._connection() as connection:
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
        connection = sqlite3.connect(
            self.path, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            # First of all: a newer file is left exactly as it is.
            schema_version(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _translate_errors(self) -> Generator[None, None, None]:
        try:
            yield
        except NewerFileError as error:
            raise StorageNewerError(str(self.path), str(error)) from None
        except sqlite3.Error as error:
            raise _storage_error(str(self.path), error) from error


def _storage_error(path: str, error: sqlite3.Error) -> StorageError:
    # Python 3.10 has no sqlite_errorcode; the messages are SQLite's and have not changed in ten years.
    text = str(error)
    # What SQLite says when there is no room even for its side files.
    if "disk I/O error" in text and _is_full(path):
        return StorageFullError(path, text)
    for words, kind in _ERROR_CLASSES:
        if words in text:
            return kind(path, text)
    return StorageError(path, text)


def _is_full(path: str) -> bool:
    try:
        return os.statvfs(path).f_bavail == 0
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
