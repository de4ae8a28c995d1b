"""The server on standard input and output, until the client leaves or a signal says so.

The SDK would read in a thread, which no signal ends while the client says nothing; here the lines are waited for.
"""

from __future__ import annotations

import os
import sys
from typing import Any, cast

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

_READ_BYTES = 65536


class Lines:
    """The lines of an open file, to be iterated over.

    Args:
        descriptor: the open file.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._parts: list[bytes] = []
        self._lines: list[bytes] = []

    def __aiter__(self) -> Lines:
        """Itself."""
        return self

    async def __anext__(self) -> str:
        """The next line, without its end."""
        while not self._lines:
            data = await self._bytes()
            if not data and not self._parts:
                raise StopAsyncIteration
            head, *rest = data.split(b"\n")
            self._parts.append(head)
            if rest or not data:
                whole = b"".join(self._parts)
                self._parts = [rest[-1]] if rest and rest[-1] else []
                # Taken from the end.
                self._lines = [*reversed(rest[:-1]), whole]
        return self._lines.pop().decode("utf-8", "replace")

    async def _bytes(self) -> bytes:
        try:
            await anyio.wait_readable(self._descriptor)
        except OSError:
            # A regular file cannot be waited for, and need not be.
            await anyio.lowlevel.checkpoint()
        return os.read(self._descriptor, _READ_BYTES)


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client until it leaves."""
    lines = cast("Any", Lines(sys.stdin.fileno()))
    async with stdio_server(stdin=lines) as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
