"""Bytes to lines, in linear time and bounded memory.

``LineSplitter`` is for messages, ``LastLines`` for what a server says besides. Neither waits for anything or knows
where the bytes come from.
"""

from __future__ import annotations

import re
from collections import deque

# Colours, cursor movements and other control characters would act on the terminal that shows the line.
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class LineTooLongError(ValueError):
    """A line outgrew its limit."""


class LineSplitter:
    """Cuts a stream of bytes at its newlines; a line that arrives in many pieces is joined once.

    Args:
        max_line_bytes: the longest line that is still gathered.
    """

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._pieces: list[bytes] = []
        self._held_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that ``chunk`` completes, without their newlines.

        Raises:
            LineTooLongError: an unfinished line has more than ``max_line_bytes``.
        """
        head, newline, rest = chunk.partition(b"\n")
        self._hold(head)
        if not newline:
            return []
        lines = [b"".join(self._pieces)]
        *whole, tail = rest.split(b"\n")
        self._pieces, self._held_bytes = [], 0
        self._hold(tail)
        return lines + whole

    def _hold(self, piece: bytes) -> None:
        self._held_bytes += len(piece)
        if self._held_bytes > self._max_line_bytes:
            raise LineTooLongError(f"a line is longer than {self._max_line_bytes} bytes")
        if piece:
            self._pieces.append(piece)


class LastLines:
    """Remembers the last lines of a text of any length, as they can be shown: decoded, without control characters.

    Args:
        limit: how many lines.
        width: characters of each that are kept.
    """

    def __init__(self, limit: int = 40, width: int = 400) -> None:
        self._lines: deque[str] = deque(maxlen=limit)
        self._limit = limit
        self._width = width
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        """Take more of the text, cut anywhere."""
        *whole, rest = (self._rest + chunk).split(b"\n")
        for line in whole[-self._limit :]:
            self._keep(line)
        # Four bytes are the most that a character has; what a line has beyond its width is forgotten at once.
        self._rest = rest[: self._width * 4]

    def add(self, line: str) -> None:
        """Take one line that did not come with the text."""
        self._keep(line.encode("utf-8", "replace"))

    def finish(self) -> None:
        """The text is over; its last line counts without a newline too."""
        self._keep(self._rest)
        self._rest = b""

    def forget(self) -> None:
        """What was said so far was another's."""
        self._lines.clear()
        self._rest = b""

    def shown(self) -> tuple[str, ...]:
        """The lines, oldest first."""
        return tuple(self._lines)

    def _keep(self, line: bytes) -> None:
        text = _CONTROL.sub("", line[: self._width * 4].decode("utf-8", "replace")).rstrip()
        if text:
            self._lines.append(text[: self._width])
