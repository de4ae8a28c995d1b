"""The database of one user: calls, approvals, conversations, usage, devices; its rules are in ``store.database``."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rkllm_mcp.errors import StoreError
from rkllm_mcp.store.approvals import ApprovalTable, SwitchTable
from rkllm_mcp.store.conversations import Conversations, HistoryLimits, StoredResponses
from rkllm_mcp.store.database import Database, open_database, state_file
from rkllm_mcp.store.device_keys import DeviceKeys
from rkllm_mcp.store.tool_calls import CallHistory, Retention

_KEY = ("daily tokens", "spent")


class DailyUsage:
    """Token usage per day."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, day: str, tokens: int = 0) -> int:
        """Add tokens to the day's total and return it; with 0 only return it.

        A different day than the last one starts at 0.

        Raises:
            StoreError: the file cannot be read or written.
        """
        return await self._database.ask(partial(_added, day, tokens))


def _added(day: str, tokens: int, connection: sqlite3.Connection) -> int:
    found = connection.execute("SELECT text FROM texts WHERE kind = ? AND key = ?", _KEY).fetchone()
    kept_day, _, spent = str(found[0]).partition(" ") if found else ("", "", "")
    total = tokens + (int(spent) if kept_day == day and spent.isdecimal() else 0)
    if tokens:
        row = (*_KEY, f"{day} {total}", time.time())
        connection.execute("INSERT OR REPLACE INTO texts (kind, key, text, at) VALUES (?, ?, ?, ?)", row)
    return total


class KeyValue:
    """Texts of one kind by key; created by ``Memory.texts``.

    They are read from the file once, so reading does not wait; changes of other processes are visible after a restart.
    """

    def __init__(self, kind: str, texts: dict[str, str], database: Database) -> None:
        self._kind = kind
        self._texts = texts
        self._database = database

    def read(self, key: str) -> str | None:
        """Return the text stored under ``key``, or None."""
        return self._texts.get(key)

    def write(self, key: str, text: str) -> None:
        """Store ``text`` under ``key``, replacing the previous one; returns at once and never raises."""
        self._texts[key] = text
        self._database.tell(partial(_write_text, self._kind, key, text))


@dataclass(frozen=True)
class Store:
    """Stored data of one user."""

    database: Database
    calls: CallHistory  # history of tool calls
    grants: ApprovalTable  # approvals and refusals of tools
    switches: SwitchTable  # tools and servers that are switched off
    conversations: Conversations
    tally: DailyUsage  # daily token usage
    devices: DeviceKeys  # keys of the owner's devices
    responses: StoredResponses  # answers that clients continue by their ids

    async def settled(self) -> None:
        """Wait until all queued data is written.

        Raises:
            StoreError: some of it could not be written.
        """
        await self.database.settled()

    async def texts(self, kind: str) -> KeyValue:
        """Return the texts of one kind; empty if they cannot be read."""
        try:
            texts = await self.database.ask(partial(_read_texts, kind))
        except StoreError:
            texts = {}
        return KeyValue(kind, texts, self.database)


@asynccontextmanager
async def open_store(
    *,
    path: Path | None = None,
    retention: Retention | None = None,
    limits: HistoryLimits | None = None,
    on_problem: Callable[[str], None] | None = None,
    required: bool = False,
) -> AsyncGenerator[Store, None]:
    """Open the stored data; everything is written at the end of the block.

    ``path`` defaults to the user's own file. ``on_problem`` takes a line when data cannot be stored, and when it can be
    stored again. With ``required`` an unusable file is an error instead of being replaced by an in-memory database.

    Raises:
        StoreError: the file is required and cannot be used.
    """
    where = state_file(os.environ) if path is None else path
    async with open_database(where, on_problem=on_problem or _ignore, required=required) as database:
        calls = CallHistory(database, retention or Retention())
        grants, switches = ApprovalTable(database), SwitchTable(database)
        conversations, responses = Conversations(database, limits), StoredResponses(database, limits)
        tally, devices = DailyUsage(database), DeviceKeys(database)
        yield Store(database, calls, grants, switches, conversations, tally, devices, responses)


def _ignore(problem: str) -> None:
    del problem


def stored_texts(path: Path, kind: str) -> dict[str, str]:
    """Return the texts of one kind without opening the store for writing; empty if the file cannot be read."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return _read_texts(kind, connection)
    except sqlite3.Error:
        return {}


def _read_texts(kind: str, connection: sqlite3.Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT key, text FROM texts WHERE kind = ?", (kind,)).fetchall())


def _write_text(kind: str, key: str, text: str, connection: sqlite3.Connection) -> None:
    row = (kind, key, text, time.time())
    connection.execute("INSERT OR REPLACE INTO texts (kind, key, text, at) VALUES (?, ?, ?, ?)", row)
