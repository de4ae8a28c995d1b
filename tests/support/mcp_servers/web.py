"""MCP servers behind HTTP in the test's own event loop: what one answers is a function of the request.

``serving`` listens; ``Mcp`` is a Streamable HTTP server made of ``tiny``'s parts, which remembers what it was asked.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from anyio.from_thread import start_blocking_portal

from tests.support.mcp_servers.tiny import LEGACY, MODERN, Arguments, Handler, TinyServer, tool


@dataclass(frozen=True)
class Request:
    """What came in."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query))

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode()))

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """What goes out; ``body`` that is not a bytes is written as JSON, ``events`` follow it one by one."""

    status: int = 200
    body: Any = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    events: AsyncIterator[bytes] | None = None


Answer = Callable[[Request], "Reply | Awaitable[Reply | None] | None"]


@asynccontextmanager
async def serving(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncGenerator[str]:
    """Answer HTTP requests inside this block; yields the address. No reply at all (None) hangs up."""
    tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(handle(reader, writer))
        tasks[task] = writer
        task.add_done_callback(tasks.pop)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A client may leave, and a test may end, while a request is under way.
        with closing(writer), suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await _answer(answer, reader, writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http{'s' if tls else ''}://{'localhost' if tls else '127.0.0.1'}:{port}"
    finally:
        server.close()
        for task, writer in tasks.items():
            task.cancel()
            # A task that is cancelled before it begins closes nothing.
            writer.close()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def serving_beside(answer: Answer) -> Generator[str]:
    """Answer HTTP requests in a thread next to the test, as ``serving`` does."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving(answer)) as url:
        yield url


async def _answer(answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    reply = answer(await _request(reader))
    if isinstance(reply, Awaitable):
        reply = await reply
    if reply is None:
        return
    writer.write(_written(reply))
    await writer.drain()
    async for event in reply.events or _no_events():
        writer.write(event)
        await writer.drain()


async def _no_events() -> AsyncIterator[bytes]:
    for nothing in ():
        yield nothing


async def _request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:]) if name}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method, target, headers, body)


def _written(reply: Reply) -> bytes:
    body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
    kind = "text/html" if isinstance(reply.body, bytes) else "application/json"
    length = {} if reply.events is not None else {"Content-Length": str(len(body))}
    headers = {"Content-Type": kind, **length, "Connection": "close", **reply.headers}
    lines = [f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def echoed(_: TinyServer, __: Arguments) -> str:
    """The work of a tool of which only the answer matters."""
    return "echoed"


class Mcp:
    """A Streamable HTTP server.

    Args:
        handlers: its tools' work; each takes what it is given.
        eras: which revisions it speaks.
        session: the session id it gives; legacy servers alone have one.

    Attributes:
        heard: every request, by its method.
        request: the HTTP request being answered.
        meanwhile: looked at first; what it returns is the answer.
    """

    def __init__(
        self, handlers: Mapping[str, Handler], eras: tuple[str, ...] = (MODERN, LEGACY), session: str = ""
    ) -> None:
        self.inner = TinyServer([tool(name) for name in handlers], handlers, eras)
        self.session = session
        self.heard: list[str] = []
        self.request = Request("", "", {}, b"")
        self.meanwhile: Callable[[Request], Reply | None] = lambda _: None

    def __call__(self, request: Request) -> Reply:
        self.request = request
        early = self.meanwhile(request)
        if early is not None:
            return early
        if request.method != "POST":
            return Reply(405)
        message = request.json
        self.heard.append(message["method"])
        if "id" not in message:
            return Reply(202)
        if request.headers.get("mcp-session-id", self.session) != self.session:
            return Reply(404)
        outcome = self.inner.outcome(message["method"], message.get("params") or {})
        headers = {"Mcp-Session-Id": self.session} if self.session and message["method"] == "initialize" else {}
        return Reply(200, {"jsonrpc": "2.0", "id": message["id"], **outcome}, headers)
