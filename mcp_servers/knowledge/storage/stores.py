"""The types of a database, and of a transaction in it, whichever of the two stores it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from mcp_servers.knowledge.storage.postgres import PostgresDatabase, PostgresTransaction
    from mcp_servers.knowledge.storage.sqlite import SQLiteDatabase, SQLiteTransaction

Database: TypeAlias = "SQLiteDatabase | PostgresDatabase"
Transaction: TypeAlias = "SQLiteTransaction | PostgresTransaction"
