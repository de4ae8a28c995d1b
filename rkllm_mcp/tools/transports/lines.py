"""Split bytes into lines in linear time and bounded memory: ``LineSplitter`` for messages, ``LastLines`` for logs."""

from __future__ import annotations

import re
from collections import deque

# Colours, cursor movements and other control sequences, which would act on the terminal that shows the line.
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class LineTooLongError(ValueError):
    """A line exceeds its limit."""


class LineSplitter:
    """Splits a byte stream at newlines; ``max_line_bytes`` bounds a line."""

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._pieces: list[bytes] = []
        self._line_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines completed by ``chunk``, without newlines.

        Raises:
            LineTooLongError: an unfinished line has more than ``max_line_bytes``.
        """
        head, newline, rest = chunk.partition(b"\n")
        self._append(head)
        if not newline:
            return []
        lines = [b"".join(self._pieces)]
        *whole, tail = rest.split(b"\n")
        self._pieces, self._line_bytes = [], 0
        self._append(tail)
        return lines + whole

    def _append(self, piece: bytes) -> None:
        self._line_bytes += len(piece)
        if self._line_bytes > self._max_line_bytes:
            raise LineTooLongError(f"a line is longer than {self._max_line_bytes} bytes")
        if piece:
            self._pieces.append(piece)


class LastLines:
    """Stores the last ``limit`` lines of a text, decoded, without control characters, cut to ``width`` characters."""

    def __init__(self, limit: int = 40, width: int = 400) -> None:
        self._lines: deque[str] = deque(maxlen=limit)
        self._limit = limit
        self._width = width
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        """Add bytes of the text, split at any point."""
        *whole, rest = (self._rest + chunk).split(b"\n")
        for line in whole[-self._limit :]:
            self._keep(line)
        # A character has at most four bytes; bytes beyond the width are dropped at once.
        self._rest = rest[: self._width * 4]

    def add(self, line: str) -> None:
        """Add a line that is not part of the byte stream."""
        self._keep(line.encode("utf-8", "replace"))

    def finish(self) -> None:
        """Add the last line if it has no newline."""
        self._keep(self._rest)
        self._rest = b""

    def forget(self) -> None:
        """Drop all lines, which belong to an earlier connection attempt."""
        self._lines.clear()
        self._rest = b""

    def shown(self) -> tuple[str, ...]:
        """Return the lines, oldest first."""
        return tuple(self._lines)

    def _keep(self, line: bytes) -> None:
        text = _CONTROL.sub("", line[: self._width * 4].decode("utf-8", "replace")).rstrip()
        if text:
            self._lines.append(text[: self._width])
