"""Long messages over HTTP: read in a thread, while the SDK reads a short one in the place of each.

The SDK parses every body and every event on the event loop, however long it is. ``shorten`` reads a long one before it,
within the limits of ``messages_in``, keeps what was read and returns a message with a token; ``restore`` puts what was
kept in its place again.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rkllm_base.json_values import LONG_BYTES
from rkllm_mcp.mcp_client import sdk
from rkllm_mcp.mcp_client.transports.channel import MAX_MESSAGE_BYTES, messages_in
from rkllm_mcp.messages import as_mapping
from rkllm_mcp.tasks import run_costly

if TYPE_CHECKING:
    import httpx2
    from mcp.shared.message import SessionMessage

EVENT_STREAM = "text/event-stream"
_TOKEN = "rkllm_kept"  # noqa: S105  # the name of a field
# Of a result, what the SDK itself looks at, such as the revision of a handshake.
_SHORT_CHARS, _MOST_SHORT = 200, 20
_LINE_END = rb"(?:\r\n|\n|\r(?!\n))"
_EVENT_END = re.compile(_LINE_END + rb"(?:\r\n|\n|\r)")
_LINES = re.compile(rb"\r\n|\n|\r")
_UNREADABLE = b"{}"


@dataclass(eq=False)
class LongMessages:
    """The long messages of a connection that are on their way through the SDK."""

    _kept: dict[str, Any] = field(default_factory=dict[str, Any])

    def shorten(self, item: SessionMessage) -> bytes:
        """Keep a message, and return the short one that takes its place, as JSON."""
        token, message = secrets.token_hex(8), item.message
        self._kept[token] = message
        short: dict[str, Any] = {"jsonrpc": "2.0"}
        if isinstance(message, sdk.types.JSONRPCResponse):
            scalars = [(name, part) for name, part in message.result.items() if len(f"{name}{part}") < _SHORT_CHARS]
            short |= {"id": message.id, "result": {**dict(scalars[:_MOST_SHORT]), _TOKEN: token}}
        elif isinstance(message, sdk.types.JSONRPCError):
            short |= {"id": message.id, "error": {"code": message.error.code, "message": "", "data": {_TOKEN: token}}}
        else:
            short |= {"method": message.method, "params": {_TOKEN: token}}
            if isinstance(message, sdk.types.JSONRPCRequest):
                short["id"] = message.id
        return json.dumps(short).encode()

    async def restore(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        """Return an item that the SDK delivers, with the message that was kept for it."""
        if isinstance(item, Exception):
            return item
        short = item.message
        if isinstance(short, sdk.types.JSONRPCError):
            holder = short.error.data
        else:
            holder = short.result if isinstance(short, sdk.types.JSONRPCResponse) else short.params
        if (whole_value := self._kept.pop(str(as_mapping(holder).get(_TOKEN, "")), None)) is not None:
            if not isinstance(short, sdk.types.JSONRPCNotification):
                # The SDK gives a response the id of its request.
                whole_value.id = short.id
            item.message = whole_value
        return item

    def shorten_events(self, response: httpx2.Response) -> httpx2.Response:
        """Return an event stream with its long events shortened; any other response as it is."""
        kind = response.headers.get("content-type", "").lower()
        if not kind.startswith(EVENT_STREAM) or response.is_stream_consumed:
            return response
        events = self._events(response)

        class Shortened(sdk.httpx2.AsyncByteStream):
            def __aiter__(self) -> AsyncIterator[bytes]:
                return events

            async def aclose(self) -> None:
                await response.aclose()

        headers = {k: v for k, v in response.headers.items() if k not in ("content-encoding", "content-length")}
        return sdk.httpx2.Response(
            response.status_code,
            headers=headers,
            stream=Shortened(),
            request=response.request,
            extensions=response.extensions,
        )

    async def _events(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        waiting = bytearray()
        async for chunk in response.aiter_bytes():
            start = max(0, len(waiting) - 3)
            waiting += chunk
            while (end := _EVENT_END.search(waiting, start)) is not None:
                event, start = bytes(waiting[: end.end()]), 0
                del waiting[: end.end()]
                if len(event) <= LONG_BYTES:
                    yield event
                    continue
                other_lines, messages = await run_costly(_read_event, event)
                head = b"".join(line + b"\n" for line in other_lines)
                for short in [self.shorten(message) for message in messages] or [_UNREADABLE]:
                    yield head + b"data: " + short + b"\n\n"
            if len(waiting) > MAX_MESSAGE_BYTES:
                raise sdk.httpx2.StreamError(f"an event has more than {MAX_MESSAGE_BYTES // 1024**2} MB")
        yield bytes(waiting)


def _read_event(event: bytes) -> tuple[list[bytes], list[SessionMessage]]:
    """Return the lines of an event that are not data, and the messages in its data."""
    other_lines: list[bytes] = []
    data: list[bytes] = []
    for line in _LINES.split(event):
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
        elif len(line) < _SHORT_CHARS and line:
            other_lines.append(line)
    return other_lines, messages_in(b"\n".join(data))
