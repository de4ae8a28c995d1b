"""Changes that wait in a board's own file while the database that boards share is away, and are made there in order.

    change ─▶ entry in the file, on disk ─▶ shared database, once ─▶ entry deleted

A change is JSON of a kind in ``Replays``. The entry of an answer that is not over names its process, which changes it
until then; after the death of that process it is a change like others.
"""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

import anyio

from rkllm_mcp.errors import StoreAwayError, StoreError
from rkllm_mcp.store.database import Database, Rows, Transaction, Values, Work

logger = logging.getLogger(__name__)

Replays: TypeAlias = "Mapping[str, Callable[[Any, Transaction], object]]"
_ADD = "INSERT INTO outbox (id, kind, change, writer, at) VALUES (?, ?, ?, ?, ?)"
_CHANGE = "UPDATE outbox SET change = ?, writer = ? WHERE id = ?"
_WAITING = "SELECT id, kind, change, writer FROM outbox WHERE writer <> ? ORDER BY number LIMIT 100"
_STATEMENTS = "statements"


@dataclass(frozen=True)
class Behind:
    """What waits in an outbox."""

    entries: int
    seconds: float  # since the oldest of them


class Outbox:
    """The waiting changes of one user.

    ``local`` is the board's own file, ``shared`` the database that boards share, ``replays`` make a change there.
    """

    def __init__(self, local: Database, shared: Database, tenant: str, replays: Replays) -> None:
        self._local = local
        self._shared = shared
        self._tenant = tenant
        self._replays = replays
        self._writer = f"{os.getpid()}:{_start_ticks(os.getpid())}"
        self._may_wait = True  # there may be entries; those of the process before, at first
        self._refused: set[str] = set()  # entries that the shared database did not take
        self._shipping = anyio.Lock()

    async def behind(self) -> Behind:
        """Return how much waits; a StoreError if the file cannot be read."""
        count, oldest = (await self._local.rows("SELECT COUNT(*), MIN(at) FROM outbox"))[0]
        return Behind(count, round(max(0.0, time.time() - oldest), 1) if count else 0.0)

    async def add(self, kind: str, change: object, *, is_open: bool = False) -> str:
        """Store a change on disk and return its id; with ``is_open`` it waits until it is not any longer open."""
        entry = uuid.uuid4().hex
        row = (entry, kind, json.dumps(change), self._writer if is_open else "", time.time())
        await self._local.change(_ADD, row, durable=True)
        self._may_wait = True
        return entry

    async def change(self, entry: str, change: object, *, is_open: bool) -> bool:
        """Replace a change that waits; return False if it does not wait any more."""
        values = (json.dumps(change), self._writer if is_open else "", entry)
        is_waiting = await self._local.change(_CHANGE, values, durable=True) > 0
        self._may_wait = self._may_wait or not is_open
        return is_waiting

    def keep(self, work: Work[object]) -> None:
        """Store what ``work`` writes, without waiting.

        What it writes after it has read is left out, such as what it deletes by the limits that the boards agree on.
        """
        recorded = _Recorder()
        with suppress(_CannotReadError):
            work(recorded)
        if not recorded.statements:
            return
        row = (uuid.uuid4().hex, _STATEMENTS, json.dumps(recorded.statements), "", time.time())
        self._local.tell(lambda transaction: transaction.execute(_ADD, row))
        self._may_wait = True

    async def ship(self) -> bool:
        """Make the waiting changes in the shared database; return False if it is away. A StoreError for a bad file."""
        if not self._may_wait:
            return True
        async with self._shipping:
            before = ""
            while self._may_wait:
                self._may_wait = False
                for entry, kind, change, writer in await self._local.rows(_WAITING, (self._writer,)):
                    writer_pid, _, started = writer.partition(":")
                    if entry in self._refused or (writer and _start_ticks(int(writer_pid)) == started):
                        continue
                    try:
                        work = partial(self._make_change, entry, kind, json.loads(change), before)
                        await self._shared.ask(work, durable=True)
                    except StoreAwayError:
                        self._may_wait = True
                        return False
                    except StoreError as error:
                        logger.error("a change cannot be made in the shared database: %s", error)  # noqa: TRY400
                        self._refused.add(entry)
                        continue
                    await self._local.change("DELETE FROM outbox WHERE id = ?", (entry,), durable=True)
                    before, self._may_wait = entry, True
        return True

    def _make_change(self, entry: str, kind: str, change: Any, before: str, transaction: Transaction) -> None:
        """Make a change, unless it was made before and its entry could not be deleted."""
        transaction.execute("DELETE FROM shipped WHERE tenant = ? AND id = ?", (self._tenant, before))
        statement = "INSERT INTO shipped (tenant, id) VALUES (?, ?) ON CONFLICT (tenant, id) DO NOTHING"
        if not transaction.execute(statement, (self._tenant, entry)).rowcount:
            return
        if kind == _STATEMENTS:
            for noted, values in change:
                transaction.execute(noted, values)
        else:
            self._replays[kind](change, transaction)


@dataclass(eq=False)
class _Recorder:
    """A ``Transaction`` that only notes what would be executed."""

    statements: list[tuple[str, Sequence[Any]]] = field(default_factory=list[tuple[str, Sequence[Any]]])

    def execute(self, statement: str, values: Values = (), /) -> Rows:
        self.statements.append((statement, list(values)))
        return cast("Rows", _NoRows(self.statements))

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]], /) -> None:
        self.statements += [(statement, list(row)) for row in rows]


class _CannotReadError(Exception):
    """A work reads, and the database is away."""


@dataclass(eq=False)
class _NoRows:
    """The rows of the last statement; to read them takes it out."""

    statements: list[tuple[str, Sequence[Any]]]
    rowcount = 0

    def fetchall(self) -> list[Any]:
        self.statements.pop()
        raise _CannotReadError

    fetchone = fetchall


def _start_ticks(number: int) -> str:
    """Return when a process began, in ticks since the boot; empty if none exists."""
    try:
        return Path(f"/proc/{number}/stat").read_text("utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return ""
