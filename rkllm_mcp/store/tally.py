"""Daily token usage: one counter, shared by all processes that use the file."""

from __future__ import annotations

import sqlite3
import time
from functools import partial

from rkllm_mcp.store.database import Database

_KEY = ("daily tokens", "spent")


class DailyTally:
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
