"""What was used up in a day: one number, to which every process that shares the file adds its own."""

from __future__ import annotations

import sqlite3
import time
from functools import partial

from rkllm_mcp.store.database import Database

_KEY = ("daily tokens", "spent")


class DailyTally:
    """The tokens of a day.

    Args:
        database: where.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, day: str, tokens: int = 0) -> int:
        """Count tokens; the sum of the day.

        Args:
            day: which one; another one than the last begins at nothing.
            tokens: how many; none to be told the sum alone.

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
