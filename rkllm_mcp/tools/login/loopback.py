"""Loopback HTTP listener for the redirect of an OAuth authorization server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl, urlsplit

import anyio
from anyio.abc import SocketStream

from rkllm_mcp.errors import ServerUnavailableError

# Limit of request line and headers; browsers send about 2 kB, code and state as much again.
_MAX_REQUEST_BYTES = 32 * 1024
_REQUEST_TIMEOUT_S = 10.0
_PAGE = "<!doctype html><meta charset=utf-8><title>rkllm-mcp</title><p>{}</p>"


@asynccontextmanager
async def redirected(
    redirect_uri: str, timeout_s: float
) -> AsyncGenerator[Callable[[], Awaitable[dict[str, str] | None]]]:
    """Listen at ``redirect_uri`` inside this block; yield a function that waits for the redirect.

    The function returns the query of the first request to the right path, or None after ``timeout_s`` seconds.

    Raises:
        ServerUnavailableError: the port is in use, or the address is not a loopback address.
    """
    parts = urlsplit(redirect_uri)
    if parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise ServerUnavailableError(f"{redirect_uri} is not a loopback address; use http://127.0.0.1:PORT/callback")
    try:
        listener = await anyio.create_tcp_listener(local_host=parts.hostname, local_port=parts.port or 80)
    except OSError as error:
        raise ServerUnavailableError(
            f"cannot listen on {redirect_uri}: {error.strerror}; set another redirect_uri"
        ) from None
    arrived = anyio.Event()
    found: dict[str, str] = {}

    async def answer(stream: SocketStream) -> None:
        async with stream:
            with anyio.move_on_after(_REQUEST_TIMEOUT_S):
                query = await _query(stream, parts.path)
                text = "Not found." if query is None else "You can close this window and return."
                await _reply(stream, 404 if query is None else 200, text)
                if query is not None and not arrived.is_set():
                    found.update(query)
                    arrived.set()

    async def wait() -> dict[str, str] | None:
        with anyio.move_on_after(timeout_s):
            await arrived.wait()
            return found
        return None

    async with listener, anyio.create_task_group() as serving:
        serving.start_soon(listener.serve, answer)
        try:
            yield wait
        finally:
            serving.cancel_scope.cancel()


async def _query(stream: SocketStream, path: str) -> dict[str, str] | None:
    """Return the query of a GET of ``path``; None for any other request."""
    head = b""
    try:
        while b"\r\n\r\n" not in head and len(head) < _MAX_REQUEST_BYTES:
            head += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return None
    method, _, rest = head.split(b"\r\n", 1)[0].decode("ascii", "replace").partition(" ")
    target = urlsplit(rest.partition(" ")[0])
    if method != "GET" or target.path != path:
        return None
    return dict(parse_qsl(target.query))


async def _reply(stream: SocketStream, status: int, text: str) -> None:
    body = _PAGE.format(text).encode()
    head = f"HTTP/1.1 {status} {'OK' if status == 200 else 'Not Found'}\r\nContent-Type: text/html; charset=utf-8\r\n"
    try:
        await stream.send(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return
