"""A connection on which nothing comes, or only half a request, is let go; one that is used is not."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
import uvicorn
from anyio.abc import ByteStream
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from rkllm_base.listener import (
    EXCESS_BYTES,
    HEAD_BYTES,
    LOG_INTERVAL_S,
    MOST_OF_ONE_ADDRESS,
    PatientConnection,
    WaitingConnections,
    listening_socket,
    waiting_connections,
)
from tests.support.clock import STANDING, Backend, turn
from tests.support.demo_app import make_demo
from tests.support.started import Started, started

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
async def listening(
    slow: Slow, connection: type[PatientConnection] = Hurried, early: Callable[[int], Awaitable[object]] | None = None
) -> AsyncGenerator[int, None]:
    """A server; yields its port. ``early`` is done before it takes the first connection."""

    async def quick(request: Request) -> PlainTextResponse:
        return PlainTextResponse("quick")

    async def echo(request: Request) -> PlainTextResponse:
        return PlainTextResponse(await request.body())

    async def key(request: Request) -> PlainTextResponse:
        await request.body()
        return PlainTextResponse(f"key={request.headers.get('authorization', '')};")

    async def host(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"host={request.headers['host']};")

    routes = [
        Route("/host", host),
        Route("/key", key, methods=["POST"]),
        Route("/", quick),
        Route("/slow", slow.answer),
        Route("/echo", echo, methods=["POST"]),
    ]
    config = uvicorn.Config(
        Starlette(routes=routes), http=connection, lifespan="off", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    is_over = anyio.Event()

    async def serve() -> None:
        await server.serve([listener])
        is_over.set()

    with listening_socket("127.0.0.1", 0) as listener:
        if early is not None:
            await early(listener.getsockname()[1])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            with anyio.fail_after(600):
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
    """Have an answer on its own connection: the server knows earlier clients by then."""
    async with await anyio.connect_tcp("127.0.0.1", port, local_host="127.0.0.99") as stream:
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
        # Half of the next one in its own piece.
        await idle.send(WHOLE[:10])
        await idle.send(WHOLE[10:])
        await until(idle, b"quick")
        await idle.send(WHOLE[:10])
        await somebody_else(port)
        await turn(HEAD_S)
        with pytest.raises(anyio.EndOfStream):
            await idle.receive()


HALF = b"POST /v1/chat/comp"


def bounded(most: int, most_of_one: int, proxy: str = "") -> type[PatientConnection]:
    """A connection of a server with limits of its own."""

    class Bounded(PatientConnection):
        waiting = WaitingConnections(most, most_of_one, lambda address: address == proxy)

    return Bounded


async def half_open(stack: AsyncExitStack, port: int, address: str = "127.0.0.1") -> ByteStream:
    """A connection from an address of this machine, with half a head."""
    stream = await anyio.connect_tcp("127.0.0.1", port, local_host=address)
    await stack.enter_async_context(stream)
    await stream.send(HALF)
    # It is answered only once the server has taken the connections before it.
    await somebody_else(port)
    return stream


async def is_open(stream: ByteStream) -> bool:
    """Whether the server would take the rest of the request."""
    try:
        await stream.send(b" HTTP/1.1\r\nHost: board\r\nContent-Length: 0\r\n\r\n")
        return (await stream.receive()).startswith(b"HTTP/1.1 404 ")
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return False


@pytest.mark.parametrize(
    ("most", "most_of_one", "proxy", "addresses", "are_open"),
    [
        # The oldest of the address that has too many goes, and nobody else's.
        (9, 2, "", "1 2 1 2 1 1", "no yes no yes yes yes"),
        # The oldest of all goes.
        (3, 2, "", "1 2 3 4 5", "no no yes yes yes"),
        # A proxy's count in all only.
        (4, 1, "127.0.0.1", "1 1 1 2 1 2", "no yes yes no yes yes"),
    ],
)
async def test_of_too_many_connections_without_a_request_the_oldest_are_closed(
    most: int, most_of_one: int, proxy: str, addresses: str, are_open: str
) -> None:
    # One more in all, for the connection that finds out that the others have arrived.
    connection = bounded(most + 1, most_of_one, proxy)
    async with AsyncExitStack() as stack, listening(Slow(), connection) as port:
        streams = [await half_open(stack, port, f"127.0.0.{number}") for number in addresses.split()]
        assert [await is_open(stream) for stream in streams] == [word == "yes" for word in are_open.split()]


async def test_a_connection_between_two_requests_counts_and_one_with_a_request_does_not() -> None:
    slow = Slow()
    async with AsyncExitStack() as stack, listening(slow, bounded(2, 9)) as port:
        waiting, idle = [await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port)) for _ in range(2)]
        await waiting.send(WHOLE.replace(b"/ ", b"/slow ", 1))
        await slow.asked.wait()
        await idle.send(WHOLE)
        await until(idle, b"quick")
        streams = [await half_open(stack, port) for _ in range(2)]
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await idle.receive()
        slow.go_on.set()
        await until(waiting, b"slow")
        assert await is_open(streams[-1])


async def test_complete_requests_that_arrive_together_are_all_answered() -> None:
    streams: list[ByteStream] = []
    async with AsyncExitStack() as stack:

        async def ask(port: int) -> None:
            for _ in range(40):
                stream = await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port))
                await stream.send(WHOLE)
                streams.append(stream)

        async with listening(Slow(), bounded(4, 2), ask):
            for stream in streams:
                await until(stream, b"quick")


async def test_a_line_a_minute_says_how_many_were_closed(caplog: pytest.LogCaptureFixture) -> None:
    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name.startswith("rkllm_base")]

    def count(line: str) -> int:
        return int(line.split()[1])

    with caplog.at_level(logging.ERROR):
        async with AsyncExitStack() as stack, listening(Slow(), bounded(9, 2)) as port:
            for _ in range(5):
                await half_open(stack, port)
            (first,) = lines()
            assert "without a complete request" in first
            await turn(LOG_INTERVAL_S)
            _, second = lines()
            assert [count(first), count(second)] == [1, 2]
            await turn(LOG_INTERVAL_S)
            assert len(lines()) == 2


async def test_a_head_without_an_end_is_not_collected() -> None:
    async with listening(Slow()) as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(b"GET / HTTP/1.1\r\n")
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            for _ in range(2 * HEAD_BYTES // 1000):
                await stream.send(b"X-Filler: %b\r\n" % (b"x" * 986))
            await stream.receive()


@pytest.mark.parametrize(
    ("framing", "body"),
    [
        (b"Content-Length: 5", b"hello"),
        (b"Transfer-Encoding: chunked", b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"),
    ],
)
@pytest.mark.parametrize("piece_bytes", [1, 10_000])
async def test_an_offer_to_upgrade_costs_a_request_nothing(framing: bytes, body: bytes, piece_bytes: int) -> None:
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA"
    sent = b"POST /echo HTTP/1.1\r\nHost: board\r\n" + offer + b"\r\n" + framing + b"\r\n\r\n" + body + WHOLE
    async with listening(Slow()) as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        for start in range(0, len(sent), piece_bytes):
            await stream.send(sent[start : start + piece_bytes])
        answers = await until(stream, b"quick")
        assert answers.count(b"HTTP/1.1 200 OK") == 2
        assert b"\r\n\r\nhello" in answers


@contextmanager
def half_open_ones(port: int, count: int) -> Generator[list[socket.socket], None, None]:
    """Connections that a service sees in this order, with half a head each."""
    with ExitStack() as stack:
        sockets: list[socket.socket] = []
        for _ in range(count):
            each = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            each.sendall(HALF)
            sockets.append(each)
        yield sockets


def test_half_open_connections_shut_no_client_out_of_a_service(tmp_path: Path) -> None:
    count = 530
    with started(make_demo(tmp_path, [])) as it:
        with half_open_ones(it.port, count) as sockets:
            question = {"message": "Hello"}
            answers = [httpx2.post(f"{it.url}/v1/execute", json=question, timeout=60) for _ in range(3)]
            assert [answer.status_code for answer in answers] == [200] * 3
            # The oldest; of the others, one more for each client of the same address at most.
            for each in sockets[: count - MOST_OF_ONE_ADDRESS]:
                assert each.recv(1) == b""
            sockets[-1].setblocking(False)
            with pytest.raises(BlockingIOError):
                sockets[-1].recv(1)
        assert "without a complete request" in it.line()


@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_trailer_is_not_a_header(*, is_cut: bool) -> None:
    offers = (b"", b"Upgrade: h2c\r\nConnection: Upgrade\r\n")
    async with listening(Slow()) as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        for offer in offers:
            framing = b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
            head = b"POST /key HTTP/1.1\r\nHost: board\r\n" + offer
            trailed = head + framing + b"Authorization: Bearer smuggled\r\n\r\n"
            for piece in (trailed[i : i + 1] for i in range(len(trailed))) if is_cut else (trailed,):
                await stream.send(piece)
            assert (await until(stream, b";")).endswith(b"key=;")
        # The next request's own key is read as before.
        headed = b"POST /key HTTP/1.1\r\nHost: board\r\nAuthorization: Bearer own\r\nContent-Length: 0\r\n\r\n"
        await stream.send(headed)
        assert (await until(stream, b";")).endswith(b"key=Bearer own;")


async def answer_to(request: bytes, ending: bytes) -> bytes:
    """What a server answers to the bytes of a request."""
    async with listening(Slow()) as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(request)
        return await until(stream, ending)


async def test_the_host_of_a_target_replaces_the_header() -> None:
    head = b"GET http://evil.example:81/host HTTP/1.1\r\nHost: board\r\n\r\n"
    assert (await answer_to(head, b";")).endswith(b"host=evil.example:81;")
    assert (await answer_to(b"GET /host HTTP/1.1\r\nHost: board\r\n\r\n", b";")).endswith(b"host=board;")


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/2.0",
        b"GET / HTTP/0.9",
        b"GET / HTTP/1.2",
        b"PRI * HTTP/2.0",
        b"GET http://me@board/ HTTP/1.1",
        b"GET http:///x HTTP/1.1",
        b"GET x HTTP/1.1",
    ],
)
async def test_another_version_or_target_is_refused(line: bytes) -> None:
    assert (await answer_to(line + b"\r\nHost: board\r\n\r\n", b"received.")).startswith(b"HTTP/1.1 400 ")


# Its extension is no longer than its data.
LONG_CHUNK = b"2000;" + b"x" * 8_000 + b"\r\n" + b"a" * 0x2000 + b"\r\n"


@pytest.mark.parametrize(
    "excess",
    [b"1;" + b"x" * 300_000 + b"\r\na\r\n0\r\n\r\n", b"1;" + b"x" * 90 + b"\r\na\r\n", b"0" * 300_000, LONG_CHUNK],
)
async def test_a_chunked_body_has_no_more_around_it_than_in_it(excess: bytes) -> None:
    head = b"POST /echo HTTP/1.1\r\nHost: board\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with listening(Slow()) as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(head)
        await turn(0)
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            for _ in range(4 * EXCESS_BYTES // len(excess) + 2):
                for start in range(0, len(excess), 10_000):
                    await stream.send(excess[start : start + 10_000])
            while await stream.receive():
                pass


async def test_a_body_in_small_chunks_and_requests_after_it_are_read() -> None:
    head = b"POST /echo HTTP/1.1\r\nHost: board\r\nTransfer-Encoding: chunked\r\n\r\n"
    small = b"1\r\na\r\n" * (EXCESS_BYTES // 2)
    async with listening(Slow()) as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(head)
        for start in range(0, len(small), 60_000):
            await stream.send(small[start : start + 60_000])
        await stream.send(b"0\r\n\r\n" + WHOLE)
        answers = await until(stream, b"quick")
        assert answers.count(b"HTTP/1.1 200 OK") == 2
        assert b"a" * (EXCESS_BYTES // 2) in answers


@pytest.mark.parametrize(("most", "limits"), [(None, (512, 128)), (896, (512, 128)), (128, (96, 32)), (64, (48, 16))])
def test_connections_without_a_request_leave_room_for_others(most: int | None, limits: tuple[int, int]) -> None:
    waiting = waiting_connections(most, lambda _: False)
    assert (waiting.most, waiting.most_of_one) == limits


@contextmanager
def service_with_files(folder: Path, files: int) -> Generator[subprocess.Popen[str], None, None]:
    """A service that may open this many files."""
    demo = make_demo(folder, [])
    limit = f"import resource, runpy; resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files})); "
    code = limit + 'runpy.run_module("rkllm_mcp", run_name="__main__", alter_sys=True)'
    arguments = [sys.executable, "-c", code, "--config", str(demo.config), "serve", "--port", "0"]
    with subprocess.Popen(arguments, env=demo.environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


@pytest.mark.parametrize("files", [64, 191])
def test_too_few_open_files_are_one_sentence(tmp_path: Path, files: int) -> None:
    with service_with_files(tmp_path, files) as process:
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert f"only {files} files may be open (ulimit -n), and 192 are needed to serve; raise the limit" in errors
    assert "Traceback" not in errors
    assert len(errors.splitlines()) <= 3


def test_with_few_open_files_connections_of_one_address_shut_no_client_out(tmp_path: Path) -> None:
    with service_with_files(tmp_path, 192) as process:
        assert process.stderr is not None
        it = Started(process)
        it.url = it.until("Serving at ").split()[2]
        it.until("Ready")
        with half_open_ones(it.port, 200):
            for _ in range(10):
                assert it.get("/healthz").status_code == 200
            answer = httpx2.post(f"{it.url}/v1/execute", json={"message": "Hello"}, timeout=60)
            assert answer.status_code == 200
        process.terminate()
        lines = process.stderr.readlines()
    assert len(lines) < 10, lines
    assert not any("Traceback" in line or "out of system resource" in line for line in lines)
