"""Schedules and their runs.

    due ─▶ claim: ``UPDATE … WHERE next_at = old`` and a run that waits, in one transaction ─▶ take ─▶ finish

Boards that share a database claim and take each run once: the second ``UPDATE`` changes no row. A process that is
killed after a claim leaves a run that waits, which any board takes; one that is killed in a run leaves it for
``end_abandoned``.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from typing import Any

from rkllm_mcp.errors import UsageError
from rkllm_mcp.records import RunOutcome, Schedule, ScheduleRun
from rkllm_mcp.store.database import Database, Transaction, in_transaction

# The topic that wakes those who wait for a schedule.
TOPIC = "schedules"
MOST = 1000
RUNS_KEPT = 100
_COLUMNS = (
    *("id", "prompt", "rule", "zone", "language", "is_reminder", "is_quiet", "tools", "webhook", "webhook_form"),
    *("secret", "conversation", "next_at", "state", "failures", "created"),
)
_RUN_COLUMNS = (
    *("number", "id", "schedule", "due", "claimed", "ended", "outcome", "text", "delivery", "conversation", "board"),
)
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM schedules WHERE tenant = ?"  # noqa: S608  (names of columns)
_SELECT_RUNS = f"SELECT {', '.join(_RUN_COLUMNS)} FROM schedule_runs WHERE tenant = ?"  # noqa: S608
_INSERT = f"INSERT INTO schedules (tenant, {', '.join(_COLUMNS)}) VALUES (?, {', '.join('?' * len(_COLUMNS))})"  # noqa: S608
_INSERT_RUN = """
INSERT INTO schedule_runs (tenant, id, schedule, due, claimed, ended, outcome, text, delivery, conversation, board)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, '', '', ?)"""
_CLAIM = "UPDATE schedules SET next_at = ?, state = ? WHERE tenant = ? AND id = ? AND next_at = ? AND state = 'active'"
_TAKE = "UPDATE schedule_runs SET outcome = 'running', board = ? WHERE tenant = ? AND id = ? AND outcome = 'waiting'"
_FORGET_OLD_RUNS = """
DELETE FROM schedule_runs WHERE tenant = ? AND schedule = ? AND number <= (
    SELECT number FROM schedule_runs WHERE tenant = ? AND schedule = ? ORDER BY number DESC LIMIT 1 OFFSET ?)"""
_LIVES = "EXISTS (SELECT 1 FROM boards WHERE boards.id = schedule_runs.board AND boards.until >= ?)"
# Returns the next moment of a schedule after the present; None if none exists.
NextMoment = Callable[[Schedule], "float | None"]


class Schedules:
    """The schedules of a database; ``now`` is the time that its boards have in common, and ``board`` this process."""

    def __init__(
        self,
        database: Database,
        board: str = "",
        now: Callable[[Transaction], float] = lambda _: time.time(),
        *,
        is_shared: bool = False,
    ) -> None:
        self.database = database
        self.board = board or uuid.uuid4().hex
        self._now = now
        self._is_shared = is_shared

    async def now(self) -> float:
        """Return the time by which schedules are due."""
        return await self.database.ask(self._now, reads=True)

    @in_transaction(durable=True, topic=TOPIC)
    def add(self, transaction: Transaction, tenant: str, schedule: Schedule) -> Schedule:
        """Store a new schedule and return it with its id; a UsageError if there are too many."""
        count = transaction.execute("SELECT COUNT(*) FROM schedules WHERE tenant = ?", (tenant,)).fetchone()[0]
        if count >= MOST:
            raise UsageError(f"there are {count} schedules already; remove one with 'rkllm-mcp schedules remove ID'")
        schedule_id, created = schedule.id or uuid.uuid4().hex[:8], schedule.created or self._now(transaction)
        values = {**vars(schedule), "id": schedule_id, "created": created, "tools": json.dumps(schedule.tools)}
        row = tuple(values[name] for name in _COLUMNS)
        transaction.execute(_INSERT, (tenant, *row))
        return _schedule(row)

    async def all(self, tenant: str) -> list[Schedule]:
        """Return all schedules, those that are due next first."""
        order = "ORDER BY next_at IS NULL, next_at, created, id"
        return list(map(_schedule, await self.database.rows(f"{_SELECT} {order}", (tenant,))))

    async def get(self, tenant: str, schedule_id: str) -> Schedule | None:
        """Return a schedule; None if this tenant has none of that id."""
        rows = await self.database.rows(f"{_SELECT} AND id = ?", (tenant, schedule_id))
        return _schedule(rows[0]) if rows else None

    async def change(self, tenant: str, schedule_id: str, **values: Any) -> bool:
        """Change fields of a schedule; return False if no schedule has that id."""
        columns = ", ".join(f"{name} = ?" for name in values)
        row = [json.dumps(value) if name == "tools" else value for name, value in values.items()]
        statement = f"UPDATE schedules SET {columns} WHERE tenant = ? AND id = ?"  # noqa: S608  (names of columns)
        changed = await self.database.change(statement, (*row, tenant, schedule_id), durable=True)
        self.database.hint(TOPIC)
        return changed > 0

    @in_transaction(erases=True, topic=TOPIC)
    def remove(self, transaction: Transaction, tenant: str, schedule_id: str | None) -> int:
        """Delete a schedule, with None all of them, and their runs; return the number of schedules."""
        statement, values = "DELETE FROM schedules WHERE tenant = ?", [tenant]
        if schedule_id is not None:
            statement, values = f"{statement} AND id = ?", [tenant, schedule_id]
        return transaction.execute(statement, values).rowcount

    # --- runs -------------------------------------------------------------------------------------------------------

    async def next_at(self, tenant: str) -> float | None:
        """Return when a schedule is due next; None if none is."""
        query = "SELECT MIN(next_at) FROM schedules WHERE tenant = ? AND state = 'active'"
        return (await self.database.rows(query, (tenant,)))[0][0]

    @in_transaction(durable=True)
    def claim(self, transaction: Transaction, tenant: str, next_moment: NextMoment, late: float) -> int:
        """Move every schedule that is due to its next moment and add a run that waits; return the number of runs.

        A run that is due for more than ``late`` seconds is missed.
        """
        now = self._now(transaction)
        due = transaction.execute(f"{_SELECT} AND next_at <= ? AND state = 'active'", (tenant, now)).fetchall()
        count = 0
        for schedule in map(_schedule, due):
            following = next_moment(schedule)
            state = "done" if following is None else "active"
            values = (following, state, tenant, schedule.id, schedule.next_at)
            if transaction.execute(_CLAIM, values).rowcount:
                at = schedule.next_at or now
                outcome: RunOutcome = "missed" if now - at > late else "waiting"
                self._insert_run(tenant, schedule.id, at, now, outcome, transaction)
                count += 1
        return count

    def _insert_run(
        self, tenant: str, schedule_id: str, due: float, now: float, outcome: RunOutcome, transaction: Transaction
    ) -> None:
        ended = None if outcome == "waiting" else now
        values = (tenant, uuid.uuid4().hex[:12], schedule_id, due, now, ended, outcome, "", self.board)
        transaction.execute(_INSERT_RUN, values)
        transaction.execute(_FORGET_OLD_RUNS, (tenant, schedule_id, tenant, schedule_id, RUNS_KEPT))

    @in_transaction(durable=True, topic=TOPIC)
    def request_run(self, transaction: Transaction, tenant: str, schedule_id: str) -> bool:
        """Add a run that is due now; return False if no such schedule exists or one of its runs waits already."""
        query = "SELECT 1 FROM schedules WHERE tenant = ? AND id = ?"
        if transaction.execute(query, (tenant, schedule_id)).fetchone() is None:
            return False
        waits = "SELECT 1 FROM schedule_runs WHERE tenant = ? AND schedule = ? AND outcome = 'waiting'"
        if transaction.execute(waits, (tenant, schedule_id)).fetchone() is not None:
            return False
        now = self._now(transaction)
        self._insert_run(tenant, schedule_id, now, now, "waiting", transaction)
        return True

    @in_transaction(durable=True)
    def add_notice(
        self, transaction: Transaction, tenant: str, schedule_id: str, outcome: RunOutcome, text: str
    ) -> None:
        """Add a run that is over: something to say about a schedule."""
        now = self._now(transaction)
        values = (tenant, uuid.uuid4().hex[:12], schedule_id, now, now, now, outcome, text, self.board)
        transaction.execute(_INSERT_RUN, values)

    async def waiting(self, tenant: str) -> list[ScheduleRun]:
        """Return the runs that wait, oldest first."""
        query = f"{_SELECT_RUNS} AND outcome = 'waiting' ORDER BY due, number"
        return [ScheduleRun(*row) for row in await self.database.rows(query, (tenant,))]

    async def take(self, tenant: str, run_id: str) -> bool:
        """Begin a run; return False if another board has it."""
        return await self.database.change(_TAKE, (self.board, tenant, run_id), durable=True) > 0

    async def give_back(self, tenant: str, run_id: str) -> None:
        """Let a run that was taken and has not begun wait again."""
        statement = "UPDATE schedule_runs SET outcome = 'waiting' WHERE tenant = ? AND id = ? AND outcome = 'running'"
        await self.database.change(statement, (tenant, run_id), durable=True)

    @in_transaction(durable=True, topic=TOPIC)
    def finish(
        self,
        transaction: Transaction,
        tenant: str,
        run: ScheduleRun,
        outcome: RunOutcome,
        text: str,
        conversation: str = "",
        *,
        failures: int = 0,
    ) -> None:
        """Store the result of a run, and how many of its schedule have failed in a row."""
        transaction.execute(
            "UPDATE schedule_runs SET ended = ?, outcome = ?, text = ?, conversation = ? WHERE tenant = ? AND id = ?",
            (self._now(transaction), outcome, text, conversation, tenant, run.id),
        )
        transaction.execute(
            "UPDATE schedules SET failures = ?, conversation = CASE WHEN ? = '' THEN conversation ELSE ? END "
            "WHERE tenant = ? AND id = ?",
            (failures, conversation, conversation, tenant, run.schedule),
        )

    async def note_delivery(self, tenant: str, run_id: str, delivery: str) -> None:
        """Store what became of the webhook of a run."""
        statement = "UPDATE schedule_runs SET delivery = ? WHERE tenant = ? AND id = ?"
        await self.database.change(statement, (delivery, tenant, run_id))

    @in_transaction(durable=True)
    def end_abandoned(self, transaction: Transaction, tenant: str) -> int:
        """End the runs whose process is gone as interrupted; return their number."""
        now = self._now(transaction)
        values: Sequence[Any] = (now, tenant, self.board)
        statement = (
            "UPDATE schedule_runs SET ended = ?, outcome = 'interrupted' "
            "WHERE tenant = ? AND outcome = 'running' AND board <> ?"
        )
        if self._is_shared:
            statement, values = f"{statement} AND NOT {_LIVES}", (*values, now)
        return transaction.execute(statement, values).rowcount

    async def runs(
        self, tenant: str, schedule_id: str = "", *, limit: int = 20, ended_after: float | None = None
    ) -> list[ScheduleRun]:
        """Return runs, the latest first: of one schedule or all, and those alone that ended after a time."""
        query, values = _SELECT_RUNS, [tenant]
        if schedule_id:
            query, values = f"{query} AND schedule = ?", [*values, schedule_id]
        since: tuple[float, ...] = ()
        if ended_after is not None:
            query, since = f"{query} AND ended > ?", (ended_after,)
        rows = await self.database.rows(f"{query} ORDER BY number DESC LIMIT ?", (*values, *since, limit))
        return [ScheduleRun(*row) for row in rows]

    async def tidy(self, tenant: str, before: float, states: Collection[str] = ("done",)) -> int:
        """Delete the schedules in these states that have not run since a time."""
        marks = ", ".join("?" * len(states))
        statement = (
            f"DELETE FROM schedules WHERE tenant = ? AND state IN ({marks}) AND created < ? AND NOT EXISTS "  # noqa: S608
            "(SELECT 1 FROM schedule_runs AS r WHERE r.tenant = schedules.tenant AND r.schedule = schedules.id "
            "AND r.claimed >= ?)"
        )
        return await self.database.change(statement, (tenant, *states, before, before))


def _schedule(row: Sequence[Any]) -> Schedule:
    values: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
    flags = {name: bool(values[name]) for name in ("is_reminder", "is_quiet")}
    read: dict[str, Any] = {**values, **flags, "tools": tuple(json.loads(values["tools"]))}
    return Schedule(**read)
