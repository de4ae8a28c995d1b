"""Databases of the store: the interface of both kinds, and one SQLite file with its thread, schema and migrations.

``postgres.py`` has the other kind. What is above them, ``Conversations`` and its neighbours, is written once, in the
SQL that both have in common.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, suppress
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

import anyio

from rkllm_base.databases import Fault, NewerSchemaError, migrations_of
from rkllm_base.folders import STATE_VARIABLE, state_folder
from rkllm_base.sqlite import create_private, fault_of, migrate, steps_taken
from rkllm_mcp.errors import StoreAwayError, StoreError

FILE_NAME = "state.db"
DAY_S = 86400.0
# The clock of a board without a battery can start anywhere. A larger step between two times is a clock correction.
CLOCK_WAS_SET_S = 365 * DAY_S


def state_file(env: Mapping[str, str], tenant: str = "") -> Path:
    """Return the path of the database under these environment variables; the file need not exist.

    Each tenant has a folder below the owner's; the owner is the empty name.
    """
    folder = state_folder(env)
    if tenant:
        # A tenant's name can contain any character; its hash is a valid folder name.
        folder = folder / "tenants" / hashlib.sha256(tenant.encode()).hexdigest()[:16]
    return folder / FILE_NAME


MIGRATIONS = migrations_of(Path(__file__).with_name("migrations.sql"))
_IN_MEMORY = ":memory:"
_SMALL_TABLES = ("grants", "switches", "texts")


_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"


@cache
def _expected_tables() -> frozenset[str]:
    with closing(sqlite3.connect(_IN_MEMORY, isolation_level=None)) as connection:
        migrate(connection, MIGRATIONS)
        return frozenset(name for (name,) in connection.execute(_TABLES))


# Maximum wait for another writer; a write takes a millisecond, on a slow card some hundred.
_BUSY_TIMEOUT_S = 5.0
# As long as the file stays locked after that: an answer makes several writes.
_LOCKED_TIMEOUT_S = 0.2
# Time for the remaining writes at the end: each waits for the file at most once.
_CLOSE_TIMEOUT_S = 2 * _BUSY_TIMEOUT_S

_Result = TypeVar("_Result")
Values: TypeAlias = "Sequence[Any] | Mapping[str, Any]"


# The result of a statement: ``rowcount``, ``fetchone`` and ``fetchall``, which other databases' results have too.
Rows: TypeAlias = sqlite3.Cursor


class Transaction(Protocol):
    """An open transaction; values stand for ``?``, or for ``:name``."""

    def execute(self, statement: str, values: Values = (), /) -> Rows:
        """Execute a statement."""
        ...

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]], /) -> object:
        """Execute a statement with each row of values."""
        ...


Work = Callable[[Transaction], _Result]


class Database(ABC):
    """An open database of one user; ``on_problem`` takes a line when nothing can be stored, and when it can again."""

    def __init__(self, name: str, thread_name: str, on_problem: Callable[[str], None]) -> None:
        self.name = name  # in the words of an error: the file, or the address without its password
        self._on_problem = on_problem
        self._loop = asyncio.get_running_loop()
        # One thread: what was queued first is written first.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=thread_name)
        self.problem: StoreError | None = None  # of the first ``tell`` that was not written
        # The reason why nothing can be stored at present; None if the last durable write succeeded.
        self.failing: StoreError | None = None
        self.is_lasting = False  # data that is written now survives the process
        # Tables of an unusable file whose rows could not be read; empty if the file is used.
        self.lost_tables: frozenset[str] = frozenset()
        # Keeps what was told while a shared database is away; without it that is lost.
        self.keep: Callable[[Work[object]], None] | None = None
        self._waiting: dict[str, anyio.Event] = {}  # those in this event loop who wait for a topic

    @property
    def catching_up(self) -> StoreError | None:
        """An error for rows that are missing, while other boards save what they took without the database."""
        return None

    @abstractmethod
    def _transact(
        self, work: Work[_Result], *, durable: bool = False, reads: bool = False, erases: bool = False
    ) -> _Result:
        """Run ``work`` in a transaction, in the thread of the database; see ``ask``."""

    async def ask(
        self, work: Work[_Result], *, durable: bool = False, reads: bool = False, erases: bool = False
    ) -> _Result:
        """Run ``work`` in a transaction and return its result.

        An exception in ``work`` rolls the transaction back. With ``durable`` the write is on disk when this returns.
        With ``reads`` it only reads, which no writer of another process holds up. With ``erases`` it is durable and
        returns what it has deleted, of which nothing remains in an SQLite file; PostgreSQL frees the space of deleted
        rows with its next vacuum. A StoreError if the database cannot be read or written.
        """
        durable = durable or erases
        try:
            future = self._thread.submit(self._transact, work, durable=durable, reads=reads, erases=erases)
        except RuntimeError:
            raise StoreError(self.name, "it is closed already", REPORT) from None
        try:
            result = await asyncio.wrap_future(future)
        except StoreError as error:
            if durable or isinstance(error, StoreAwayError):
                self._fail(error)
            raise
        if durable and self.failing is not None and self.is_lasting:
            self.failing = None
            self._on_problem("[State: data is saved again.]")
        return result

    async def rows(self, query: str, values: Values = ()) -> list[Any]:
        """Return the rows of a query; a StoreError if the database cannot be read."""
        return await self.ask(lambda transaction: transaction.execute(query, values).fetchall(), reads=True)

    async def change(self, statement: str, values: Sequence[Any], *, durable: bool = False) -> int:
        """Execute a statement, ``durable`` as in ``ask``; return how many rows it changed, or raise a StoreError."""
        return await self.ask(lambda transaction: transaction.execute(statement, values).rowcount, durable=durable)

    def tell(self, work: Work[object]) -> None:
        """Queue ``work`` for a transaction without waiting; a failure is reported, never raised."""
        try:
            self._thread.submit(self._transact, work).add_done_callback(partial(self._note_failure, work))
        except RuntimeError:
            self._report(StoreError(self.name, "it is closed already", REPORT))

    def _note_failure(self, work: Work[object], future: Future[object]) -> None:
        error = None if future.cancelled() else future.exception()
        if isinstance(error, StoreAwayError) and self.keep is not None:
            self.keep(work)
        elif error is not None:
            self._report(error if isinstance(error, StoreError) else StoreError(self.name, repr(error), REPORT))

    async def flush(self) -> None:
        """Wait until all queued work is done; a StoreError if some of it failed."""
        await self.ask(lambda _: None)
        if self.problem is not None:
            raise self.problem

    def hint(self, topic: str) -> None:
        """Wake those who wait for ``topic``, in every process that uses the database if it can; never raises."""
        self.wake(topic)

    def wake(self, topic: str) -> None:
        """Wake those in this event loop who wait for a topic; everybody, if it is empty."""
        for name in [topic] if topic else list(self._waiting):
            if (event := self._waiting.pop(name, None)) is not None:
                event.set()

    async def wait_for_change(self, topic: str, within_s: float) -> None:
        """Wait for a hint of ``topic``, which may be lost, or for that long."""
        event = self._waiting.setdefault(topic, anyio.Event())
        with anyio.move_on_after(within_s):
            await event.wait()

    def _report(self, error: StoreError) -> None:
        self.problem = self.problem or error
        # Failures occur in the thread; on_problem is called in the event loop.
        with suppress(RuntimeError):  # the loop may end before a disk that hangs
            self._loop.call_soon_threadsafe(self._fail, error)

    def _fail(self, error: StoreError) -> None:
        """Report that nothing can be stored, once until it is possible again."""
        if self.failing is None:
            self.failing = error
            self._on_problem(f"[State: {error}. The assistant continues without saving data.]")


class _Stored(Protocol):
    """An object whose methods run in transactions of its database."""

    database: Database


_Owner = TypeVar("_Owner", bound=_Stored)
_Parameters = ParamSpec("_Parameters")


def in_transaction(
    *, durable: bool = False, reads: bool = False, erases: bool = False, topic: str = ""
) -> Callable[
    [Callable[Concatenate[_Owner, Transaction, _Parameters], _Result]],
    Callable[Concatenate[_Owner, _Parameters], Coroutine[Any, Any, _Result]],
]:
    """Run a method in a transaction of ``self.database``, in the thread of the database.

    The method takes the transaction after ``self``; its callers do not give it, and await the result. ``durable``,
    ``reads`` and ``erases`` are those of ``Database.ask``. A ``topic`` is hinted at afterwards.
    """

    def decorate(
        method: Callable[Concatenate[_Owner, Transaction, _Parameters], _Result],
    ) -> Callable[Concatenate[_Owner, _Parameters], Coroutine[Any, Any, _Result]]:
        @wraps(method)
        async def run(self: _Owner, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            result = await self.database.ask(
                lambda transaction: method(self, transaction, *args, **kwargs),
                durable=durable,
                reads=reads,
                erases=erases,
            )
            if topic:
                self.database.hint(topic)
            return result

        return run

    return decorate


class SQLiteDatabase(Database):
    """An open SQLite file; created by ``open_database``."""

    def __init__(self, path: Path, on_problem: Callable[[str], None]) -> None:
        super().__init__(str(path), "rkllm-mcp store", on_problem)
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._is_impatient = False  # the last write has waited in vain for another process; for the thread only

    async def open(self, *, required: bool) -> None:
        """Open the file; if it cannot be used, an in-memory database, or raise a StoreError if it is ``required``."""
        try:
            await asyncio.wrap_future(self._thread.submit(self._open_file))
            self.is_lasting = True
        except StoreError as error:
            if required:
                raise
            self._report(error)
            self.lost_tables = await asyncio.wrap_future(self._thread.submit(self._salvage))

    async def missing_tables(self) -> list[str]:
        """Return the tables that the open database should have and has not; a StoreError if it cannot be read."""
        return sorted(_expected_tables().difference(name for (name,) in await self.rows(_TABLES)))

    async def aclose(self) -> None:
        """Write the remaining work and close the file; bounded and shielded from cancellation."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_TIMEOUT_S) as limit:
            await asyncio.wrap_future(self._thread.submit(self._close))
        # An idle thread ends at once; do not wait for one that hangs in a disk access.
        self._thread.shutdown(wait=not limit.cancelled_caught, cancel_futures=True)

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _open_file(self) -> None:
        try:
            create_private(self.path)
        except OSError as error:
            raise StoreError(self.name, error.strerror or str(error), _ELSEWHERE) from None
        try:
            self._connect(str(self.path))
        except NewerSchemaError:
            problem, remedy = "it was written by a newer version of rkllm-mcp", f"update rkllm-mcp, or {_ELSEWHERE}"
            raise StoreError(self.name, problem, remedy) from None
        except sqlite3.Error as error:
            raise self._failure(error) from None

    def _connect(self, where: str) -> None:
        connection = sqlite3.connect(where, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
        try:
            # Before anything else: a file with a newer schema must not be changed.
            steps_taken(connection, MIGRATIONS)
            connection.execute("PRAGMA journal_mode = WAL")
            # In WAL mode a power failure can lose the last moments, but cannot damage the file.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA secure_delete = ON")
            migrate(connection, MIGRATIONS)
            missing = sorted(_expected_tables().difference(name for (name,) in connection.execute(_TABLES)))
        except BaseException:
            connection.close()
            raise
        if missing:
            # All migrations were applied.
            connection.close()
            raise sqlite3.DatabaseError(f"database disk image is malformed: no table {', '.join(missing)}")
        self._connection = connection

    def _salvage(self) -> frozenset[str]:
        """Open a database in memory with the small tables of the file, and return those that cannot be read.

        They hold what must not be forgotten: refusals, switches, keys of devices.
        """
        self._connect(_IN_MEMORY)
        connection = self._connection
        lost: set[str] = set()
        try:
            self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return frozenset()
        except OSError:
            pass  # it may exist
        if connection is None:
            return frozenset()
        for table in _SMALL_TABLES:
            columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
            names = ", ".join(columns)
            try:
                with closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)) as file:
                    rows = file.execute(f"SELECT {names} FROM {table}").fetchall()  # noqa: S608  # names of ours
                marks = ", ".join("?" * len(columns))
                connection.executemany(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})", rows)  # noqa: S608
            except sqlite3.Error:
                lost.add(table)
        return frozenset(lost)

    def _transact(
        self, work: Work[_Result], *, durable: bool = False, reads: bool = False, erases: bool = False
    ) -> _Result:
        connection = self._connection
        if connection is None:
            raise StoreError(self.name, "it is not open", REPORT)
        if durable:
            # The write-ahead log is synced, which costs one fsync.
            connection.execute("PRAGMA synchronous = FULL")
        try:
            try:
                connection.execute("BEGIN" if reads else "BEGIN IMMEDIATE")
            except sqlite3.Error:
                # A writer that was waited for in vain is not waited for as long again.
                if not reads:
                    self._is_impatient = True
                    connection.execute(f"PRAGMA busy_timeout = {round(_LOCKED_TIMEOUT_S * 1000)}")
                raise
            if self._is_impatient and not reads:
                self._is_impatient = False
                connection.execute(f"PRAGMA busy_timeout = {round(_BUSY_TIMEOUT_S * 1000)}")
            result = work(connection)
            connection.execute("COMMIT")
            if erases and result:
                # The write-ahead log has what was deleted; while another process reads, until the file is closed.
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except BaseException as error:
            # After some failures SQLite has rolled back by itself, and a second rollback is an error.
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise self._failure(error) from None
            if isinstance(error, UnicodeError):
                raise StoreError(self.name, "a name is not valid Unicode", "use another one") from None
            raise
        finally:
            if durable:
                connection.execute("PRAGMA synchronous = NORMAL")
        return result

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # --- failures ---------------------------------------------------------------------------------------------------

    def _failure(self, error: sqlite3.Error) -> StoreError:
        return StoreError(self.name, str(error), _REMEDIES.get(fault_of(error, self.path), _ELSEWHERE))


REPORT = "report this with the output of --debug"
_ELSEWHERE = f"name another folder in {STATE_VARIABLE}"
_REMEDIES = {
    Fault.DAMAGED: "move it away; a new one is made",
    Fault.FULL: "make room on that disk",
    Fault.DISK: "look whether that disk is full or damaged",
    Fault.BUSY: "another rkllm-mcp is using it; end that process",
}


@asynccontextmanager
async def open_database(
    path: Path, *, on_problem: Callable[[str], None], required: bool = False
) -> AsyncGenerator[SQLiteDatabase, None]:
    """Open the database at ``path``, creating file and folder; write everything and close it at the end of the block.

    ``on_problem`` takes a line when data cannot be stored, once until it can be stored again, and another line then.
    With ``required`` an unusable file is an error instead of being replaced by an in-memory database. A StoreError if
    the file is required and cannot be used.
    """
    database = SQLiteDatabase(path, on_problem)
    try:
        await database.open(required=required)
        yield database
    finally:
        await database.aclose()
