"""A PostgreSQL database that several boards share: conversations, responses, calls, permissions, keys and daily tokens.

    work ─▶ thread of the user's store ─▶ connection of the process's pool ─▶ transaction, in which only the rows of
    the tenant exist (row-level security)

A statement of ``Conversations`` is the same for SQLite; ``translate_statement`` writes it for PostgreSQL. A
database that cannot be reached is a ``StoreError``, and is not waited for again for ``_PAUSE_S``.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio

from rkllm_base.databases import Fault, NewerSchemaError, migrations_of
from rkllm_base.installation import install_command
from rkllm_base.postgres import CONNECT_TIMEOUT_S, connecting, fault_of, migrate, reason_of, storable, with_placeholders
from rkllm_mcp.config.secrets import redacted_text
from rkllm_mcp.errors import StoreAwayError, StoreError
from rkllm_mcp.store.conversations import LIKES, NEXT_CHANGE, TEXT_OF_EVENTS, WRITTEN_AT
from rkllm_mcp.store.database import REPORT, Database, Rows, Transaction, Values, Work

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg_pool import ConnectionPool

MIGRATIONS = migrations_of(Path(__file__).with_name("postgres.sql"))
# The lock of those who migrate; any number that no other program uses.
_MIGRATION_LOCK = 7263_0038
_CONNECTIONS = 4
# A database that did not answer is not asked again for that long: an answer makes several writes.
_PAUSE_S = 2.0
_CATCH_UP_S = 10.0  # boards try again every two seconds, and save what waits in their files
_RECONNECT_S = 4.0
_CLOSE_TIMEOUT_S = 10.0
_CONNECTING = connecting("rkllm-mcp")
_CHANNEL = "rkllm_mcp"
_GONE = "DELETE FROM boards WHERE id = ?"
_FULL = "make room on the disk of PostgreSQL"
_REMEDY = "see whether PostgreSQL runs and the board reaches it"
# Text of an event: in the value of "text", and anywhere in "arguments".
_TEXT_OF_EVENTS = """
    SELECT words FROM (
        SELECT value #>> '{}' AS words FROM jsonb_path_query(
            NULLIF(replace(m.events, '\\u0000', '\\ufffd'), '')::jsonb, '$.**.text') AS value
        UNION ALL SELECT value #>> '{}' FROM jsonb_path_query(
            NULLIF(replace(m.events, '\\u0000', '\\ufffd'), '')::jsonb, '$.**.arguments.**') AS value
        WHERE jsonb_typeof(value) IN ('string', 'number')
    ) AS texts WHERE words ILIKE :like ESCAPE '\\' LIMIT 1"""
# What is written otherwise than for SQLite.
_REWRITTEN = (
    (NEXT_CHANGE, "nextval('change_numbers')"),
    (WRITTEN_AT, "COALESCE(EXTRACT(EPOCH FROM clock_timestamp()), ?)"),
    *(
        (TEXT_OF_EVENTS.replace(":like", f":{name}"), _TEXT_OF_EVENTS.replace(":like", f":{name}"))
        for name in ("like", *LIKES)
    ),
    (" LIKE ", " ILIKE "),
)
_REPLACE = re.compile(r"INSERT OR REPLACE INTO (\w+) \(([^)]*)\) VALUES \(([^)]*)\)")
_KEYS = {"grants": ("server", "tool"), "switches": ("server", "tool"), "texts": ("kind", "key")}

_Result = TypeVar("_Result")


@lru_cache(maxsize=200)
def translate_statement(statement: str) -> str:
    """Return a statement of the store as PostgreSQL and psycopg read it."""
    for written, rewritten in _REWRITTEN:
        statement = statement.replace(written, rewritten)
    statement = _REPLACE.sub(_upsert, statement)
    return with_placeholders(statement)


def _upsert(match: re.Match[str]) -> str:
    table, columns, marks = match.groups()
    keys = _KEYS[table]
    changes = (f"{name} = excluded.{name}" for name in columns.split(", ") if name not in keys)
    target = f"ON CONFLICT (tenant, {', '.join(keys)}) DO UPDATE SET {', '.join(changes)}"
    return f"INSERT INTO {table} ({columns}) VALUES ({marks}) {target}"  # noqa: S608  (names of columns)


def database_time(transaction: Transaction) -> float:
    """Return the time of the database, which boards without their own clock have in common."""
    return float(transaction.execute("SELECT EXTRACT(EPOCH FROM clock_timestamp())").fetchone()[0])


def _storable(value: Any) -> Any:
    # Strict about booleans where SQLite has numbers.
    return int(value) if isinstance(value, bool) else storable(value)


@dataclass(frozen=True)
class _Transaction:
    """Implements ``store.database.Transaction``."""

    connection: Connection[Any]

    def execute(self, statement: str, values: Values = (), /) -> Rows:
        if isinstance(values, Mapping):
            bound: Any = {name: _storable(value) for name, value in values.items()}
        else:
            bound = tuple(map(_storable, values))
        return cast("Rows", self.connection.execute(cast("Any", translate_statement(statement)), bound))

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]], /) -> None:
        with self.connection.cursor() as cursor:
            cursor.executemany(
                cast("Any", translate_statement(statement)), [tuple(map(_storable, row)) for row in rows]
            )


class _PoolLog(logging.Filter):
    """Keep what the pool warns of at each attempt to connect, the reason of the failure, out of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.reason = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False for a warning."""
        if record.levelno > logging.WARNING:
            return True
        self.reason = record.getMessage().partition(": ")[2] or self.reason
        return False


_POOL_LOG = _PoolLog()


class _Listener(Thread):
    """its own connection that hears the hints of all boards, and tells the stores of this process."""

    def __init__(self, url: str) -> None:
        super().__init__(name="rkllm-mcp hints", daemon=True)
        self._url = url
        self.is_over = Event()  # set for its end, which comes soon
        self.hears: dict[Database, asyncio.AbstractEventLoop] = {}  # whose waiters are woken, in their event loops

    def run(self) -> None:
        """Listen until the end; hints of the time without a connection are lost, so everybody looks after it."""
        import psycopg

        while not self.is_over.is_set():
            with suppress(psycopg.Error), psycopg.connect(self._url, autocommit=True, **_CONNECTING) as connection:
                connection.execute(f"LISTEN {_CHANNEL}")
                self._wake("")
                while not self.is_over.is_set():
                    for notice in connection.notifies(timeout=1.0):
                        self._wake(notice.payload)
            self.is_over.wait(_PAUSE_S)

    def _wake(self, topic: str) -> None:
        for database, loop in list(self.hears.items()):
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(database.wake, topic)


class _Server:
    """The connections of this process to one database, for the stores of all its tenants."""

    def __init__(self, url: str) -> None:
        self.board = uuid.uuid4().hex
        self.listener = _Listener(url)
        self.name = redacted_text(url)
        self._url = url
        self._lock = Lock()
        self._pool: ConnectionPool[Any] | None = None
        self._is_migrated = False
        self.failure: StoreAwayError | None = None  # the database cannot be reached
        self._failed_at = 0.0
        self.returned_at = -math.inf

    @contextmanager
    def connection(self) -> Generator[Connection[Any], None, None]:
        """Return a connection with a transaction that ends with the block; a StoreError without one."""
        import psycopg
        import psycopg_pool

        with self._lock:
            if self.failure is not None and time.monotonic() < self._failed_at + _PAUSE_S:
                raise self.failure
            if self._pool is None:
                logging.getLogger("psycopg.pool").addFilter(_POOL_LOG)
                self._pool = psycopg_pool.ConnectionPool(
                    self._url,
                    min_size=1,
                    max_size=_CONNECTIONS,
                    open=True,
                    # The pause between two attempts doubles until then; afterwards the next work begins with a short
                    # one.
                    reconnect_timeout=_RECONNECT_S,
                    check=psycopg_pool.ConnectionPool.check_connection,
                    kwargs=_CONNECTING,
                )
            pool = self._pool
        try:
            with pool.connection(CONNECT_TIMEOUT_S) as connection:
                if not self._is_migrated:
                    # One process at a time applies the missing migrations.
                    query = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
                    row = connection.execute(query).fetchone()
                    if row and row[0]:
                        advice = "create a role without SUPERUSER and BYPASSRLS for rkllm-mcp (docs/deploy.md)"
                        raise StoreError(self.name, "its role sees the rows of every tenant", advice)
                    migrate(connection, MIGRATIONS, table="schema_versions", lock=_MIGRATION_LOCK, ahead=1)
                    connection.commit()
                    self._is_migrated = True
                yield connection
        except NewerSchemaError:
            problem = "it was written by a version of rkllm-mcp that is newer by more than one release"
            raise StoreError(self.name, problem, "update rkllm-mcp on this board") from None
        except psycopg.Error as error:
            fault, reason = fault_of(error), reason_of(error)
            if fault is Fault.OTHER:
                raise StoreError(self.name, reason, REPORT) from None
            if isinstance(error, psycopg_pool.PoolTimeout) and _POOL_LOG.reason:
                reason = reason_of(_POOL_LOG.reason)
            self.failure = StoreAwayError(self.name, reason, _FULL if fault is Fault.FULL else _REMEDY)
            self._failed_at = time.monotonic()
            raise self.failure from None
        except UnicodeError:
            raise StoreError(self.name, "a name is not valid Unicode", "use another one") from None
        if self.failure is not None:
            self.returned_at = time.monotonic()
        self.failure = None

    def close(self) -> None:
        """Close the connections."""
        self.listener.is_over.set()
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close(CONNECT_TIMEOUT_S)


class PostgresDatabase(Database):
    """A tenant's view of a PostgreSQL database; created by ``open_postgres``."""

    def __init__(self, server: _Server, tenant: str, on_problem: Callable[[str], None]) -> None:
        super().__init__(server.name, "rkllm-mcp shared store", on_problem)
        self.server = server
        self._tenant = tenant
        self.is_lasting = True

    @property
    def catching_up(self) -> StoreError | None:
        """See ``Database``."""
        if time.monotonic() > self.server.returned_at + _CATCH_UP_S:
            return None
        problem = "it has just come back, and another board may have more to save"
        return StoreAwayError(self.server.name, problem, _REMEDY)

    def hint(self, topic: str) -> None:
        """See ``Database``."""
        statement = f"SELECT pg_notify('{_CHANNEL}', ?)"
        with suppress(RuntimeError):
            self._thread.submit(self._transact, lambda transaction: transaction.execute(statement, (topic,)))

    async def wait_for_change(self, topic: str, within_s: float) -> None:
        """See ``Database``."""
        listener = self.server.listener
        listener.hears[self] = asyncio.get_running_loop()
        if not listener.is_alive():
            listener.start()
        await super().wait_for_change(topic, within_s)

    async def aclose(self) -> None:
        """Write the remaining work; bounded and shielded from cancellation."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_TIMEOUT_S) as limit:
            await asyncio.wrap_future(self._thread.submit(lambda: None))
        self.server.listener.hears.pop(self, None)
        self._thread.shutdown(wait=not limit.cancelled_caught, cancel_futures=True)

    def _transact(
        self, work: Work[_Result], *, durable: bool = False, reads: bool = False, erases: bool = False
    ) -> _Result:
        del durable, reads, erases
        with self.server.connection() as connection:
            connection.execute("SELECT set_config('rkllm.tenant', %s, true)", (self._tenant,))
            return work(_Transaction(connection))


# The servers in use, and how many stores use each.
_SERVERS: dict[str, tuple[_Server, int]] = {}


@asynccontextmanager
async def open_postgres(
    url: str, tenant: str, *, on_problem: Callable[[str], None], required: bool = False
) -> AsyncGenerator[PostgresDatabase, None]:
    """Open a tenant's part of the database at ``url``; write everything at the end of the block.

    A StoreError if psycopg is not installed, or if the database is ``required`` and cannot be used.
    """
    try:
        import_module("psycopg_pool")
    except ImportError:
        raise StoreError("[store] url", "psycopg is not installed here", install_command("postgres")) from None
    server, users = _SERVERS.get(url, (None, 0))
    server = server or _Server(url)
    _SERVERS[url] = (server, users + 1)
    database = PostgresDatabase(server, tenant, on_problem)
    try:
        try:
            await database.ask(lambda _: None)
        except StoreError:
            if required:
                raise
        yield database
    finally:
        _, users = _SERVERS[url]
        if users == 1 and server.failure is None:
            # What this process has begun is over for the other boards.
            database.tell(lambda transaction: transaction.execute(_GONE, (server.board,)))
        await database.aclose()
        _SERVERS[url] = (server, users - 1)
        if users == 1:
            del _SERVERS[url]
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(server.close)
