"""A PostgreSQL database that several knowledge servers share: schema and migrations, transactions, a table of postings.

* A search reads one snapshot (REPEATABLE READ). One transaction writes at a time, of all servers, as in a file: keys of
chunks grow with each commit, and sums are read and written again.
* Everything is in its own schema, ``knowledge``, so that the boards' conversations may be in the same database.
* A connection that was lost is opened again; what was not committed is not there. Errors are StorageErrors.

Needs no extension and no rights next to those of the database's owner. References: PostgreSQL 15, "Transaction
Isolation", "Advisory Locks"; psycopg 3.
"""

# ruff: noqa: S608 - the SQL is put together from constants; values are parameters

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import numpy as np

from mcp_servers.knowledge.errors import (
    BadArgumentError,
    MissingExtraError,
    StorageAwayError,
    StorageBusyError,
    StorageError,
    StorageFullError,
    StorageNewerError,
)
from mcp_servers.knowledge.storage.database import BATCH_S, BUSY_TIMEOUT_S, NO_CHUNKS, ChunkKeys, DatabaseBase
from rkllm_base.databases import Fault, NewerSchemaError, migrations_of
from rkllm_base.postgres import connecting, fault_of, migrate, reason_of, storable, with_placeholders

if TYPE_CHECKING:
    from psycopg import Connection

_MIGRATIONS = migrations_of(Path(__file__).with_name("postgres.sql"))
_SCHEMA = "knowledge"
# The locks of those who write and of those who migrate; any numbers that no other program uses.
_WRITE_LOCK, _MIGRATION_LOCK = 7263_0039, 7263_0040
# More threads than these wait for each other.
_CONNECTIONS = 8
_LONGEST_STATEMENT_S = 300
_DELETED_ROWS = 5000
# A B-tree has no room for longer ones.
_TERM_BYTES = 400
_REPLACED = -1


# Searches use the same ones again.
_placeholders = lru_cache(maxsize=500)(with_placeholders)


def _stored_term(term: str) -> str:
    """Return what a term is stored as: itself, or the beginning and the digest of a very long one."""
    if len(term) * 4 <= _TERM_BYTES or len(term.encode()) <= _TERM_BYTES:
        return term
    return f"{term[:50]}\x01{hashlib.sha256(term.encode()).hexdigest()}"


