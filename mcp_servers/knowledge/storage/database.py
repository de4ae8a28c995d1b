"""One SQLite file, many readers, one writer: transactions on connections from a pool.

Rules:
* A reader sees the file as it was when it began, whatever is written meanwhile (WAL); a writer waits for another one,
  in this process or elsewhere, and gives up in a sentence.
* ``synchronous = FULL``: what was committed survives losing power, which a board without a battery does often.
* The folder and its files are for their owner alone (0700, 0600).
* SQLite's failures become the few sentences a person can act on. Nothing is ever repaired or deleted in a damaged file.

Followed: SQLite, "Write-Ahead Logging", "PRAGMA synchronous", "Result and Error Codes".
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from mcp_servers.knowledge.problems import (
    StorageBusyError,
    StorageDamagedError,
    StorageError,
    StorageFullError,
    StorageNewerError,
)
from mcp_servers.knowledge.storage.schema import NewerFileError, migrate, steps_taken

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
        with self._sentences():
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
        with self._sentences(), self._connection() as connection:
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
            with self._sentences(), self._connection() as connection:
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
            steps_taken(connection)
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
    def _sentences(self) -> Generator[None, None, None]:
        try:
            yield
        except NewerFileError as error:
            raise StorageNewerError(str(self.path), str(error)) from None
        except sqlite3.Error as error:
            raise _problem(str(self.path), error) from error


def _problem(path: str, error: sqlite3.Error) -> StorageError:
    # Python 3.10 has no sqlite_errorcode; the messages are SQLite's and have not changed in ten years.
    text = str(error)
    # What SQLite says when there is no room even for its side files.
    if "disk I/O error" in text and _is_full(path):
        return StorageFullError(path, text)
    for words, kind in _KINDS:
        if words in text:
            return kind(path, text)
    return StorageError(path, text)


def _is_full(path: str) -> bool:
    try:
        return os.statvfs(path).f_bavail == 0
    except OSError:
        return False


_KINDS: tuple[tuple[str, type[StorageError]], ...] = (
    ("disk is full", StorageFullError),
    ("malformed", StorageDamagedError),
    ("not a database", StorageDamagedError),
    ("vtable constructor failed", StorageDamagedError),
    ("locked", StorageBusyError),
    ("busy", StorageBusyError),
)
