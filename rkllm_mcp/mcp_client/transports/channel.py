"""An open transport to one server, and what transports share: reading, delivering and exchanging messages."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio

from rkllm_mcp.mcp_client.wire_log import LastLines

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client import Transport
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

    Incoming: TypeAlias = MemoryObjectSendStream[SessionMessage | Exception]
    Outgoing: TypeAlias = MemoryObjectReceiveStream[SessionMessage]


# Far more than a model can read; without a limit one message could use all memory.
MAX_MESSAGE_BYTES = 32 * 1024 * 1024
_SHOWN_CHARS = 1000


@dataclass(frozen=True)
class Channel:
    """An open transport to one server."""

    streams: Callable[[], Transport] | None  # makes the SDK transport for one ``mcp.Client``; None: ``served`` is used
    served: Any = None  # the in-process server object
    ending: Callable[[], str] = str  # how the server ended, such as ``exited with code 3``; empty if the host ended it
    was_heard: Callable[[], bool] = lambda: True  # False if the server certainly received no message


def message_in(frame: bytes | str) -> SessionMessage | None:
    """Return the message in a frame; None if the frame is not a valid message."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(frame, by_name=False))
    except ValueError:
        repaired = _without_lone_surrogates(frame)
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(repaired, by_name=False))
    except ValueError:
        return None


def _without_lone_surrogates(frame: bytes | str) -> bytes | str:
    """Replace lone surrogates, which programs send that truncate UTF-16 text inside an emoji."""
    try:
        return json.dumps(json.loads(frame), ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return frame


async def delivered(frame: bytes | str, session: Incoming, notes: LastLines, source: str) -> bool:
    """Deliver the message in a frame, or note an invalid one with its ``source``; False if the session has ended."""
    message = message_in(frame)
    if message is None:
        shown = frame[:_SHOWN_CHARS]
        notes.add(f"{source}: {shown if isinstance(shown, str) else shown.decode('utf-8', 'replace')}")
        return True
    try:
        await session.send(message)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return False
    return True


@asynccontextmanager
async def exchange(
    read: Callable[[Incoming], Coroutine[Any, Any, None]],
    write: Callable[[Outgoing, Incoming], Coroutine[Any, Any, None]],
) -> AsyncGenerator[TransportStreams]:
    """Open the streams of a session, while ``read`` delivers the server's messages and ``write`` sends the host's."""
    incoming_send, incoming = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
    outgoing, outgoing_receive = anyio.create_memory_object_stream["SessionMessage"](0)
    with incoming_send, incoming, outgoing, outgoing_receive:
        async with anyio.create_task_group() as pumps:
            pumps.start_soon(read, incoming_send)
            pumps.start_soon(write, outgoing_receive, incoming_send)
            try:
                yield incoming, outgoing
            finally:
                pumps.cancel_scope.cancel()
