"""What a store of knowledge bases is: transactions, and an index of terms. ``sqlite`` and ``postgres`` implement it.

The functions of this package write statements that both read: ``?`` for values, ``RETURNING``, ``ON CONFLICT``.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

ChunkKeys = NDArray[np.int64]
NO_CHUNKS: ChunkKeys = np.zeros(0, np.int64)

# Imports wait for one transaction of the background work, which ends after the statement that exceeds this.
BATCH_S = 0.02
# Transactions are short; replacing a text index takes longest.
BUSY_TIMEOUT_S = 60.0
# So background work ends some day, however many searches come.
_GIVES_WAY_S = 0.05
# PostgreSQL knows no negative limit.
NO_LIMIT = 1 << 62


def marks(values: Sequence[object]) -> str:
    """Return the question marks for the values of ``IN (…)``; PostgreSQL has no empty list."""
    return ", ".join("?" * len(values)) or "NULL"


class Rows(Iterable[Any], Protocol):
    """Result of a statement; iterating yields the rows that are left."""

    @property
    def rowcount(self) -> int:
        """The number of rows that a statement changed."""
        ...

    def fetchone(self) -> Any:
        """Return the next row; None if none exists."""
        ...

    def fetchall(self) -> list[Any]:
        """Return the rows that are left."""
        ...


class TermIndex(Protocol):
    """Chunks by the terms that they contain, for each base.

    Version 0 is the index that is searched. One of another version, that of the analyzer, is built next to it and then
    replaces it.
    """

    def create(self, base: int, version: int = 0) -> None:
        """Create an empty index; an unfinished one of another version is dropped."""
        ...

    def drop(self, base: int) -> None:
        """Drop all indexes of a base."""
        ...

    def add(self, base: int, chunks: Iterable[tuple[int, str]], version: int = 0) -> None:
        """Add chunks with their terms, which are separated by spaces."""
        ...

    def remove(self, base: int, chunks: Iterable[tuple[int, str]], version: int = 0) -> None:
        """Remove chunks with exactly the terms that were added."""
        ...

    def frequencies(self, base: int, terms: Sequence[str]) -> dict[str, int]:
        """Return the number of chunks that contain each term; a character that is not ASCII begins the term."""
        ...

    def postings(self, base: int, terms: Sequence[str]) -> dict[str, ChunkKeys]:
        """Return the chunks that contain each term in ascending order, as ``frequencies``."""
        ...

    def last(self, base: int, version: int) -> int | None:
        """Return the last chunk of an unfinished index, 0 if it is empty; None if no such index exists."""
        ...

    def replace(self, base: int, version: int) -> None:
        """Search a finished index from now on; the old one is deleted by ``delete_replaced``."""
        ...

    def merge(self, base: int, seconds: float, version: int = 0) -> bool:
        """Make an index faster for some time; return False if nothing is left to do."""
        ...

    def has_replaced(self, base: int) -> bool:
        """Return True if ``delete_replaced`` has something to do."""
        ...

    def delete_replaced(self, base: int) -> bool:
        """Delete a part of the replaced indexes, for ``BATCH_S``; return False if none exist."""
        ...


class Transaction(Protocol):
    """A connection inside of a transaction."""

    @property
    def terms(self) -> TermIndex:
        """The index of terms."""
        ...

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Rows:
        """Run a statement."""
        ...

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> object:
        """Run a statement once for each row of values."""
        ...


class Database(ABC):
    """A store; its methods may be called by several threads, and several processes may open the same one."""

    def __init__(self, busy_timeout_s: float) -> None:
        self._busy_timeout_s = busy_timeout_s
        # A lock of the store is waited for by polling; writers of one process queue here instead.
        self._writing = threading.Lock()
        self._searches = 0
        self._searches_changed = threading.Condition()

    @abstractmethod
    def reading(self) -> AbstractContextManager[Transaction]:
        """Open a read transaction: a consistent snapshot."""

    @abstractmethod
    def writing(self, *, is_durable: bool = True) -> AbstractContextManager[Transaction]:
        """Open a write transaction: committed at the end, rolled back on an exception. There is one at a time.

        One that is not durable waits for no disk: it may be lost if the power fails before the next durable one. The
        background work uses it.
        """

    @abstractmethod
    def back_up(self, file: Path) -> None:
        """Copy everything to a new SQLite file; raise BadArgumentError where that is impossible."""

    @abstractmethod
    def close(self) -> None:
        """Close idle connections now and the others when they are returned."""

    def checkpoint(self) -> None:  # noqa: B027  (a server does it by itself)
        """Do what would make a later transaction wait."""

    def read(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return the result of a function of a transaction and the arguments, in a read transaction."""
        with self.reading() as connection:
            return function(connection, *arguments)

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

        Computing next to one makes it wait 5 ms for the interpreter after each of its statements.
        """
        with self._writing:
            pass
        with self._searches_changed:
            self._searches_changed.wait_for(lambda: not self._searches, _GIVES_WAY_S)
