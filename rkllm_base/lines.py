"""Lines of an open file descriptor, which a signal or a cancellation can interrupt while they are waited for."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass, field

import anyio

_READ_BYTES = 65536


@dataclass(eq=False)
class Lines:
    """Lines of a pipe or a file in UTF-8, without their ends.

    A thread that reads, as in the MCP SDK, is not interrupted by a signal while the other side sends nothing; this
    waits until the descriptor is readable. A read that is cancelled loses nothing.
    """

    descriptor: int
    _parts: list[bytes] = field(default_factory=list[bytes])  # of the line that has not ended
    _lines: deque[str] = field(default_factory=deque[str])
    _has_ended: bool = False

    async def read(self) -> str | None:
        """Return the next line; None at the end."""
        while not self._lines and not self._has_ended:
            try:
                await anyio.wait_readable(self.descriptor)
            except OSError:
                # epoll refuses regular files, which are always readable.
                await anyio.lowlevel.checkpoint()
            received = os.read(self.descriptor, _READ_BYTES)
            self._has_ended = not received
            for index, part in enumerate(received.split(b"\n")):
                # A line ends before every part but the first one, and at the end.
                if index or (self._has_ended and any(self._parts)):
                    self._lines.append(b"".join(self._parts).decode("utf-8", "replace"))
                    self._parts.clear()
                self._parts.append(part)
        return self._lines.popleft() if self._lines else None

    def __aiter__(self) -> Lines:
        """Iterate over the lines that are left."""
        return self

    async def __anext__(self) -> str:
        """Return the next line."""
        if (line := await self.read()) is None:
            raise StopAsyncIteration
        return line
