"""Permanent decisions of the user: approvals and refusals of tools, and tools that are switched off."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from functools import partial

from rkllm_mcp.errors import StoreError
from rkllm_mcp.records import StoredApproval, Switch
from rkllm_mcp.store.database import Database

_GRANT_ROW = "(server, tool, kind, fingerprint, at) VALUES (?, ?, ?, ?, ?)"
_SWITCH_ROW = "(server, tool, is_on, at) VALUES (?, ?, ?, ?)"


class ApprovalTable:
    """Stored approvals and refusals; implements ``Grants``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, server: str, tool: str) -> StoredApproval | None:
        """Return the stored decision for a tool; None, so that the user is asked, if missing or unreadable."""
        try:
            return await self._database.ask(partial(_find_grant, server, tool))
        except StoreError:
            return None

    def keep(self, server: str, tool: str, grant: StoredApproval) -> None:
        """Store a decision, replacing the previous one."""
        self._database.tell(partial(_keep_grant, server, tool, grant))

    async def all(self) -> list[tuple[str, str, StoredApproval]]:
        """Return server, tool and decision of every stored decision.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._database.ask(_all_grants)

    async def forget(self, server: str, tool: str) -> bool:
        """Delete the decision for a tool; return False if none is stored.

        Raises:
            StoreError: the file cannot be written.
        """
        return await self._database.ask(partial(_forget_grant, server, tool))


class SwitchTable:
    """Tools and servers that were switched on or off at run time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> list[Switch] | None:
        """Return all switches; None if they cannot be read, or one of this process could not be written."""
        try:
            switches = await self._database.ask(_all_switches)
        except StoreError:
            return None
        return switches if self._database.is_whole else None

    def keep(self, changes: Sequence[Switch]) -> None:
        """Replace the stored switches, without waiting."""
        self._database.tell(partial(_keep_switches, tuple(changes)))


def _find_grant(server: str, tool: str, connection: sqlite3.Connection) -> StoredApproval | None:
    found = connection.execute(
        "SELECT kind, fingerprint FROM grants WHERE server = ? AND tool = ?", (server, tool)
    ).fetchone()
    return StoredApproval(*found) if found else None


def _keep_grant(server: str, tool: str, grant: StoredApproval, connection: sqlite3.Connection) -> None:
    row = (server, tool, grant.kind, grant.fingerprint, time.time())
    connection.execute(f"INSERT OR REPLACE INTO grants {_GRANT_ROW}", row)


def _all_grants(connection: sqlite3.Connection) -> list[tuple[str, str, StoredApproval]]:
    rows = connection.execute("SELECT server, tool, kind, fingerprint FROM grants ORDER BY server, tool").fetchall()
    return [(server, tool, StoredApproval(kind, fingerprint)) for server, tool, kind, fingerprint in rows]


def _forget_grant(server: str, tool: str, connection: sqlite3.Connection) -> bool:
    return connection.execute("DELETE FROM grants WHERE server = ? AND tool = ?", (server, tool)).rowcount > 0


def _all_switches(connection: sqlite3.Connection) -> list[Switch]:
    rows = connection.execute("SELECT server, tool, is_on FROM switches ORDER BY server, tool").fetchall()
    return [Switch(server, tool, bool(is_on)) for server, tool, is_on in rows]


def _keep_switches(changes: tuple[Switch, ...], connection: sqlite3.Connection) -> None:
    for change in changes:
        if change.is_on is None:
            connection.execute("DELETE FROM switches WHERE server = ? AND tool = ?", (change.server, change.tool))
        else:
            row = (change.server, change.tool, change.is_on, time.time())
            connection.execute(f"INSERT OR REPLACE INTO switches {_SWITCH_ROW}", row)
