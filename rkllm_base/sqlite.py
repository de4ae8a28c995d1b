"""SQLite files: private, migrated, with the kind of each failure.

``PRAGMA user_version`` counts migrations. Released migrations never change; newer files are left untouched.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from rkllm_base.databases import Fault, Migrations, NewerSchemaError

# SQLite reports a disk without room for its side files as an I/O error.
_SIDE_FILES_BYTES = 65_536
# Python 3.10 has no sqlite_errorcode; SQLite's messages have been stable for ten years.
_FAULTS = (
    ("not a database", Fault.DAMAGED),
    ("malformed", Fault.DAMAGED),
    ("vtable constructor failed", Fault.DAMAGED),
    ("full", Fault.FULL),
    ("disk I/O error", Fault.DISK),
    ("locked", Fault.BUSY),
    ("busy", Fault.BUSY),
)


def create_private(file: Path) -> None:
    """Create a file and its folder for the owner only, if they are missing; raise OSError."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # SQLite would create it world-readable; its side files inherit this file's mode. A file that exists is not opened:
    # closing any descriptor of it drops the locks of this process's connections, and another process that closes its
    # own then removes the log that they write to.
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file)) from None


def steps_taken(connection: sqlite3.Connection, migrations: Migrations) -> int:
    """Return the number of applied migrations; raise NewerSchemaError if fewer are known, or sqlite3.Error."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(migrations):
        raise NewerSchemaError(version, len(migrations))
    return version


def migrate(connection: sqlite3.Connection, migrations: Migrations) -> None:
    """Apply the missing migrations; the connection must be in autocommit mode (``isolation_level=None``).

    Raises NewerSchemaError, or sqlite3.Error if the file is not a usable database.
    """
    if steps_taken(connection, migrations) == len(migrations):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have applied them while this one waited for the lock.
        for step in range(steps_taken(connection, migrations), len(migrations)):
            for statement in migrations[step]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {step + 1}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def fault_of(error: sqlite3.Error, file: Path) -> Fault:
    """Return the kind of a failure of a file."""
    text = str(error)
    fault = next((fault for words, fault in _FAULTS if words in text), Fault.OTHER)
    if fault is Fault.DISK:
        with suppress(OSError):
            disk = os.statvfs(file.parent)
            if disk.f_bavail * disk.f_frsize < _SIDE_FILES_BYTES:
                return Fault.FULL
    return fault
