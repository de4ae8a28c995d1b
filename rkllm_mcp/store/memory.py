"""Everything that is remembered, behind one name for each kind of it; ``open_memory`` opens the file."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rkllm_mcp.errors import StoreError
from rkllm_mcp.store.conversations import Conversations, HistoryLimits
from rkllm_mcp.store.database import Database, open_database
from rkllm_mcp.store.decisions import KeptGrants, KeptSwitches
from rkllm_mcp.store.history import CallHistory, Retention
from rkllm_mcp.store.location import state_file
from rkllm_mcp.store.tally import DailyTally


class KeyValue:
    """Texts of one kind by their keys; ``Memory.texts`` makes one.

    They are read from the file once, so that asking for one waits for nothing; what another process writes meanwhile is
    seen at the next start.

    Args:
        kind: what they are about; keeps the keys of different users apart.
        texts: what the file holds.
        database: where.
    """

    def __init__(self, kind: str, texts: dict[str, str], database: Database) -> None:
        self._kind = kind
        self._texts = texts
        self._database = database

    def read(self, key: str) -> str | None:
        """What was written under ``key``; None when nothing was."""
        return self._texts.get(key)

    def write(self, key: str, text: str) -> None:
        """Keep ``text`` under ``key`` in place of what was there; returns at once and never raises."""
        self._texts[key] = text
        self._database.tell(partial(_write_text, self._kind, key, text))


@dataclass(frozen=True)
class Memory:
    """What is remembered between runs.

    Args:
        database: the file.
        calls: the calls of tools that were made.
        grants: which tools may run unasked, or never.
        switches: which tools and servers were switched off.
        conversations: what was asked and answered.
        tally: the tokens of the day.
    """

    database: Database
    calls: CallHistory
    grants: KeptGrants
    switches: KeptSwitches
    conversations: Conversations
    tally: DailyTally

    async def settled(self) -> None:
        """Wait until everything that was to be kept is.

        Raises:
            StoreError: something was not.
        """
        await self.database.settled()

    async def texts(self, kind: str) -> KeyValue:
        """The texts of one kind; empty when they cannot be read."""
        try:
            texts = await self.database.ask(partial(_read_texts, kind))
        except StoreError:
            texts = {}
        return KeyValue(kind, texts, self.database)


@asynccontextmanager
async def open_memory(
    *,
    path: Path | None = None,
    retention: Retention | None = None,
    limits: HistoryLimits | None = None,
    on_problem: Callable[[str], None] | None = None,
    required: bool = False,
) -> AsyncGenerator[Memory, None]:
    """Open what is remembered; on leaving everything is written.

    Args:
        path: the file; the user's own when None.
        retention: how many calls are kept.
        limits: how many conversations are kept.
        on_problem: is told, once, when something is not kept.
        required: a file that cannot be used is an error instead of a memory that ends with this run.

    Raises:
        StoreError: it is required and cannot be used.
    """
    where = state_file(os.environ) if path is None else path
    async with open_database(where, on_problem=on_problem or _ignore, required=required) as database:
        calls = CallHistory(database, retention or Retention())
        grants, switches = KeptGrants(database), KeptSwitches(database)
        yield Memory(database, calls, grants, switches, Conversations(database, limits), DailyTally(database))


def _ignore(problem: str) -> None:
    del problem


def _read_texts(kind: str, connection: sqlite3.Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT key, text FROM texts WHERE kind = ?", (kind,)).fetchall())


def _write_text(kind: str, key: str, text: str, connection: sqlite3.Connection) -> None:
    row = (kind, key, text, time.time())
    connection.execute("INSERT OR REPLACE INTO texts (kind, key, text, at) VALUES (?, ?, ?, ?)", row)
