"""stdio transport: one JSON object per line on the standard input and output of a child process.

Invalid lines are noted and skipped; a line that exceeds the limit ends the channel.

Follows MCP specification 2025-11-25 and 2026-07-28, transports, stdio.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from rkllm_mcp.config.servers import StdioServer
from rkllm_mcp.mcp_client.allowed_commands import launch_of
from rkllm_mcp.mcp_client.message_filter import MAX_MESSAGE_BYTES, message_in
from rkllm_mcp.mcp_client.sandbox import NO_FOLDERS, SandboxFolders
from rkllm_mcp.mcp_client.transports.process import Child, open_child
from rkllm_mcp.mcp_client.wire_log import LastLines

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage


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


class StdioChannel:
    """Channel of a running program; created by ``open_stdio``."""

    served = None

    def __init__(self, child: Child, notes: LastLines, grace_s: float) -> None:
        self._child = child
        self._notes = notes
        self._grace_s = grace_s
        self._output_ended = anyio.Event()
        self._too_long = False

    @property
    def was_heard(self) -> bool:
        """True if the program has read a message; valid once it has ended."""
        return self._child.has_read

    def ending(self) -> str:
        """Return how the program ended, such as ``exited with code 3``; empty while it runs or if it was stopped."""
        code = self._child.exit_code
        if self._too_long:
            return f"sent a message of more than {MAX_MESSAGE_BYTES // 1024**2} MB"
        if code is None or self._child.was_stopped:
            return ""
        if code >= 0:
            return f"exited with code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[TransportStreams]:
        """Exchange the messages of a session as lines on the child's stdin and stdout."""
        incoming_send, incoming = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
        outgoing, outgoing_receive = anyio.create_memory_object_stream["SessionMessage"](0)
        with incoming_send, incoming, outgoing, outgoing_receive:
            async with anyio.create_task_group() as pumps:
                pumps.start_soon(self._read_messages, incoming_send)
                pumps.start_soon(self._write_messages, outgoing_receive, incoming_send)
                try:
                    yield incoming, outgoing
                finally:
                    pumps.cancel_scope.cancel()

    async def _read_messages(self, session: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        splitter = LineSplitter(MAX_MESSAGE_BYTES)
        with session:
            while chunk := await self._child.receive():
                try:
                    lines = splitter.feed(chunk)
                except LineTooLongError:
                    self._too_long = True
                    return
                if not await self._deliver(lines, session):
                    return
        self._output_ended.set()

    async def _deliver(self, lines: list[bytes], session: MemoryObjectSendStream[SessionMessage | Exception]) -> bool:
        for line in lines:
            message = message_in(line)
            if message is None:
                self._notes.add(f"stdout: {line[:1000].decode('utf-8', 'replace')}")
                continue
            try:
                await session.send(message)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return False
        return True

    async def _write_messages(
        self,
        session: MemoryObjectReceiveStream[SessionMessage],
        incoming: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        async for item in session:
            line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await self._child.send(line.encode() + b"\n")
            except OSError:
                break
        else:
            return
        # The child has closed its stdin. Deliver the output it has already written, then end the session: requests that
        # are pending would otherwise wait forever.
        session.close()
        with anyio.move_on_after(self._grace_s):
            await self._output_ended.wait()
        incoming.close()


@asynccontextmanager
async def open_stdio(
    spec: StdioServer,
    notes: LastLines,
    stop_grace_s: float,
    allowed_commands: Sequence[str] | None,
    sandbox: SandboxFolders = NO_FOLDERS,
) -> AsyncGenerator[StdioChannel]:
    """Start the server's program; end it and its process group on exit.

    Raises:
        OSError: the program cannot be started.
        ServerUnavailableError: the program is not allowed, or its sandbox is not available.
    """
    async with open_child(await launch_of(spec, allowed_commands, folders=sandbox), notes, stop_grace_s) as child:
        yield StdioChannel(child, notes, stop_grace_s)
