"""An open transport to one server, and what transports share: reading, delivering and exchanging messages."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import anyio
from anyio.abc import AsyncResource

from rkllm_base.answers import count_values
from rkllm_base.json_values import LONG_BYTES
from rkllm_mcp.events import to_json
from rkllm_mcp.mcp_client import sdk
from rkllm_mcp.mcp_client.wire_log import LastLines
from rkllm_mcp.messages import as_list, as_mapping
from rkllm_mcp.tasks import run_costly

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client import Transport
    from mcp.client._transport import ReadStream, TransportStreams
    from mcp.shared.message import SessionMessage

    Incoming: TypeAlias = MemoryObjectSendStream[SessionMessage | Exception]
    Outgoing: TypeAlias = MemoryObjectReceiveStream[SessionMessage]


# Far more than a model can read; without a limit one message could use all memory.
MAX_MESSAGE_BYTES = 32 * 1024 * 1024
_SHOWN_CHARS = 1000
# A value takes up to 100 bytes of memory and a microsecond, and more in everything that goes through it.
MOST_VALUES = 200_000
_MOST_MESSAGES = 1000  # in one line
_TOO_MANY = f"it has more than {MOST_VALUES:,} values"


@dataclass(frozen=True)
class Channel:
    """An open transport to one server."""

    streams: Callable[[], Transport] | None  # makes the SDK transport for one ``mcp.Client``; None: ``served`` is used
    served: Any = None  # the in-process server object
    ending: Callable[[], str] = str  # how the server ended, such as ``exited with code 3``; empty if the host ended it
    was_heard: Callable[[], bool] = lambda: True  # False if the server certainly received no message


@dataclass
class ChangedStream(AsyncResource):
    """The messages of a transport, each changed on its way to the SDK."""

    inner: ReadStream[SessionMessage | Exception]
    change: Callable[[SessionMessage | Exception], Awaitable[SessionMessage | Exception]]
    on_end: Callable[[], None] = lambda: None  # called once when the stream closes

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        return await self.change(await self.inner.receive())

    def __aiter__(self) -> ReadStream[SessionMessage | Exception]:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            item = await self.inner.__anext__()
        except StopAsyncIteration:
            self.on_end()
            raise
        return await self.change(item)

    async def aclose(self) -> None:
        """Close the stream."""
        await self.inner.aclose()


def messages_in(frame: bytes | str) -> list[SessionMessage]:
    """Return the messages in a frame; none if it is not valid.

    Read leniently, because a request whose response is dropped would wait for its time limit: bytes that are not UTF-8
    and lone surrogates become replacement characters, a batch is a list of messages, and see ``mended_message``.
    """
    content = frame if isinstance(frame, bytes) else frame.encode("utf-8", "replace")
    if len(content) > LONG_BYTES and count_values(content) > MOST_VALUES:
        return _refusal_of((content[:_ID_CHARS] + content[-_ID_CHARS:]).decode("utf-8", "replace"), _TOO_MANY)
    try:
        message = sdk.types.jsonrpc_message_adapter.validate_json(frame, by_name=False)
        # A result with an error next to it may be read as the result.
        if not (isinstance(message, sdk.types.JSONRPCResponse) and not message.result):
            return [sdk.message.SessionMessage(message)]
    except ValueError:
        pass
    text = content.decode("utf-8", "replace")
    try:
        value: Any = json.loads(text.lstrip("\ufeff"))
    except RecursionError:
        return _refusal_of(text, "it is nested too deeply")
    except ValueError:
        # Responses in a line that also has other text, which a program printed without a line break.
        value, position = list[object](), 0
        while len(value) < _MOST_MESSAGES and (match := _MESSAGE_START.search(text, position)):
            try:
                response, position = _DECODER.raw_decode(text, match.start())
            except (ValueError, RecursionError):
                break
            # A log may quote requests.
            if not as_mapping(response).get("method"):
                value.append(response)
    messages: list[sdk.message.SessionMessage] = []
    for item in as_list(value)[:_MOST_MESSAGES] or [value]:
        with suppress(ValueError, RecursionError):
            written = json.dumps(mended_message(item), ensure_ascii=False).encode("utf-8", "replace")
            messages.append(
                sdk.message.SessionMessage(sdk.types.jsonrpc_message_adapter.validate_json(written, by_name=False))
            )
    return messages or _refusal_of(text, "it is no valid JSON, or nested too deeply")


def _refusal_of(text: str, reason: str) -> list[SessionMessage]:
    """Return the error for the request that an unreadable response answers; none if it names no request.

    Without it the request would wait for its time limit.
    """
    if not _RESPONSE.match(text) or (match := _ID.search(text[:_ID_CHARS]) or _ID.search(text[-_ID_CHARS:])) is None:
        return []
    error = sdk.types.ErrorData(code=_INTERNAL_ERROR, message=f"the response cannot be read: {reason}")
    return [sdk.message.SessionMessage(sdk.types.JSONRPCError(jsonrpc="2.0", id=json.loads(match[1]), error=error))]


_DECODER = json.JSONDecoder()
_MESSAGE_START = re.compile(r'\{\s*"(?:jsonrpc|id)"\s*:')
_RESPONSE = re.compile(r'\s*\{\s*"(?:jsonrpc|id|result|error)"\s*:')
_ID = re.compile(r'"id"\s*:\s*(-?\d{1,18}\b|"[^"\\\n]{1,100}")')
_ID_CHARS = 500
_INTERNAL_ERROR = -32603


def mended_message(message: object) -> object:
    """Return a message with the fields that JSON-RPC requires: the version, and code and message of an error."""
    if not isinstance(message, dict):
        return message
    mended: dict[str, Any] = {"jsonrpc": "2.0", **cast("dict[str, Any]", message)}
    is_about_one = mended.get("id") is not None
    # An error without an id may belong to the only open request (see the message filter); a log has errors as well.
    if "method" in mended or not (is_about_one or ("jsonrpc" in message and mended.get("error") is not None)):
        return mended
    mended.setdefault("id", None)
    if (error := mended.get("error")) is None:
        mended.pop("error", None)
        if "result" in mended and not isinstance(mended["result"], dict):
            # A result is an object in every method.
            mended["result"] = {} if mended["result"] is None else {"content": mended["result"]}
        return mended
    mended.pop("result", None)
    table = as_mapping(error)
    text = table.get("message")
    try:
        code = int(table.get("code", _INTERNAL_ERROR))
    except (TypeError, ValueError):
        code = _INTERNAL_ERROR
    words = text if isinstance(text, str) and text else error if isinstance(error, str) else to_json(error)
    mended["error"] = {"code": code, "message": words}
    if table.get("data") is not None:
        mended["error"]["data"] = table["data"]
    return mended


async def deliver(frame: bytes | str, session: Incoming, notes: LastLines, source: str) -> int | None:
    """Deliver the messages in a frame, or note an invalid one with its ``source``.

    Return the number of messages; None if the session has ended.
    """
    messages = messages_in(frame) if len(frame) <= LONG_BYTES else await run_costly(messages_in, frame)
    if not messages:
        excerpt = frame[:_SHOWN_CHARS]
        notes.add(f"{source}: {excerpt if isinstance(excerpt, str) else excerpt.decode('utf-8', 'replace')}")
    try:
        for message in messages:
            await session.send(message)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return None
    return len(messages)


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
