"""What the stores of knowledge bases share. ``sqlite`` and ``postgres`` are the stores, each with an index of terms.

The functions of this package write statements that both read: ``?`` for values, ``RETURNING``, ``ON CONFLICT``.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

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


class DatabaseBase(ABC):
    """A store; its methods may be called by several threads, and several processes may open the same one."""

    def __init__(self, busy_timeout_s: float) -> None:
        self._busy_timeout_s = busy_timeout_s
        # A lock of the store is waited for by polling; writers of one process queue here instead.
        self._writing = threading.Lock()
        self._searches = 0
        self._searches_changed = threading.Condition()

    @abstractmethod
    def reading(self) -> AbstractContextManager[Any]:
        """Open a read transaction: a consistent snapshot."""

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
