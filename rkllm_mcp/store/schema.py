"""The tables, as the steps that lead from an empty file to the present ones.

``PRAGMA user_version`` counts the steps a file has taken. A step is never changed once it was released: what is to be
different is another step at the end. Each is taken whole or not at all, by one process, however many open the file at
once.
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
        # touched counts on with every change: what is the latest does not hang on a clock that may be set.
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
    """Bring a file's tables to the present state.

    Args:
        connection: in autocommit mode (``isolation_level=None``).

    Raises:
        NewerSchemaError: the file has taken steps that are not known here.
        sqlite3.Error: it cannot be read or written, or is no database.
    """
    if steps_taken(connection) == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have taken the steps while this one waited for its turn.
        for step in range(steps_taken(connection), len(MIGRATIONS)):
            for statement in MIGRATIONS[step]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {step + 1}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def steps_taken(connection: sqlite3.Connection) -> int:
    """How many steps a file has taken.

    Raises:
        NewerSchemaError: more than are known here.
        sqlite3.Error: it cannot be read, or is no database.
    """
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(MIGRATIONS):
        raise NewerSchemaError
    return version
