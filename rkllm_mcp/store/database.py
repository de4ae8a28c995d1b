"""One SQLite file behind one thread: the event loop never waits for a disk.

    ask(work) ──▶ thread ──▶ its result, or StoreError
    ask(work, durable=True)  the same, and no power failure takes it back
    tell(work) ─▶ thread     returns at once; a failure is told once, and nothing else is harmed

Rules:
* The thread takes one piece of work after the other, each in a transaction of its own, so that what was told is seen by
whoever asks later. Other processes may use the file at the same time (WAL; a writer waits for another one).
* The file and its folder are for their owner alone (0600, 0700).
* What is deleted is overwritten, so that a conversation that somebody deleted does not stay in the file.
* A file that cannot be used costs the memory, not the assistant: unless ``required``, everything goes on in a database
in memory, and one sentence says so. Nothing is ever deleted or repaired in a damaged file.

Followed: SQLite, "Write-Ahead Logging" and the result codes that are worth a sentence of their own.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import anyio

from rkllm_mcp.errors import StoreError
from rkllm_mcp.store.location import OVERRIDE
from rkllm_mcp.store.schema import NewerSchemaError, migrate, steps_taken

# How long a writer waits for another process's; a write takes a millisecond, a slow card some hundred.
_BUSY_TIMEOUT_S = 5.0
# What is still to be written at the end: every piece of work waits for the file once at most.
_CLOSE_TIMEOUT_S = 2 * _BUSY_TIMEOUT_S
_IN_MEMORY = ":memory:"

_Result = TypeVar("_Result")
Work = Callable[[sqlite3.Connection], _Result]


class Database:
    """An open database; ``open_database`` makes one.

    Args:
        path: the file.
        on_problem: is told, at most once, that from now on something is not kept.
    """

    def __init__(self, path: Path, on_problem: Callable[[str], None]) -> None:
        self.path = path
        self._on_problem = on_problem
        self._problem: StoreError | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rkllm-mcp store")
        self._connection: sqlite3.Connection | None = None
        self._loop = asyncio.get_running_loop()
        self._is_lasting = False

    @property
    def is_lasting(self) -> bool:
        """Whether what is written now is there in the next run."""
        return self._is_lasting

    @property
    def is_whole(self) -> bool:
        """Whether everything that was told so far is in it."""
        return self._problem is None

    async def ask(self, work: Work[_Result], *, durable: bool = False) -> _Result:
        """Do ``work`` in a transaction and return its result.

        Args:
            work: reads or changes; what it raises undoes it.
            durable: wait until the disk has it, so that it is there after a power failure as well.

        Raises:
            StoreError: the file cannot be read or written.
        """
        transact = self._transact_durably if durable else self._transact
        try:
            done = self._thread.submit(transact, work)
        except RuntimeError:
            raise StoreError(str(self.path), "it is closed already", _REPORT) from None
        return await asyncio.wrap_future(done)

    async def empty_log(self) -> None:
        """Have the write-ahead log written into the file and emptied, so that what was deleted is not there either.

        While another process reads, that is put off until the file is closed.

        Raises:
            StoreError: the file cannot be written.
        """
        await asyncio.wrap_future(self._thread.submit(self._empty_log))

    def tell(self, work: Work[object]) -> None:
        """Have ``work`` done in a transaction, without waiting; a failure is told, never raised."""
        try:
            self._thread.submit(self._transact, work).add_done_callback(self._note_failure)
        except RuntimeError:
            self._complain(StoreError(str(self.path), "it is closed already", _REPORT))

    async def settled(self) -> None:
        """Wait until everything that was told is done.

        Raises:
            StoreError: something was not.
        """
        await self.ask(_nothing)
        if self._problem is not None:
            raise self._problem

    async def open(self, *, required: bool) -> None:
        """Open the file, or where it cannot be used and is not ``required``, a database in memory.

        Raises:
            StoreError: it is required and cannot be used.
        """
        try:
            await asyncio.wrap_future(self._thread.submit(self._open_file))
            self._is_lasting = True
        except StoreError as error:
            if required:
                raise
            self._complain(error)
            await asyncio.wrap_future(self._thread.submit(self._connect, _IN_MEMORY))

    async def aclose(self) -> None:
        """Write what is left and close the file; bounded, and shielded from cancellation."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_TIMEOUT_S) as limit:
            await asyncio.wrap_future(self._thread.submit(self._close))
        # With nothing left to do the thread ends at once; one that hangs in a disk is not waited for.
        self._thread.shutdown(wait=not limit.cancelled_caught, cancel_futures=True)

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _open_file(self) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # SQLite would make it readable for everybody; its own side files take over this file's mode.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            raise StoreError(str(self.path), error.strerror or str(error), _ELSEWHERE) from None
        try:
            self._connect(str(self.path))
        except NewerSchemaError:
            found, remedy = "it was written by a newer version of rkllm-mcp", f"update rkllm-mcp, or {_ELSEWHERE}"
            raise StoreError(str(self.path), found, remedy) from None
        except sqlite3.Error as error:
            raise self._failure(error) from None

    def _connect(self, where: str) -> None:
        connection = sqlite3.connect(where, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
        try:
            # First of all: a newer file is left exactly as it is.
            steps_taken(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            # In WAL mode this loses at most the last moments when the power fails, never the file.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA secure_delete = ON")
            migrate(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _transact(self, work: Work[_Result]) -> _Result:
        connection = self._connection
        if connection is None:
            raise StoreError(str(self.path), "it is not open", _REPORT)
        try:
            connection.execute("BEGIN IMMEDIATE")
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException as error:
            # On some failures SQLite has rolled back by itself, and a second time is an error.
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise self._failure(error) from None
            if isinstance(error, UnicodeError):
                raise StoreError(str(self.path), "a name is no Unicode text", "use another one") from None
            raise
        return result

    def _transact_durably(self, work: Work[_Result]) -> _Result:
        """Like ``_transact``, but the write-ahead log is on the disk before it returns: the price is one fsync."""
        connection = self._connection
        if connection is not None:
            connection.execute("PRAGMA synchronous = FULL")
        try:
            return self._transact(work)
        finally:
            if connection is not None:
                connection.execute("PRAGMA synchronous = NORMAL")

    def _empty_log(self) -> None:
        try:
            if self._connection is not None:
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error as error:
            raise self._failure(error) from None

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # --- what went wrong --------------------------------------------------------------------------------------------

    def _failure(self, error: sqlite3.Error) -> StoreError:
        said = str(error)
        remedy = next((remedy for part, remedy in _REMEDIES if part in said), _ELSEWHERE)
        return StoreError(str(self.path), said, remedy)

    def _note_failure(self, done: Future[object]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self._complain(error if isinstance(error, StoreError) else StoreError(str(self.path), repr(error), _REPORT))

    def _complain(self, error: StoreError) -> None:
        if self._problem is None:
            self._problem = error
            sentence = f"[State: {error}. It goes on without remembering.]"
            # Failures are noticed in the thread; whoever is told lives in the loop.
            with suppress(RuntimeError):  # the loop may be gone before a disk that hangs
                self._loop.call_soon_threadsafe(self._on_problem, sentence)


_REPORT = "report this with the output of --debug"
_ELSEWHERE = f"name another folder in {OVERRIDE}"
_REMEDIES = (
    ("not a database", "move it away; a new one is made"),
    ("malformed", "move it away; a new one is made"),
    ("full", "make room on that disk"),
    ("locked", "another rkllm-mcp holds it; end that one"),
)


def _nothing(connection: sqlite3.Connection) -> None:
    del connection


@asynccontextmanager
async def open_database(
    path: Path, *, on_problem: Callable[[str], None], required: bool = False
) -> AsyncGenerator[Database, None]:
    """Open the database at ``path``; on leaving everything is written and the file closed.

    Args:
        path: the file; it and its folder are made.
        on_problem: is told once when something is not kept.
        required: a file that cannot be used is an error instead of a database in memory.

    Raises:
        StoreError: it is required and cannot be used.
    """
    database = Database(path, on_problem)
    try:
        await database.open(required=required)
        yield database
    finally:
        await database.aclose()
