"""A server on the loopback interface that answers as chat services do: with prepared replies, one for each request.

    with ChatService(openai_reply("Hello"), Reply(429, ...)) as service:
        service.url                    the base address, without /v1
        service.requests               what it was asked
        service.asked                  set once it was asked
        service.left                   set once a client has gone in the middle of a reply that hangs

``openai_stream`` and ``anthropic_stream`` write the documented streams; ``cut_up`` cuts one into pieces of any size.
"""

from __future__ import annotations

import json
import select
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal

# The longest that a server waits for a client to go.
_PATIENCE_S = 10.0


@dataclass(frozen=True)
class Reply:
    """What one request is answered with.

    Args:
        status: the HTTP status.
        pieces: the body, as it is written.
        headers: next to those that every answer has.
        ending: ``end`` as it should; ``break`` closes the connection in the middle; ``hang`` says no more and waits
            for the client to go; ``silence`` does not even send the head.
    """

    status: int = 200
    pieces: Sequence[bytes] = ()
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "text/event-stream"})
    ending: Literal["end", "break", "hang", "silence"] = "end"


@dataclass(frozen=True)
class Request:
    """One request as it arrived; the names of headers in small letters."""

    path: str
    headers: Mapping[str, str]
    body: Any


class ChatService:
    """The service, from a thread while the block lasts; without a reply left it answers 500.

    Args:
        replies: for one request after the other.
        port: the port to listen on; any free one when 0.
    """

    def __init__(self, *replies: Reply, port: int = 0) -> None:
        self.replies = list(replies)
        self.requests: list[Request] = []
        self.asked = threading.Event()
        self.left = threading.Event()
        self._server = _Server(("127.0.0.1", port), type("Handler", (_Handler,), {"service": self}))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    @property
    def bodies(self) -> list[Any]:
        return [request.body for request in self.requests]

    def __enter__(self) -> ChatService:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=60)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that goes in the middle is what several tests are about.
        del request, client_address


class _Handler(BaseHTTPRequestHandler):
    service: ChatService
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        del format, args

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length) or b"null")
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.service.requests.append(Request(self.path, headers, body))
        self.service.asked.set()
        reply = self.service.replies.pop(0) if self.service.replies else Reply(500, [b"no reply is left"])
        self.close_connection = True
        if reply.ending == "silence":
            self._wait()
            return
        self.send_response(reply.status)
        for name, value in {"Transfer-Encoding": "chunked", "Connection": "close", **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        for piece in reply.pieces:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.wfile.flush()
        if reply.ending == "end":
            self.wfile.write(b"0\r\n\r\n")
        elif reply.ending == "hang":
            self._wait()

    def _wait(self) -> None:
        """Until the client has gone."""
        readable, _, _ = select.select([self.connection], [], [], _PATIENCE_S)
        try:
            has_left = bool(readable) and not self.connection.recv(1)
        except ConnectionError:
            # It went without reading what had been sent.
            has_left = True
        if has_left:
            self.service.left.set()


def sse(data: Any, event: str = "") -> bytes:
    """One event of a stream."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"{f'event: {event}' + chr(10) if event else ''}data: {text}\n\n".encode()


def openai_stream(
    *deltas: Mapping[str, Any], finish: str | None = "stop", usage: Mapping[str, Any] | None = None, done: bool = True
) -> list[bytes]:
    """A stream of chat completion chunks."""
    base: dict[str, Any] = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = [{**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    if finish is not None:
        chunks.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if usage is not None:
        chunks.append({**base, "choices": [], "usage": usage})
    return [*map(sse, chunks), *([sse("[DONE]")] if done else [])]


def openai_reply(text: str) -> Reply:
    """An answer in words, in two pieces."""
    half = len(text) // 2
    usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    return Reply(pieces=openai_stream({"content": text[:half]}, {"content": text[half:]}, usage=usage))


def openai_call(name: str, arguments: str, id: str = "call_abc", index: int = 0) -> Mapping[str, Any]:  # noqa: A002
    """A delta with a whole call."""
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}


def anthropic_stream(
    *blocks: Mapping[str, Any], stop: str | None = "end_turn", usage: Mapping[str, int] | None = None
) -> list[bytes]:
    """A stream of message events; a block is ``{"start": …, "deltas": […]}``."""
    begun = {"input_tokens": 20, "output_tokens": 1, **(usage or {})}
    message: dict[str, Any] = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "usage": begun,
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    for index, block in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block["start"]})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in block["deltas"]]
        events.append({"type": "content_block_stop", "index": index})
    if stop is not None:
        events.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 7}})
        events.append({"type": "message_stop"})
    return [sse(event, event["type"]) for event in events]


def anthropic_text(*pieces: str) -> Mapping[str, Any]:
    """A block of text."""
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return {"start": {"type": "text", "text": ""}, "deltas": deltas}


def anthropic_call(name: str, *pieces: str) -> Mapping[str, Any]:
    """A block of one call, its arguments in pieces."""
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return {"start": {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}, "deltas": deltas}


def refusal(status: int, message: str, headers: Mapping[str, str] | None = None, **more: Any) -> Reply:
    """An error in the shape that both interfaces have."""
    body = json.dumps({"type": "error", "error": {"message": message, "type": "error", **more}}).encode()
    return Reply(status, [body], {"Content-Type": "application/json", **(headers or {})})


def cut_up(pieces: Sequence[bytes], size: int) -> list[bytes]:
    """The same body in pieces of ``size`` bytes."""
    whole = b"".join(pieces)
    return [whole[start : start + size] for start in range(0, len(whole), size)]
