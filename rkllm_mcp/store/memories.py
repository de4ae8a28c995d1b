"""What a person wants remembered in all their conversations: a few short rows.

Removing a row removes its text from the conversations for which it was recalled as well: from the context of their
questions and from the events of their answers. What the person typed themselves stays in its conversation.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from rkllm_mcp.errors import UsageError
from rkllm_mcp.events import to_json
from rkllm_mcp.messages import StoredTurn
from rkllm_mcp.records import MOST_ROWS, MemoryRow, MemoryState, without_row
from rkllm_mcp.store.conversations import escape_like, row_of_turn
from rkllm_mcp.store.database import Database, Transaction, in_transaction

COLUMNS = ("id", "text", "language", "is_pinned", "state", "source", "created", "used")
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM memories"  # noqa: S608  (no input)
_INSERT = f"INSERT INTO memories ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608
_LIKES = "{} LIKE ? ESCAPE '\\' OR {} LIKE ? ESCAPE '\\'"


@dataclass(eq=False)
class Memories:
    """The rows of one user; every method that waits raises a StoreError if the database cannot be used."""

    database: Database
    clock: Callable[[], float] = time.time

    async def all(self) -> list[MemoryRow]:
        """Return all rows, the oldest first."""
        return [_row(row) for row in await self.database.rows(f"{_SELECT} ORDER BY created, id")]

    async def kept(self) -> list[MemoryRow]:
        """Return the rows that are used, the oldest first."""
        return [row for row in await self.all() if row.state == "kept"]

    @in_transaction(durable=True)
    def add(
        self,
        transaction: Transaction,
        text: str,
        language: str,
        *,
        source: str = "",
        is_pinned: bool = False,
        state: MemoryState = "kept",
    ) -> tuple[MemoryRow, bool]:
        """Store a row and return it; with False if one with the same text was there, which is kept from now on.

        Raises:
            UsageError: there are ``MOST_ROWS`` of them.
        """
        new = MemoryRow(secrets.token_hex(4), text, language, is_pinned, state, source, self.clock())
        rows = [_row(row) for row in transaction.execute(_SELECT).fetchall()]
        same = next((row for row in rows if row.text.casefold() == text.casefold()), None)
        if same is not None:
            if state == "kept":
                change = "UPDATE memories SET state = ?, is_pinned = ? WHERE id = ?"
                transaction.execute(change, (state, int(same.is_pinned or is_pinned), same.id))
            return same, False
        if len(rows) >= MOST_ROWS:
            raise UsageError(f"{MOST_ROWS} things are remembered, which is the most; remove some")
        transaction.execute(_INSERT, astuple(new))
        return new, True

    @in_transaction(erases=True)
    def change(
        self,
        transaction: Transaction,
        row_id: str,
        *,
        text: str | None = None,
        is_pinned: bool | None = None,
        state: MemoryState | None = None,
    ) -> MemoryRow | None:
        """Change a row and return it; None if no row has this id. A text that is replaced is erased."""
        row = transaction.execute(f"{_SELECT} WHERE id = ?", (row_id,)).fetchone()
        if row is None:
            return None
        before = _row(row)
        values = (
            before.text if text is None else text,
            int(before.is_pinned if is_pinned is None else is_pinned),
            state or before.state,
            row_id,
        )
        transaction.execute("UPDATE memories SET text = ?, is_pinned = ?, state = ? WHERE id = ?", values)
        changed = _row(transaction.execute(f"{_SELECT} WHERE id = ?", (row_id,)).fetchone())
        if changed.text != before.text:
            _erase_text(before.text, transaction)
        return changed

    @in_transaction(erases=True)
    def remove(self, transaction: Transaction, row_ids: Sequence[str] | None) -> list[MemoryRow]:
        """Delete rows for good, with None all of them, and what was recalled of them; return those that were there."""
        rows = [_row(row) for row in transaction.execute(f"{_SELECT} ORDER BY created, id").fetchall()]
        removed = [row for row in rows if row_ids is None or row.id in row_ids]
        for row in removed:
            transaction.execute("DELETE FROM memories WHERE id = ?", (row.id,))
            _erase_text(row.text, transaction)
        return removed

    def note_used(self, rows: Sequence[MemoryRow]) -> None:
        """Note that rows were recalled; returns at once and never raises."""
        now, ids = self.clock(), [row.id for row in rows]
        statement = "UPDATE memories SET used = ? WHERE id = ?"
        self.database.tell(lambda transaction: transaction.executemany(statement, [(now, row_id) for row_id in ids]))


def _row(values: Sequence[Any]) -> MemoryRow:
    row = MemoryRow(*values)
    return replace(row, is_pinned=bool(row.is_pinned))


def _erase_text(text: str, transaction: Transaction) -> None:
    """Remove a row's text from what was recalled and shown in conversations and their earlier versions."""
    in_json = to_json(text)[1:-1]
    plain, once, twice = (f"%{escape_like(form)}%" for form in (text, in_json, to_json(in_json)[1:-1]))
    query = f"""SELECT tenant, conversation, position, role, text, thinking, context, ending, created, events
        FROM messages WHERE {_LIKES.format("context", "events")}"""  # noqa: S608  (no input)
    for *turn_key, role, words, thinking, context, ending, at, events in transaction.execute(
        query, (plain, once)
    ).fetchall():
        less = without_row(StoredTurn(role, words, thinking, context, ending, at, events), text)
        change = "UPDATE messages SET context = ?, events = ? WHERE tenant = ? AND conversation = ? AND position = ?"
        transaction.execute(change, (less.context, less.events, *turn_key))
    query = f"SELECT id, turns FROM versions WHERE {_LIKES.format('turns', 'turns')}"  # noqa: S608  (no input)
    for version, turns in transaction.execute(query, (once, twice)).fetchall():
        less = [row_of_turn(without_row(StoredTurn(*turn), text)) for turn in json.loads(turns)]
        transaction.execute("UPDATE versions SET turns = ? WHERE id = ?", (to_json(less), version))
    # Records of detached answers, which are there for minutes, and of requests that may be sent again, for a day.
    requests = f"DELETE FROM texts WHERE kind = 'requests' AND ({_LIKES.format('text', 'text')})"  # noqa: S608
    transaction.execute(requests, (once, twice))
    delete = f"DELETE FROM answer_events WHERE {_LIKES.format('records', 'records')}"  # noqa: S608  (no input)
    transaction.execute(delete, (once, twice))
