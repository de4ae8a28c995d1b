"""How a server is reached: each transport opens a ``Channel``, whose ``streams()`` an ``mcp.Client`` speaks through.

A channel is opened before the SDK is imported, so that a server's start and that import (0.6 s) happen side by side. A
new transport is one more opener in ``_OPENERS``. Nothing here knows what is said over it; ``tap`` looks at that.

Followed: MCP specification 2025-11-25 and 2026-07-28, transports: stdio carries one JSON object per line.
"""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

import anyio

from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.tools.child import Child, open_child
from rkllm_mcp.tools.lines import LastLines, LineSplitter, LineTooLongError
from rkllm_mcp.tools.servers import ServerSpec

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client import Transport
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

# A result of this size is far more than any model reads; without a limit one line could take all memory.
_MAX_MESSAGE_BYTES = 32 * 1024 * 1024


class Channel(Protocol):
    """A way to a server that is open."""

    def streams(self) -> Transport:
        """The transport for one ``mcp.Client``; needs the SDK."""
        ...

    def ending(self) -> str:
        """How the server ended, such as ``exited with code 3``; empty when that cannot be known or is our doing."""
        ...


def open_channel(spec: ServerSpec, notes: LastLines) -> AbstractAsyncContextManager[Channel]:
    """Open the way to a server.

    Args:
        spec: which server.
        notes: gets what it says outside the protocol: stderr, and stdout that is no message.

    Raises:
        ServerUnavailableError: this version has no such transport.
        OSError: the program cannot be started (on entering).
    """
    opener = _OPENERS.get(spec.transport)
    if opener is None:
        raise ServerUnavailableError(
            f"transport {spec.transport!r} is not available in this version; "
            f"use one of {', '.join(_OPENERS)}, or set enabled = false"
        )
    return opener(spec, notes)


# --- stdio ---------------------------------------------------------------------------------------------------------


class _StdioChannel:
    def __init__(self, child: Child, notes: LastLines, grace_s: float) -> None:
        self._child = child
        self._notes = notes
        self._grace_s = grace_s
        self._said_all = anyio.Event()
        self._too_long = False

    def ending(self) -> str:
        code = self._child.exit_code
        if self._too_long:
            return f"sent a message of more than {_MAX_MESSAGE_BYTES // 1024**2} MB"
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
        """Messages of a session as lines on the child's stdin and stdout."""
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
        splitter = LineSplitter(_MAX_MESSAGE_BYTES)
        with session:
            while chunk := await self._child.receive():
                try:
                    lines = splitter.feed(chunk)
                except LineTooLongError:
                    self._too_long = True
                    return
                if not await self._deliver(lines, session):
                    return
        self._said_all.set()

    async def _deliver(self, lines: list[bytes], session: MemoryObjectSendStream[SessionMessage | Exception]) -> bool:
        for line in lines:
            message = _message(line)
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
        # It no longer listens. What it has said already still counts; then ending the session is the only way to end
        # requests that would wait for an answer for ever.
        session.close()
        with anyio.move_on_after(self._grace_s):
            await self._said_all.wait()
        incoming.close()


@asynccontextmanager
async def _open_stdio(spec: ServerSpec, notes: LastLines) -> AsyncGenerator[Channel]:
    async with open_child(spec, notes) as child:
        yield _StdioChannel(child, notes, spec.stop_grace_s)


def _message(line: bytes) -> SessionMessage | None:
    """The message in a line; None when there is none."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        mended = _with_whole_characters(line)
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(mended, by_name=False))
    except ValueError:
        return None


def _with_whole_characters(line: bytes) -> bytes:
    """The line with halves of characters replaced; programs that cut UTF-16 text inside an emoji send them."""
    try:
        return json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return line


# --- HTTP ----------------------------------------------------------------------------------------------------------


class _HttpChannel:
    def __init__(self, spec: ServerSpec, connect: Callable[[ServerSpec], Transport]) -> None:
        self._spec = spec
        self._connect = connect

    def streams(self) -> Transport:
        return self._connect(self._spec)

    def ending(self) -> str:
        return ""


@asynccontextmanager
async def _open_http(
    spec: ServerSpec,
    notes: LastLines,  # noqa: ARG001  (an opener's signature; HTTP servers say nothing outside the protocol)
    *,
    connect: Callable[[ServerSpec], Transport],
) -> AsyncGenerator[Channel]:
    yield _HttpChannel(spec, connect)


@asynccontextmanager
async def _streamable_http(spec: ServerSpec) -> AsyncGenerator[TransportStreams]:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    # The server may think for as long as a call may take before its first byte; the call's own limit comes first.
    timeout = httpx2.Timeout(spec.connect_timeout_s, read=spec.timeout_s + spec.connect_timeout_s)
    http = httpx2.AsyncClient(headers=dict(spec.headers), timeout=timeout)
    async with (
        http,
        streamable_http_client(spec.url, http_client=http, max_sse_event_size=_MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams


def _sse(spec: ServerSpec) -> Transport:
    from mcp.client.sse import sse_client

    # Between two calls nothing has to come over the one long response, so it is read without a limit of its own.
    return sse_client(
        spec.url, headers=dict(spec.headers), timeout=spec.connect_timeout_s, sse_read_timeout=float("inf")
    )


_OPENERS: Mapping[str, Callable[[ServerSpec, LastLines], AbstractAsyncContextManager[Channel]]] = {
    "stdio": _open_stdio,
    "http": partial(_open_http, connect=_streamable_http),
    "sse": partial(_open_http, connect=_sse),
}
