"""Copy what several boards share from one database to the other, either way and as often as one likes.

What is there already stays as it is, so a copy that was interrupted is repeated, and two boards may copy into one
database; of the tokens of a day the larger total counts. Each conversation is copied in its own transaction.
Not copied is what belongs to one board: its outbox, its lease, and codes that are valid for minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rkllm_mcp.store import memories
from rkllm_mcp.store.conversations import NEXT_CHANGE
from rkllm_mcp.store.database import Database, Transaction
from rkllm_mcp.store.tables import DEVICE_KEYS, PERSON, daily_totals, raise_daily_totals

_CONVERSATION = ("tenant", "id", "title", "system", "calls_made", "created", "updated", "settings", "pinned")
_MESSAGE = ("tenant", "conversation", "position", "role", "text", "thinking", "context", "ending", "created", "events")
_PICTURE = ("tenant", "conversation", "digest", "data")
_VERSION = ("tenant", "conversation", "position", "created", "turns")
_RESPONSE = ("tenant", "id", "previous", "items", "response", "created")
_ANSWER = ("tenant", "conversation", "number", "board", "is_cancelled")
_EVENTS = ("tenant", "conversation", "answer", "reader", "last", "records", "is_end", "at")
_QUESTION = ("tenant", "id", "board", "question", "answer", "until")
_SHIPPED = ("tenant", "id")
_GRANT = ("server", "tool", "kind", "fingerprint", "at")
_SWITCH = ("server", "tool", "is_on", "at")
_TEXT = ("kind", "key", "text", "at")
_MEMORY = memories.COLUMNS
_CALL = (
    *("at", "server", "tool", "arguments", "ruling", "is_error", "error", "result_chars", "seconds"),
    *("conversation", "request"),
)
_SCHEDULE = (
    *("tenant", "id", "prompt", "rule", "zone", "language", "is_reminder", "is_quiet", "tools", "webhook"),
    *("webhook_form", "secret", "conversation", "next_at", "state", "failures", "created"),
)
_SCHEDULE_RUN = (
    *("tenant", "id", "schedule", "due", "claimed", "ended", "outcome", "text", "delivery", "conversation", "board"),
)
# Calls that are read at once; they have no key, so those of a second copy are known by these columns.
_SAME_CALL = ("at", "server", "tool", "conversation", "request")
_BATCH = 500


@dataclass(frozen=True)
class Copied:
    """How much was copied, and how many conversations were there already."""

    conversations: int = 0
    responses: int = 0
    calls: int = 0
    known: int = 0
    permissions: int = 0
    devices: int = 0
    schedules: int = 0


async def copy_store(source: Database, target: Database, tenant: str) -> Copied:
    """Copy everything of a tenant that boards share; a StoreError if one database cannot be used."""
    query = "SELECT id FROM conversations WHERE tenant = ? ORDER BY touched"
    ids = [row[0] for row in await source.rows(query, (tenant,))]
    copied = 0
    for conversation_id in ids:
        key = (tenant, conversation_id)
        rows = await source.ask(partial(_read_conversation, key), reads=True)
        copied += await target.ask(partial(_write_conversation, key, rows), durable=True)
    of_tenant = "WHERE tenant = ?"
    responses = await source.rows(f"{_select(_RESPONSE, 'responses')} {of_tenant} ORDER BY position", (tenant,))
    new_responses = await _add_missing(target, _RESPONSE, "responses", responses)
    schedules = 0
    for columns, table in (
        (_QUESTION, "questions"),
        (_SHIPPED, "shipped"),
        (_SCHEDULE, "schedules"),
        (_SCHEDULE_RUN, "schedule_runs"),
    ):
        rows = await source.rows(f"{_select(columns, table)} {of_tenant}", (tenant,))
        added = await _add_missing(target, columns, table, rows)
        schedules += added if table == "schedules" else 0
    permissions = await _add_missing(target, _GRANT, "grants", await source.rows(_select(_GRANT, "grants")))
    await _add_missing(target, _SWITCH, "switches", await source.rows(_select(_SWITCH, "switches")))
    await _add_missing(target, _MEMORY, "memories", await source.rows(_select(_MEMORY, "memories")))
    keys = await source.rows(f"{_select(_TEXT, 'texts')} WHERE kind = ?", (DEVICE_KEYS,))
    devices = await _add_missing(target, _TEXT, "texts", keys)
    set_by_person = await source.rows(f"{_select(_TEXT, 'texts')} WHERE kind = ?", (PERSON,))
    await _add_missing(target, _TEXT, "texts", set_by_person)
    totals = await source.ask(daily_totals, reads=True)
    await target.ask(lambda transaction: raise_daily_totals(totals, transaction), durable=True)
    calls = 0
    batch = await source.rows(f"{_select(('id', *_CALL), 'calls')} ORDER BY id LIMIT {_BATCH}")
    while batch:
        rows = [row[1:] for row in batch]
        calls += await target.ask(lambda transaction, rows=rows: _add_calls(rows, transaction), durable=True)
        query = f"{_select(('id', *_CALL), 'calls')} WHERE id > ? ORDER BY id LIMIT {_BATCH}"
        batch = await source.rows(query, (batch[-1][0],))
    return Copied(copied, new_responses, calls, len(ids) - copied, permissions, devices, schedules)


def _read_conversation(key: tuple[str, str], transaction: Transaction) -> tuple[list[Any], ...]:
    """Return the rows of a conversation: itself, its messages, pictures, answers, events and versions."""
    heads = transaction.execute(f"{_select(_CONVERSATION, 'conversations')} WHERE tenant = ? AND id = ?", key)
    where = "WHERE tenant = ? AND conversation = ?"
    messages = transaction.execute(f"{_select(_MESSAGE, 'messages')} {where} ORDER BY position", key).fetchall()
    pictures = transaction.execute(f"{_select(_PICTURE, 'pictures')} {where}", key).fetchall()
    versions = f"{_select(('id', 'parent', *_VERSION), 'versions')} {where} ORDER BY id"
    answers = transaction.execute(f"{_select(_ANSWER, 'answers')} {where}", key).fetchall()
    events = transaction.execute(f"{_select(_EVENTS, 'answer_events')} {where}", key).fetchall()
    return heads.fetchall(), messages, pictures, answers, events, transaction.execute(versions, key).fetchall()


def _write_conversation(key: tuple[str, str], rows: tuple[list[Any], ...], transaction: Transaction) -> bool:
    """Write the rows of a conversation; return False if the database has it, or there are none."""
    heads, messages, pictures, answers, events, versions = rows
    if transaction.execute("SELECT 1 FROM conversations WHERE tenant = ? AND id = ?", key).fetchone() or not heads:
        return False
    marks = ", ".join("?" * len(_CONVERSATION))
    columns = ", ".join(_CONVERSATION)
    statement = f"INSERT INTO conversations ({columns}, touched) VALUES ({marks}, {NEXT_CHANGE})"  # noqa: S608
    transaction.execute(statement, heads[0])
    transaction.executemany(_insert(_MESSAGE, "messages"), messages)
    transaction.executemany(_insert(_PICTURE, "pictures"), pictures)
    transaction.executemany(_insert(_ANSWER, "answers"), answers)
    transaction.executemany(_insert(_EVENTS, "answer_events"), events)
    # A version has another number there, which those that it contains name as their parent.
    numbers: dict[int, int] = {}
    for number, _, *row in versions:
        transaction.execute(_insert(_VERSION, "versions"), row)
        query = "SELECT MAX(id) FROM versions WHERE tenant = ? AND conversation = ?"
        numbers[number] = transaction.execute(query, key).fetchone()[0]
    for number, parent, *_ in versions:
        if parent is not None:
            values = (numbers[parent], numbers[number])
            transaction.execute("UPDATE versions SET parent = ? WHERE id = ?", values)
    return True


async def _add_missing(target: Database, columns: Sequence[str], table: str, rows: Sequence[Sequence[Any]]) -> int:
    """Add the rows whose keys a table has not; return their number."""
    statement = f"{_insert(columns, table)} ON CONFLICT DO NOTHING"
    return await target.ask(
        lambda transaction: sum(transaction.execute(statement, row).rowcount for row in rows), durable=True
    )


def _add_calls(rows: Sequence[Sequence[Any]], transaction: Transaction) -> int:
    columns = [_CALL.index(name) for name in _SAME_CALL]
    same = " AND ".join(f"{name} = ?" for name in _SAME_CALL)
    count = 0
    for row in rows:
        query = f"SELECT 1 FROM calls WHERE {same} LIMIT 1"  # noqa: S608  (names of columns)
        if transaction.execute(query, [row[column] for column in columns]).fetchone() is None:
            transaction.execute(_insert(_CALL, "calls"), row)
            count += 1
    return count


def _select(columns: Sequence[str], table: str) -> str:
    return f"SELECT {', '.join(columns)} FROM {table}"  # noqa: S608  (names of tables and columns)


def _insert(columns: Sequence[str], table: str) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608
