"""A pipe becomes the last lines that were printed into it."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from contextlib import suppress

# Enough for the runtime's banner and table; the answer to "why" is in the last few.
_LINES_KEPT = 200
_LINE_BYTES = 4096
_READ_BYTES = 65_536
# As much as the largest pipe can hold
_READS_AT_ONCE = 16


class LogLines:
    """The last lines of a pipe, read as they come.

    Args:
        descriptor: the reading end, which now belongs to this object; None for lines that nobody can read.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = -1 if descriptor is None else descriptor
        self._lines: deque[str] = deque(maxlen=_LINES_KEPT)
        self._rest = b""
        self._total = 0
        if descriptor is not None:
            os.set_blocking(descriptor, False)
            asyncio.get_running_loop().add_reader(descriptor, self.read)

    @property
    def total(self) -> int:
        """How many lines there have been, up to this moment."""
        self.read()
        return self._total

    def last(self) -> tuple[str, ...]:
        """The last lines, oldest first, up to this moment."""
        self.read()
        return tuple(self._lines)

    def since(self, total: int) -> tuple[str, ...]:
        """The lines that came after there had been ``total``."""
        lines = self.last()
        return lines[max(0, len(lines) - (self._total - total)) :]

    def read(self) -> None:
        """Take what is in the pipe, without waiting, and not for ever should somebody print without end."""
        with suppress(BlockingIOError):
            for _ in range(_READS_AT_ONCE):
                if self._descriptor < 0:
                    return
                received = os.read(self._descriptor, _READ_BYTES)
                if not received:
                    self.close()
                self._split(received)

    def close(self) -> None:
        """Stop reading; the lines stay."""
        if self._descriptor >= 0:
            if self._rest:
                self._split(b"\n")  # who is killed in the middle of a line said it all the same
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _split(self, received: bytes) -> None:
        *whole, self._rest = (self._rest + received).split(b"\n")
        if len(self._rest) > _LINE_BYTES:
            whole.append(self._rest)
            self._rest = b""
        for line in whole:
            self._lines.append(line[:_LINE_BYTES].decode("utf-8", "replace").rstrip())
            self._total += 1
