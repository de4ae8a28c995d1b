"""What boards that share a database know of each other: who lives, who makes which answer, and what a person is asked.

    board ─▶ its row, renewed every ``RENEWAL_S`` ─▶ its answers (``Leases``), their events, its questions

The row is the truth; ``Database.hint`` wakes those who wait for it, and they look by themselves every ``LOOK_S``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rkllm_mcp.store.database import Database, Transaction, in_transaction

# A board that has not renewed its row for that long is dead: its answers are broken off.
LEASE_S = 7.0
RENEWAL_S = 2.0
LOOK_S = 1.0
_DEAD_S = 3600.0
_EVENTS_DAYS = 1
_RENEW = "INSERT INTO boards (id, until) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET until = excluded.until"
_LIVES = "EXISTS (SELECT 1 FROM boards WHERE boards.id = {}.board AND boards.until >= ?)"
_ANSWER_LIVES, _QUESTION_LIVES = _LIVES.format("answers"), _LIVES.format("questions")
_TAKE = f"""
INSERT INTO answers (tenant, conversation, number, board) VALUES (?, ?, 1, ?)
ON CONFLICT (tenant, conversation) DO UPDATE SET number = answers.number + 1, board = excluded.board, is_cancelled = 0
WHERE answers.board = excluded.board OR NOT {_ANSWER_LIVES} RETURNING number"""  # noqa: S608
ANSWER_NUMBER = "SELECT number FROM answers WHERE tenant = ? AND conversation = ?"
END_ANSWER = "UPDATE answers SET board = '' WHERE tenant = ? AND conversation = ? AND number = ?"
# A board goes on with an answer that is its own and was not cancelled.
STILL_OWN = "(SELECT number FROM answers WHERE tenant = ? AND conversation = ? AND is_cancelled = 0) = ?"
_ADD_EVENTS = """
INSERT INTO answer_events (tenant, conversation, answer, reader, last, records, is_end, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
_EVENTS = """
SELECT last, records, is_end FROM answer_events WHERE tenant = ? AND conversation = ? AND reader = ? AND last > ?
ORDER BY last"""


class AnsweredElsewhereError(Exception):
    """Another board answers in the conversation."""


@dataclass(eq=False)
class Leases:
    """The answers of boards: one board at a time answers in a conversation, and the others know of it.

    ``board`` is the id of this process; ``now`` returns the time that all boards have in common, seconds.
    """

    database: Database
    board: str
    now: Callable[[Transaction], float]
    clock_behind_s: float = 0.0  # how late this machine is by the time that all boards have in common

    async def renew(self) -> None:
        """Say that this board lives."""
        now = await self.database.ask(self._renew, durable=True)
        self.clock_behind_s = now - time.time()

    def _renew(self, transaction: Transaction) -> float:
        now = self.now(transaction)
        transaction.execute(_RENEW, (self.board, now + LEASE_S))
        transaction.execute("DELETE FROM boards WHERE until < ?", (now - _DEAD_S,))
        return now

    def take(self, tenant: str, conversation: str, transaction: Transaction) -> int:
        """Begin an answer and return its number, which grows; an AnsweredElsewhereError if another board answers."""
        now = self._renew(transaction)
        row = transaction.execute(_TAKE, (tenant, conversation, self.board, now)).fetchone()
        if row is None:
            raise AnsweredElsewhereError
        return int(row[0])

    @in_transaction(reads=True)
    def is_held(self, transaction: Transaction, tenant: str, conversation: str, *, elsewhere: bool = False) -> bool:
        """Return True if a board that lives answers in a conversation; with ``elsewhere`` one that is not this."""
        query = f"SELECT board FROM answers WHERE tenant = ? AND conversation = ? AND {_ANSWER_LIVES}"  # noqa: S608
        row = transaction.execute(query, (tenant, conversation, self.now(transaction))).fetchone()
        return row is not None and not (elsewhere and row[0] == self.board)

    @in_transaction(durable=True)
    def cancel(self, transaction: Transaction, tenant: str, conversation: str) -> bool:
        """Tell the board that answers in a conversation to stop; return False if none does."""
        query = f"UPDATE answers SET is_cancelled = 1 WHERE tenant = ? AND conversation = ? AND {_ANSWER_LIVES}"  # noqa: S608
        return transaction.execute(query, (tenant, conversation, self.now(transaction))).rowcount > 0

    # --- events of detached answers ---------------------------------------------------------------------------------

    async def add_events(self, whose: tuple[str, str, str, str], records: Mapping[int, str], *, is_end: bool) -> None:
        """Store records by their numbers, of an answer that tenant, conversation, its id and its reader's key name.

        Those of the conversation's answers before it are deleted.
        """
        tenant, conversation, answer, _ = whose

        def insert(transaction: Transaction) -> None:
            old = "DELETE FROM answer_events WHERE tenant = ? AND conversation = ? AND answer <> ?"
            transaction.execute(old, (tenant, conversation, answer))
            last = max(records, default=sys.maxsize if is_end else 0)
            values = (*whose, last, json.dumps(dict(records)), int(is_end), self.now(transaction))
            transaction.execute(_ADD_EVENTS, values)

        await self.database.ask(insert, durable=True)
        self.database.hint(conversation)

    async def events(
        self, tenant: str, conversation: str, reader: str, after: int
    ) -> tuple[Sequence[tuple[int, str]], bool] | None:
        """Return the records after a number, and whether no more come: the answer ended.

        None if no answer exists that this key may read, or its board died before the end.
        """
        whose = (tenant, conversation, reader)
        rows = await self.database.rows(_EVENTS, (*whose, after))
        if not rows:
            query = "SELECT 1 FROM answer_events WHERE tenant = ? AND conversation = ? AND reader = ? LIMIT 1"
            if not await self.database.rows(query, whose) or not await self.is_held(tenant, conversation):
                return None
        numbered = ((int(number), record) for _, records, _ in rows for number, record in json.loads(records).items())
        return [(number, record) for number, record in numbered if number > after], any(row[2] for row in rows)

    async def wait_for_change(self, topic: str) -> None:
        """Wait until a conversation or question may have changed."""
        await self.database.wait_for_change(topic, LOOK_S)

    # --- questions for a person -------------------------------------------------------------------------------------

    @in_transaction(durable=True)
    def ask(
        self, transaction: Transaction, tenant: str, question_id: str, question: Mapping[str, Any], seconds: float
    ) -> None:
        """Store a question, which is open for that long."""
        until = self._renew(transaction) + seconds
        statement = "INSERT INTO questions (tenant, id, board, question, until) VALUES (?, ?, ?, ?, ?)"
        transaction.execute(statement, (tenant, question_id, self.board, json.dumps(question), until))

    @in_transaction(reads=True)
    def questions(self, transaction: Transaction, tenant: str) -> list[tuple[dict[str, Any], float]]:
        """Return the open questions of other boards that live, and for how many seconds each is open, oldest first."""
        now = self.now(transaction)
        query = f"""SELECT question, until FROM questions WHERE tenant = ? AND answer = '' AND until > ?
            AND board <> ? AND {_QUESTION_LIVES} ORDER BY until"""  # noqa: S608
        rows = transaction.execute(query, (tenant, now, self.board, now)).fetchall()
        return [(json.loads(question), until - now) for question, until in rows]

    async def answer(self, tenant: str, question_id: str, answer: object) -> bool | None:
        """Answer an open question; False if it was answered before or its board is dead, None if it is not stored."""

        def update(transaction: Transaction) -> bool | None:
            now = self.now(transaction)
            query = f"UPDATE questions SET answer = ? WHERE tenant = ? AND id = ? AND answer = '' AND until > ? AND {_QUESTION_LIVES}"  # noqa: E501, S608
            if transaction.execute(query, (json.dumps(answer), tenant, question_id, now, now)).rowcount:
                return True
            query = "SELECT 1 FROM questions WHERE tenant = ? AND id = ?"
            return False if transaction.execute(query, (tenant, question_id)).fetchone() else None

        is_answered = await self.database.ask(update, durable=True)
        if is_answered:
            self.database.hint(question_id)
        return is_answered

    async def answer_to(self, tenant: str, question_id: str) -> Any:
        """Return the answer to a question; None before there is one."""
        query = "SELECT answer FROM questions WHERE tenant = ? AND id = ?"
        rows = await self.database.rows(query, (tenant, question_id))
        return json.loads(rows[0][0]) if rows and rows[0][0] else None

    @in_transaction(durable=True)
    def close(self, transaction: Transaction, tenant: str, question_id: str) -> Any:
        """Delete a question and return the answer that was given to it, if any."""
        query = "DELETE FROM questions WHERE tenant = ? AND id = ? RETURNING answer"
        row = transaction.execute(query, (tenant, question_id)).fetchone()
        return json.loads(row[0]) if row and row[0] else None

    @in_transaction()
    def tidy(self, transaction: Transaction, tenant: str) -> None:
        """Delete what no client reads any more: events of a day ago, questions of dead boards."""
        now = self.now(transaction)
        transaction.execute(
            "DELETE FROM answer_events WHERE tenant = ? AND at < ?", (tenant, now - _EVENTS_DAYS * 86400)
        )
        transaction.execute("DELETE FROM questions WHERE tenant = ? AND until < ?", (tenant, now - _DEAD_S))
