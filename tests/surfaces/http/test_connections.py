"""A connection on which nothing comes, or only half a request, is let go; one that is used is not."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
import uvicorn
from anyio.abc import ByteStream
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from rkllm_mcp.surfaces.http.connections import PatientConnection
from tests.support.clock import STANDING, Backend, turn

pytestmark = pytest.mark.anyio

WHOLE = b"GET / HTTP/1.1\r\nHost: board\r\n\r\n"


HEAD_S = 3.0


@pytest.fixture
def anyio_backend() -> Backend:
    return STANDING


class Hurried(PatientConnection):
    head_s = HEAD_S


class Slow:
    """An answer that comes when the test lets it."""

    def __init__(self) -> None:
        self.asked = anyio.Event()
        self.go_on = anyio.Event()

    async def answer(self, request: Request) -> PlainTextResponse:
        self.asked.set()
        await self.go_on.wait()
        return PlainTextResponse("slow")


@asynccontextmanager
async def listening(slow: Slow) -> AsyncGenerator[int, None]:
    """A server; yields its port."""

    async def quick(request: Request) -> PlainTextResponse:
        return PlainTextResponse("quick")

    app = Starlette(routes=[Route("/", quick), Route("/slow", slow.answer)])
    server = uvicorn.Server(uvicorn.Config(app, http=Hurried, lifespan="off", log_config=None, access_log=False))
    is_over = anyio.Event()

    async def serve() -> None:
        await server.serve([listener])
        is_over.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            with anyio.fail_after(60):
                yield listener.getsockname()[1]
            server.should_exit = True
            # It looks every tenth of a second.
            while not is_over.is_set():
                await turn(0.1)


async def until(stream: ByteStream, ending: bytes) -> bytes:
    """What comes, up to an ending."""
    heard = b""
    while not heard.endswith(ending):
        heard += await stream.receive()
    return heard


async def somebody_else(port: int) -> None:
    """Have an answer on a connection of its own: whoever came before is known to the server by then."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(WHOLE)
        await until(stream, b"quick")


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHost: bo"])
async def test_who_does_not_get_through_with_a_request_is_let_go(begun: bytes) -> None:
    async with listening(Slow()) as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        if begun:
            await stream.send(begun)
        await somebody_else(port)
        await turn(HEAD_S)
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()


async def test_who_waits_for_an_answer_or_between_two_is_not() -> None:
    slow = Slow()
    async with (
        listening(slow) as port,
        await anyio.connect_tcp("127.0.0.1", port) as waiting,
        await anyio.connect_tcp("127.0.0.1", port) as idle,
        await anyio.connect_tcp("127.0.0.1", port) as silent,
    ):
        await waiting.send(WHOLE.replace(b"/ ", b"/slow ", 1))
        await slow.asked.wait()
        await idle.send(WHOLE)
        await until(idle, b"quick")
        await somebody_else(port)
        await turn(HEAD_S)
        # When this one is gone the time is over for all three.
        with pytest.raises(anyio.EndOfStream):
            await silent.receive()
        slow.go_on.set()
        await until(waiting, b"slow")
        # Half of the next one in a piece of its own.
        await idle.send(WHOLE[:10])
        await idle.send(WHOLE[10:])
        await until(idle, b"quick")
        await idle.send(WHOLE[:10])
        await somebody_else(port)
        await turn(HEAD_S)
        with pytest.raises(anyio.EndOfStream):
            await idle.receive()
