"""The database schema, as migrations from an empty file to the current version.

``PRAGMA user_version`` counts the applied migrations. A released migration never changes; a change is a new migration
at the end. Each is applied atomically, by one process, even if several open the file at once.
"""

from __future__ import annotations

import sqlite3

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE calls (
            id INTEGER PRIMARY KEY,
            at REAL NOT NULL,
            server TEXT NOT NULL,
            tool TEXT NOT NULL,
            arguments TEXT NOT NULL,
            ruling TEXT NOT NULL,
            is_error INTEGER NOT NULL,
            error TEXT NOT NULL,
            result_chars INTEGER NOT NULL,
            seconds REAL NOT NULL,
            conversation TEXT NOT NULL,
            request TEXT NOT NULL
        )""",
        "CREATE INDEX calls_by_time ON calls (at)",
        """CREATE TABLE grants (
            server TEXT NOT NULL,
            tool TEXT NOT NULL,
            kind TEXT NOT NULL,
            fingerprint TEXT NOT NULL,
            at REAL NOT NULL,
            PRIMARY KEY (server, tool)
        ) WITHOUT ROWID""",
        """CREATE TABLE switches (
            server TEXT NOT NULL,
            tool TEXT NOT NULL,
            is_on INTEGER NOT NULL,
            at REAL NOT NULL,
            PRIMARY KEY (server, tool)
        ) WITHOUT ROWID""",
        """CREATE TABLE texts (
            kind TEXT NOT NULL,
            key TEXT NOT NULL,
            text TEXT NOT NULL,
            at REAL NOT NULL,
            PRIMARY KEY (kind, key)
        ) WITHOUT ROWID""",
    ),
    (
        # touched is a change counter: the order does not depend on the clock.
        """CREATE TABLE conversations (
            tenant TEXT NOT NULL,
            id TEXT NOT NULL,
            title TEXT NOT NULL,
            system TEXT,
            calls_made INTEGER NOT NULL,
            created REAL NOT NULL,
            updated REAL NOT NULL,
            touched INTEGER NOT NULL,
            PRIMARY KEY (tenant, id)
        ) WITHOUT ROWID""",
        "CREATE INDEX conversations_by_change ON conversations (tenant, touched)",
        """CREATE TABLE messages (
            tenant TEXT NOT NULL,
            conversation TEXT NOT NULL,
            position INTEGER NOT NULL,
            role TEXT NOT NULL,
            text TEXT NOT NULL,
            thinking TEXT NOT NULL,
            context TEXT NOT NULL,
            ending TEXT NOT NULL,
            created REAL NOT NULL,
            UNIQUE (tenant, conversation, position),
            FOREIGN KEY (tenant, conversation) REFERENCES conversations (tenant, id) ON DELETE CASCADE
        )""",
        "CREATE INDEX calls_by_conversation ON calls (conversation)",
    ),
)


class NewerSchemaError(Exception):
    """The file was written by a later version of this program."""


def migrate(connection: sqlite3.Connection) -> None:
    """Apply the missing migrations.

    The connection must be in autocommit mode (``isolation_level=None``).

    Raises:
        NewerSchemaError: the file has migrations that this version does not know.
        sqlite3.Error: the file cannot be read or written, or is not a database.
    """
    if steps_taken(connection) == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have applied them while this one waited for the lock.
        for step in range(steps_taken(connection), len(MIGRATIONS)):
            for statement in MIGRATIONS[step]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {step + 1}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def steps_taken(connection: sqlite3.Connection) -> int:
    """Return the number of applied migrations.

    Raises:
        NewerSchemaError: more than this version knows.
        sqlite3.Error: the file cannot be read, or is not a database.
    """
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(MIGRATIONS):
        raise NewerSchemaError
    return version