@dataclass(frozen=True)
class PostingTable:
    """A row for each chunk and term; the same methods as ``sqlite.FullTextTables``."""

    connection: Connection[Any]

    def create(self, base: int, version: int = 0) -> None:
        """See ``FullTextTables``."""
        self._replace(base, "version > 0")
        self.connection.execute("INSERT INTO term_index (base, version) VALUES (%s, %s)", (base, version))

    def drop(self, base: int) -> None:
        """See ``FullTextTables``; the rows are deleted by ``delete_replaced`` of any base."""
        self._replace(base, "TRUE")

    def add(self, base: int, chunks: Iterable[tuple[int, str]], version: int = 0) -> None:
        """See ``FullTextTables``."""
        (index, last), rows = self._index(base, version), 0
        with self.connection.cursor() as cursor:
            with cursor.copy("COPY posting (term_index, chunk, term) FROM STDIN") as copy:
                for chunk, terms in chunks:
                    last, rows = max(last, chunk), rows + 1
                    for term in sorted({_stored_term(term) for term in terms.split()}):
                        copy.write_row((index, chunk, term))
            if rows:
                cursor.execute("UPDATE term_index SET last = %s WHERE id = %s", (last, index))

    def remove(self, base: int, chunks: Iterable[tuple[int, str]], version: int = 0) -> None:
        """See ``FullTextTables``."""
        index, _ = self._index(base, version)
        sql = "DELETE FROM posting WHERE term_index = %s AND term = ANY(%s) AND chunk = %s"
        rows = [(index, list({_stored_term(term) for term in terms.split()}), chunk) for chunk, terms in chunks]
        with self.connection.cursor() as cursor:
            cursor.executemany(sql, rows)

    def frequencies(self, base: int, terms: Sequence[str]) -> dict[str, int]:
        """See ``FullTextTables``."""
        exact, frequencies = "SELECT term, COUNT(*)", dict.fromkeys(terms, 0)
        frequencies.update(self._select(base, terms, exact, "SELECT COUNT(DISTINCT chunk)"))
        return frequencies

    def postings(self, base: int, terms: Sequence[str]) -> dict[str, ChunkKeys]:
        """See ``FullTextTables``."""
        # One string is faster than a row for each chunk.
        exact = "SELECT term, string_agg(chunk::text, ',' ORDER BY chunk)"
        prefix = "SELECT string_agg(DISTINCT chunk::text, ',')"
        joined: dict[str, str | None] = self._select(base, terms, exact, prefix)
        keys = {term: np.fromstring(text, np.int64, sep=",") for term, text in joined.items() if text}
        return {term: np.sort(keys.get(term, NO_CHUNKS)) for term in terms}

    def last(self, base: int, version: int) -> int | None:
        """See ``FullTextTables``."""
        sql = "SELECT last FROM term_index WHERE base = %s AND version = %s"
        row = self.connection.execute(sql, (base, version)).fetchone()
        return row[0] if row else None

    def replace(self, base: int, version: int) -> None:
        """See ``FullTextTables``."""
        self._replace(base, "version = 0")
        self.connection.execute("UPDATE term_index SET version = 0 WHERE base = %s AND version = %s", (base, version))

    def merge(self, base: int, seconds: float, version: int = 0) -> bool:
        """See ``FullTextTables``; PostgreSQL does it by itself."""
        del base, seconds, version
        return False

    def has_replaced(self, base: int) -> bool:
        """See ``FullTextTables``."""
        del base
        return self.connection.execute("SELECT 1 FROM term_index WHERE version = -1 LIMIT 1").fetchone() is not None

    def delete_replaced(self, base: int) -> bool:
        """See ``FullTextTables``; also of bases that were removed."""
        del base
        end = time.monotonic() + BATCH_S
        row = self.connection.execute("SELECT id FROM term_index WHERE version = -1 LIMIT 1").fetchone()
        if row is None:
            return False
        rows = f"ARRAY(SELECT ctid FROM posting WHERE term_index = %s LIMIT {_DELETED_ROWS})"
        while self.connection.execute(cast("Any", f"DELETE FROM posting WHERE ctid = ANY({rows})"), row).rowcount:
            if time.monotonic() > end:
                return True
        self.connection.execute("DELETE FROM term_index WHERE id = %s", row)
        return True

    def _index(self, base: int, version: int) -> tuple[int, int]:
        sql = "SELECT id, last FROM term_index WHERE base = %s AND version = %s"
        row = self.connection.execute(sql, (base, version)).fetchone()
        return row or (0, 0)

    def _replace(self, base: int, condition: str) -> None:
        sql = f"UPDATE term_index SET version = {_REPLACED} WHERE base = %s AND {condition}"
        self.connection.execute(cast("Any", sql), (base,))

    def _select(self, base: int, terms: Sequence[str], exact: str, prefix: str) -> dict[str, Any]:
        """Return a figure of each term: ``exact`` selects it with the term, ``prefix`` that of terms that begin so."""
        index, _ = self._index(base, 0)
        # A single character is a prefix of bigrams.
        prefixes = [term for term in terms if len(term) == 1 and not term.isascii()]
        stored = {_stored_term(term): term for term in terms if term not in prefixes}
        rows: Iterable[tuple[str, Any]] = ()
        if stored:
            sql = f"{exact} FROM posting WHERE term_index = %s AND term = ANY(%s) GROUP BY term"
            rows = self.connection.execute(cast("Any", sql), (index, list(stored)))
        figures = {stored[term]: figure for term, figure in rows}
        sql = f"{prefix} FROM posting WHERE term_index = %s AND term >= %s AND term < %s"
        for term in prefixes:
            # After U+D7FF there are no characters up to U+E000.
            end = "\ue000" if term == "\ud7ff" else chr(ord(term) + 1)
            row = self.connection.execute(cast("Any", sql), (index, term, end)).fetchone()
            figures[term] = row[0] if row else None
        return figures


class PostgresTransaction:
    """A connection inside of a transaction, with the index of terms."""

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection
        self.terms = PostingTable(connection)

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
        """Run a statement; return its cursor."""
        values = tuple(map(storable, parameters))
        return self._connection.execute(cast("Any", _placeholders(sql)), values, binary=True)

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> None:
        """Run a statement once for each row of values."""
        with self._connection.cursor() as cursor:
            cursor.executemany(cast("Any", _placeholders(sql)), [tuple(map(storable, row)) for row in parameters])


