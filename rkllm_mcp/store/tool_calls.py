"""History of tool calls: stored for a limited time, listed newest first."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field, fields, replace
from typing import Any

from rkllm_mcp.errors import StoreError
from rkllm_mcp.records import CallRecord
from rkllm_mcp.store.conversations import WRITTEN_AT
from rkllm_mcp.store.database import CLOCK_WAS_SET_S, DAY_S, Database, Transaction
from rkllm_mcp.store.limits import Limits

_COLUMNS = tuple(column.name for column in fields(CallRecord))
_MARKS = ", ".join(WRITTEN_AT if name == "at" else "?" for name in _COLUMNS)
_INSERT = f"INSERT INTO calls ({', '.join(_COLUMNS)}) VALUES ({_MARKS})"  # noqa: S608  (no input)
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM calls"  # noqa: S608  (no input)
_SERVED = (
    "SELECT request, server, tool FROM calls WHERE request <> '' AND is_error = 0 GROUP BY request, server, tool "
    "ORDER BY MAX(id) DESC LIMIT ?"
)
# A service runs for months: old records are deleted at start-up and then once per this many calls.
_CALLS_BETWEEN_CLEANINGS = 200
# Age is the sum of the time between later calls, so a clock correction does not age all of them at once.
_DELETE_OLD = """
DELETE FROM calls WHERE id IN (
    SELECT id FROM (
        SELECT id, SUM(CASE WHEN ABS(gap) > ? THEN 0 ELSE gap END) OVER (ORDER BY id DESC) AS age
        FROM (SELECT id, LEAD(at, 1, ?) OVER (ORDER BY id) - at AS gap FROM calls) AS gaps
    ) AS ages WHERE age > ?
)"""

_DELETE_SURPLUS = "DELETE FROM calls WHERE id <= (SELECT id FROM calls ORDER BY id DESC LIMIT 1 OFFSET ?)"


@dataclass(eq=False)
class CallHistory:
    """Recorded calls; ``record`` is a ``CallRecorder``, and ``list_served`` a ``PastCalls``."""

    database: Database
    limits: Limits = field(default_factory=Limits)
    _until_cleaning: int = field(default=0, init=False)

    def record(self, call: CallRecord) -> None:
        """Store a record; returns at once and never raises."""
        retention = self.limits.current.calls
        if retention.days <= 0 or retention.calls <= 0:
            return
        self.database.tell(lambda transaction: transaction.execute(_INSERT, astuple(call)))
        if self._until_cleaning == 0:
            self.clean()
        self._until_cleaning = (self._until_cleaning or _CALLS_BETWEEN_CLEANINGS) - 1

    def clean(self) -> None:
        """Delete records beyond the limits."""

        def delete_old(transaction: Transaction) -> None:
            limits = self.limits.read(transaction)
            if limits is not None:
                now = self.limits.now(transaction)
                transaction.execute(_DELETE_OLD, (CLOCK_WAS_SET_S, now, limits.calls.days * DAY_S))
                transaction.execute(_DELETE_SURPLUS, (limits.calls.calls,))

        self.database.tell(delete_old)

    async def delete_all(self) -> None:
        """Delete every record; a StoreError if the file cannot be written."""
        await self.database.ask(lambda transaction: transaction.execute("DELETE FROM calls").rowcount, erases=True)

    async def latest(
        self, limit: int, *, server: str | None = None, errors_only: bool = False, conversation: str | None = None
    ) -> list[CallRecord]:
        """Return the latest calls, newest first.

        The filters select calls of one server, failed or refused calls, and calls of one conversation by its id. A
        StoreError if the file cannot be read.
        """
        where, values = "TRUE", list[Any]()
        for column, value in (("server", server), ("conversation", conversation)):
            if value is not None:
                where += f" AND {column} = ?"
                values.append(value)
        where += " AND is_error <> 0" if errors_only else ""
        rows = await self.database.rows(f"{_SELECT} WHERE {where} ORDER BY id DESC LIMIT ?", (*values, limit))
        calls = (CallRecord(*row) for row in rows)
        return [replace(call, is_error=bool(call.is_error)) for call in calls]

    async def list_served(self, limit: int) -> list[tuple[str, str]]:
        """See ``records.PastCalls``."""
        try:
            rows = await self.database.rows(_SERVED, (limit,))
        except StoreError:
            return []
        return [(request, f"mcp__{server}__{tool}") for request, server, tool in rows]
