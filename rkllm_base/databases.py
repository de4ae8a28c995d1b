"""What every database of this project has: numbered migrations, and faults with their reasons."""

from __future__ import annotations

import enum
import re
from pathlib import Path
from typing import TypeAlias

Migrations: TypeAlias = "tuple[tuple[str, ...], ...]"
_BEGIN = re.compile(r"^-- migration \d+$", re.MULTILINE)


class NewerSchemaError(Exception):
    """The database was written by a later version of this program; it is left as it is."""

    def __init__(self, version: int, known: int) -> None:
        super().__init__(f"layout {version}, this program knows {known}")


class Fault(enum.Enum):
    """Kind of a failure of a database."""

    FULL = enum.auto()  # its disk
    DAMAGED = enum.auto()
    BUSY = enum.auto()  # another program uses it
    AWAY = enum.auto()  # it cannot be reached
    DISK = enum.auto()  # an error of the disk, which has room
    OTHER = enum.auto()


def migrations_of(schema: Path) -> Migrations:
    """Return the statements of each migration of a file, in order.

    A line ``-- migration N`` begins one, a semicolon at the end of a line ends a statement, also in a comment.
    """
    return tuple(
        tuple(filter(None, map(str.strip, migration.split(";\n"))))
        for migration in _BEGIN.split(schema.read_text("utf-8"))[1:]
    )