class PostgresDatabase(DatabaseBase):
    """The database at an address; one that cannot be reached now is asked again by each transaction.

    Raises StorageNewerError, or StorageError if it refuses.
    """

    def __init__(self, url: str, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        super().__init__(busy_timeout_s)
        try:
            import_module("psycopg")
        except ImportError:
            raise MissingExtraError("database_url", "psycopg", "postgres") from None
        parts = urlsplit(url)
        self.name = f"postgresql://{parts.hostname or ''}{parts.path}"
        self._url = url
        self._slots = threading.BoundedSemaphore(_CONNECTIONS)
        self._idle: list[Connection[Any]] = []
        self._idle_lock = threading.Lock()
        self._is_closed = self._is_migrated = False
        with suppress(StorageAwayError), self.reading():
            pass

    def close(self) -> None:
        """See ``SQLiteDatabase``."""
        with self._idle_lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def reading(self) -> Generator[PostgresTransaction, None, None]:
        """See ``SQLiteDatabase``."""
        with self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") as connection:
            yield PostgresTransaction(connection)

    @contextmanager
    def writing(self, *, is_durable: bool = True) -> Generator[PostgresTransaction, None, None]:
        """See ``SQLiteDatabase``."""
        if not self._writing.acquire(timeout=self._busy_timeout_s):
            raise StorageBusyError(self.name, f"another import has been writing for {self._busy_timeout_s:g} s")
        try:
            begin = f"BEGIN; SET LOCAL lock_timeout = {round(self._busy_timeout_s * 1000)}"
            if not is_durable:
                begin += "; SET LOCAL synchronous_commit = off"
            with self._transaction(begin) as connection:
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_WRITE_LOCK,))
                yield PostgresTransaction(connection)
        finally:
            self._writing.release()

    def back_up(self, file: Path) -> None:
        """Raise BadArgumentError: only SQLite copies its file."""
        del file
        reason, remedy = "is of no use for a database of PostgreSQL", "Run pg_dump, or 'rkllm-mcp knowledge export'"
        raise BadArgumentError("backup", reason, remedy)

    @contextmanager
    def _transaction(self, begin: str) -> Generator[Connection[Any], None, None]:
        import psycopg

        try:
            with self._slots:
                connection = self._begun(f"{begin}; SET LOCAL search_path = {_SCHEMA}")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    with suppress(Exception):
                        connection.execute("ROLLBACK")
                    raise
                finally:
                    with self._idle_lock:
                        is_usable = not self._is_closed and not connection.closed
                        if is_usable:
                            self._idle.append(connection)
                    if not is_usable:
                        connection.close()
        except psycopg.Error as error:
            raise _ERRORS.get(fault_of(error), StorageError)(self.name, reason_of(error)) from error
        except NewerSchemaError as error:
            raise StorageNewerError(self.name, str(error)) from None

    def _begun(self, begin: str) -> Connection[Any]:
        """Return a connection in a transaction; idle ones may have been lost."""
        import psycopg

        while True:
            with self._idle_lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                break
            try:
                connection.execute(cast("Any", begin))
            except (psycopg.OperationalError, psycopg.InterfaceError):
                connection.close()
            else:
                return connection
        connection = psycopg.connect(self._url, autocommit=True, **connecting("rkllm-mcp-knowledge"))
        try:
            connection.execute(cast("Any", f"SET statement_timeout = '{_LONGEST_STATEMENT_S}s'"))
            if not self._is_migrated:
                with connection.transaction():
                    # Also held while the schema is made.
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
                    # IF NOT EXISTS needs the right to create one.
                    if connection.execute("SELECT to_regnamespace(%s)", (_SCHEMA,)).fetchone() == (None,):
                        connection.execute(cast("Any", f"CREATE SCHEMA {_SCHEMA}"))
                    connection.execute(cast("Any", f"SET LOCAL search_path = {_SCHEMA}"))
                    migrate(connection, _MIGRATIONS, table="schema_version", lock=_MIGRATION_LOCK)
                self._is_migrated = True
            connection.execute(cast("Any", begin))
        except BaseException:
            connection.close()
            raise
        return connection


_ERRORS: Mapping[Fault, type[StorageError]] = {
    Fault.FULL: StorageFullError,
    Fault.BUSY: StorageBusyError,
    Fault.AWAY: StorageAwayError,
}
