"""PostgreSQL: the settings of a connection, migrations, and the kind of each failure.

Statements are written as for SQLite, with ``?`` or ``:name`` for values. psycopg is imported where it is used, because
it is optional.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from rkllm_base.databases import Fault, Migrations, NewerSchemaError

if TYPE_CHECKING:
    from psycopg import Connection

CONNECT_TIMEOUT_S = 3
_MARK = re.compile(r"\?|(?<!:):([a-z_]+)")


def connecting(program: str) -> dict[str, Any]:
    """Return the arguments of a connection, in addition to its address, for a program of this name."""
    return {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "application_name": program,
        "client_encoding": "utf-8",
        # A server without power is noticed after about 10 s.
        "keepalives_idle": 5,
        "keepalives_interval": 3,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
    }


def with_placeholders(statement: str) -> str:
    """Return a statement with the placeholders of psycopg."""
    return _MARK.sub(lambda match: f"%({match[1]})s" if match[1] else "%s", statement.replace("%", "%%"))


def storable(value: Any) -> Any:
    """Return a value as PostgreSQL takes it, which has no NUL in texts."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


def migrate(connection: Connection[Any], migrations: Migrations, *, table: str, lock: int, ahead: int = 0) -> None:
    """Apply the missing migrations in the current transaction, one process at a time.

    Args:
        connection: has begun a transaction, which the caller commits.
        migrations: all that are known.
        table: the table that has a row for each migration that was applied.
        lock: number of the advisory lock; no other program uses it.
        ahead: this many unknown migrations are allowed.

    Raises:
        NewerSchemaError: a later version of the program has applied more.
    """
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
    connection.execute(cast("Any", f"CREATE TABLE IF NOT EXISTS {table} (version bigint PRIMARY KEY)"))
    row = connection.execute(cast("Any", f"SELECT COALESCE(MAX(version), 0) FROM {table}")).fetchone()  # noqa: S608
    applied = int(row[0]) if row else 0
    if applied > len(migrations) + ahead:
        raise NewerSchemaError(applied, len(migrations))
    for step in range(applied, len(migrations)):
        for statement in migrations[step]:
            connection.execute(cast("Any", statement))
        connection.execute(cast("Any", f"INSERT INTO {table} VALUES (%s)"), (step + 1,))  # noqa: S608


def fault_of(error: Exception) -> Fault:
    """Return the kind of a failure that psycopg raises."""
    import psycopg
    from psycopg import errors

    kinds = (
        ((errors.DiskFull,), Fault.FULL),
        ((errors.LockNotAvailable, errors.QueryCanceled, errors.TransactionRollback), Fault.BUSY),
        ((psycopg.OperationalError, psycopg.InterfaceError), Fault.AWAY),
    )
    return next((fault for kind, fault in kinds if isinstance(error, kind)), Fault.OTHER)


def reason_of(error: object) -> str:
    """Return the first line of an error; further ones are hints, or repeat it for each address of a name."""
    line = next(iter(str(error).splitlines()), "")
    return " ".join(line.split()) or type(error).__name__
