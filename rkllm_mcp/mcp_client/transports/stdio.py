"""stdio transport: one JSON object per line on the standard input and output of a child process.

Invalid lines are noted and skipped; a line that exceeds the limit ends the channel.

Follows MCP specification 2025-11-25 and 2026-07-28, transports, stdio.
"""

from __future__ import annotations

import re
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import anyio

from rkllm_mcp.config.servers import StdioServer
from rkllm_mcp.mcp_client.allowed_commands import launch_of
from rkllm_mcp.mcp_client.sandbox import NO_FOLDERS, SandboxFolders
from rkllm_mcp.mcp_client.transports.channel import MAX_MESSAGE_BYTES, Channel, deliver, exchange
from rkllm_mcp.mcp_client.transports.process import Child, open_child
from rkllm_mcp.mcp_client.wire_log import LastLines

if TYPE_CHECKING:
    from rkllm_mcp.mcp_client.transports.channel import Incoming, Outgoing


class LineTooLongError(ValueError):
    """A line exceeds its limit."""


@dataclass(eq=False)
class LineSplitter:
    """Splits a byte stream at newlines; ``max_line_bytes`` bounds a line."""

    max_line_bytes: int
    _pieces: list[bytes] = field(default_factory=list[bytes])
    _line_bytes: int = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines completed by ``chunk``, without newlines; a LineTooLongError beyond ``max_line_bytes``."""
        lines: list[bytes] = []
        for number, piece in enumerate(chunk.split(b"\n")):
            if number:
                lines.append(b"".join(self._pieces))
                self._pieces, self._line_bytes = [], 0
            self._line_bytes += len(piece)
            if self._line_bytes > self.max_line_bytes:
                raise LineTooLongError(f"a line is longer than {self.max_line_bytes} bytes")
            if piece:
                self._pieces.append(piece)
        return lines


_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
# Of a message over several lines, and of a line of it.
_MOST_LINES = 20_000
_MOST_LINE_BYTES = 64 * 1024


@dataclass(eq=False)
class MessageLines:
    """Joins the lines of a message that a server writes over several of them, which the protocol does not allow."""

    _held: list[bytes] = field(default_factory=list[bytes])
    _depth: int = 0

    def feed(self, line: bytes) -> list[bytes]:
        """Return the messages, or lines of anything else, that are complete now."""
        bare = line.strip()
        if not self._held and (not bare.startswith((b"{", b"[")) or bare.endswith((b"}", b"]"))):
            return [line]
        if self._held and bare.startswith(b'{"jsonrpc"') and bare.endswith(b"}"):
            # What was held is not the beginning of a message.
            pieces, self._held = self._held, []
            return [*pieces, line]
        inside = _STRING.sub(b"", bare)
        self._depth = self._depth * bool(self._held) + sum(map(inside.count, (b"{", b"[")))
        self._depth -= sum(map(inside.count, (b"}", b"]")))
        self._held.append(line)
        if self._depth > 0 and len(self._held) < _MOST_LINES and sum(map(len, self._held[-2:])) < _MOST_LINE_BYTES:
            return []
        pieces, self._held = self._held, []
        return [b"\n".join(pieces)] if self._depth == 0 else pieces


@dataclass
class _Program:
    child: Child
    notes: LastLines
    grace_s: float
    output_ended: anyio.Event = field(default_factory=anyio.Event)
    has_line_too_long: bool = False
    invalid_bytes: int = 0  # of the lines since the last message

    def ending(self) -> str:
        """Return how the program ended, such as ``exited with code 3``; empty while it runs or if it was stopped."""
        code = self.child.process.returncode
        if self.has_line_too_long:
            return f"sent a message of more than {MAX_MESSAGE_BYTES // 1024**2} MB"
        if self.invalid_bytes > MAX_MESSAGE_BYTES:
            return f"printed more than {MAX_MESSAGE_BYTES // 1024**2} MB that are no message"
        if code is None or self.child.was_stopped:
            return ""
        if code >= 0:
            return f"exited with code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"

    async def read_messages(self, session: Incoming) -> None:
        """Deliver the lines of the program's stdout to a session."""
        splitter, joined = LineSplitter(MAX_MESSAGE_BYTES), MessageLines()
        with session:
            while chunk := await self.child.receive():
                try:
                    lines = splitter.feed(chunk)
                except LineTooLongError:
                    self.has_line_too_long = True
                    return
                for line in chain.from_iterable(map(joined.feed, lines)):
                    count = await deliver(line, session, self.notes, "stdout")
                    if count is None:
                        return
                    self.invalid_bytes = 0 if count else self.invalid_bytes + len(line)
                    if self.invalid_bytes > MAX_MESSAGE_BYTES:
                        return
        self.output_ended.set()

    async def write_messages(self, session: Outgoing, incoming: Incoming) -> None:
        """Write a session's messages as lines to the program's stdin; end the session when that is closed."""
        async for item in session:
            line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await self.child.send(line.encode() + b"\n")
            except OSError:
                break
        else:
            return
        # The child has closed its stdin. Deliver the output it has already written, then end the session: requests that
        # are pending would otherwise wait forever.
        session.close()
        with anyio.move_on_after(self.grace_s):
            await self.output_ended.wait()
        incoming.close()


@asynccontextmanager
async def open_stdio(
    spec: StdioServer,
    notes: LastLines,
    stop_grace_s: float,
    allowed_commands: Sequence[str] | None,
    sandbox: SandboxFolders = NO_FOLDERS,
) -> AsyncGenerator[Channel]:
    """Start the server's program; end it and its process group on exit."""
    async with open_child(await launch_of(spec, allowed_commands, folders=sandbox), notes, stop_grace_s) as child:
        program = _Program(child, notes, stop_grace_s)
        streams = partial(exchange, program.read_messages, program.write_messages)
        yield Channel(streams, ending=program.ending, was_heard=lambda: child.has_read)
