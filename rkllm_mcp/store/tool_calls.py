"""History of tool calls: stored for a limited time, listed newest first."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields, replace
from functools import partial
from typing import Any

from rkllm_mcp.errors import StoreError
from rkllm_mcp.records import CallRecord
from rkllm_mcp.store.database import Database

_COLUMNS = tuple(field.name for field in fields(CallRecord))
_INSERT = f"INSERT INTO calls ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608  (no input)
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM calls"  # noqa: S608  (no input)
_SERVED = (
    "SELECT request, server, tool FROM calls WHERE request <> '' AND NOT is_error GROUP BY request, server, tool "
    "ORDER BY MAX(id) DESC LIMIT ?"
)
# A service runs for months: old records are deleted at start-up and then once per this many calls.
_CALLS_BETWEEN_CLEANINGS = 200
_DAY_S = 86400.0
# The clock of a board without a battery can start anywhere. A larger step between two calls is a clock correction.
_CLOCK_WAS_SET_S = 365 * _DAY_S
# Age is the sum of the time between later calls, so a clock correction does not age all of them at once.
_DELETE_OLD = """
DELETE FROM calls WHERE id IN (
    SELECT id FROM (
        SELECT id, SUM(CASE WHEN ABS(gap) > ? THEN 0 ELSE gap END) OVER (ORDER BY id DESC) AS age
        FROM (SELECT id, LEAD(at, 1, ?) OVER (ORDER BY id) - at AS gap FROM calls)
    ) WHERE age > ?
)"""


@dataclass(frozen=True)
class Retention:
    """Limits of the call history."""

    days: float = 90.0  # older calls are deleted; 0 stores none. A clock correction of more than a year ages no call
    calls: int = 10_000  # the oldest beyond this number are deleted


class CallHistory:
    """Recorded calls; implements ``Recorder`` and ``PastCalls``. ``clock`` returns seconds since 1970."""

    def __init__(self, database: Database, retention: Retention, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._retention = retention
        self._clock = clock
        self._until_cleaning = 0

    def record(self, call: CallRecord) -> None:
        """Store a record; returns at once and never raises."""
        if self._retention.days <= 0 or self._retention.calls <= 0:
            return
        self._database.tell(partial(_insert, call))
        if self._until_cleaning == 0:
            self.clean()
        self._until_cleaning = (self._until_cleaning or _CALLS_BETWEEN_CLEANINGS) - 1

    def clean(self) -> None:
        """Delete records beyond the limits."""
        self._database.tell(partial(_delete, self._clock(), self._retention))

    async def latest(
        self, limit: int, *, server: str | None = None, errors_only: bool = False, conversation: str | None = None
    ) -> list[CallRecord]:
        """Return the latest calls, newest first.

        The filters select calls of one server, failed or refused calls, and calls of one conversation by its id.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._database.ask(partial(_latest, limit, server, errors_only, conversation))

    async def served(self, limit: int) -> list[tuple[str, str]]:
        """See ``records.PastCalls``."""
        try:
            return await self._database.ask(partial(_served, limit))
        except StoreError:
            return []


def _insert(call: CallRecord, connection: sqlite3.Connection) -> None:
    connection.execute(_INSERT, astuple(call))


def _delete(now: float, retention: Retention, connection: sqlite3.Connection) -> None:
    connection.execute(_DELETE_OLD, (_CLOCK_WAS_SET_S, now, retention.days * _DAY_S))
    connection.execute("DELETE FROM calls WHERE id <= (SELECT MAX(id) FROM calls) - ?", (retention.calls,))


def _latest(
    limit: int, server: str | None, errors_only: bool, conversation: str | None, connection: sqlite3.Connection
) -> list[CallRecord]:
    conditions: list[str] = []
    values: list[Any] = []
    if server is not None:
        conditions.append("server = ?")
        values.append(server)
    if errors_only:
        conditions.append("is_error")
    if conversation is not None:
        conditions.append("conversation = ?")
        values.append(conversation)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = connection.execute(f"{_SELECT}{where} ORDER BY id DESC LIMIT ?", (*values, limit)).fetchall()
    return [_call(row) for row in rows]


def _served(limit: int, connection: sqlite3.Connection) -> list[tuple[str, str]]:
    rows = connection.execute(_SERVED, (limit,)).fetchall()
    return [(request, f"mcp__{server}__{tool}") for request, server, tool in rows]


def _call(row: tuple[Any, ...]) -> CallRecord:
    call = CallRecord(*row)
    return replace(call, is_error=bool(call.is_error))
