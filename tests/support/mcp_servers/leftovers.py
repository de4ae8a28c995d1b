"""What a test may leave behind: nothing.

Counts file descriptors and children, and notices the end of processes that are nobody's children any more.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _children() -> tuple[int, ...]:
    files = Path("/proc/self/task").glob("*/children")
    return tuple(int(pid) for file in files for pid in file.read_text().split())


@dataclass(frozen=True)
class Holdings:
    """What this process holds; two are equal when nothing was left behind in between."""

    descriptors: int = field(default_factory=_descriptors)
    children: tuple[int, ...] = field(default_factory=_children)


@dataclass(frozen=True)
class Lives:
    """A named pipe that processes hold open for writing as long as they live; they find its path in ``$ALIVE``."""

    path: Path
    reader: int

    @property
    def env(self) -> dict[str, str]:
        """What tells a server of the pipe."""
        return {"ALIVE": str(self.path)}

    async def all_ended(self) -> None:
        """Wait until every process that had opened the pipe is gone."""
        await anyio.wait_readable(self.reader)
        assert os.read(self.reader, 1) == b""


@contextmanager
def watched_lives(folder: Path) -> Generator[Lives]:
    """Make a pipe like that in ``folder``."""
    path = folder / "alive"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield Lives(path, reader)
    finally:
        os.close(reader)
