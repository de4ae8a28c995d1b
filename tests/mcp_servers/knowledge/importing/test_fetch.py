from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from mcp_servers.knowledge.errors import (
    AddressRefusedError,
    AddressUnreachableError,
    DocumentImportError,
    TooLargeError,
    UnsupportedFormatError,
)
from mcp_servers.knowledge.importing.documents import Blob
from mcp_servers.knowledge.importing.reader import FetchLimits, fetch, open_reader, resolve_public
from mcp_servers.program import redact_url
from rkllm_base.listener import listening_socket

pytestmark = pytest.mark.anyio

OURS = FetchLimits(allowed_networks=("127.0.0.1/32",), total_timeout_s=10)
MOST_BYTES = 100_000
PAGE = "<title>案内</title><p>日本語の頁です。</p>"
CONTENTS = {
    "large": (bytes(MOST_BYTES + 1), "text/plain"),
    "image": (b"x", "image/png"),
    "sjis": (PAGE.encode("cp932"), "text/html; charset=Shift_JIS"),
    "wrong": (PAGE.encode("euc_jp"), "text/html; charset=UTF-8"),
}


@dataclass
class Site:
    """A web site on this machine; ``asked`` are the Host headers and paths it was asked with."""

    url: str
    port: int
    asked: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield  # signals are the test run's


@asynccontextmanager
async def open_site() -> AsyncGenerator[Site]:
    listener = listening_socket("127.0.0.1", 0)
    port = int(listener.getsockname()[1])
    site = Site(f"http://127.0.0.1:{port}", port)
    app = Starlette(
        routes=[
            Route("/page", _page),
            Route("/go", _go),
            Route("/endless", _endless),
            Route("/silent", _silent),
            *(Route(f"/{name}", _content) for name in CONTENTS),
        ]
    )
    app.state.site = site
    server = _Server(uvicorn.Config(app, lifespan="off", log_config=None, timeout_graceful_shutdown=1))
    with listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            try:
                yield site
            finally:
                server.should_exit = True


async def _page(request: Request) -> Response:
    request.app.state.site.asked.append((request.headers["host"], request.url.path))
    return Response(PAGE, media_type="text/html; charset=utf-8")


async def _go(request: Request) -> Response:
    return RedirectResponse(request.query_params["to"], 302)


async def _content(request: Request) -> Response:
    content, media_type = CONTENTS[request.url.path.removeprefix("/")]
    return Response(content, media_type=media_type)


async def _silent(request: Request) -> Response:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    return Response()


async def _endless(request: Request) -> Response:
    return StreamingResponse(_without_end(), media_type="text/plain")


async def _without_end() -> AsyncGenerator[bytes]:
    while True:
        await anyio.lowlevel.checkpoint()
        yield b"x" * 65_536


async def test_a_page_comes_with_its_name_its_type_and_its_address() -> None:
    with anyio.fail_after(60):
        async with open_site() as site:
            blob = await fetch(f"{site.url}/page?key=1#part", OURS, MOST_BYTES)
            assert blob == Blob(PAGE.encode(), "page", "text/html", "utf-8", f"{site.url}/page?key=1")
            assert site.asked == [(f"127.0.0.1:{site.port}", "/page")]


@pytest.mark.parametrize("path", ["page", "sjis", "wrong"])
async def test_a_page_is_read_in_its_own_encoding_with_any_header_of_its_server(path: str) -> None:
    with anyio.fail_after(60):
        async with open_site() as site, open_reader(fetching=OURS) as reader:
            document = await reader.read_document(f"{site.url}/{path}")
            assert (document.title, document.passages[0].text) == ("案内", "日本語の頁です。")
            assert document.uri == f"{site.url}/{path}"


async def test_the_name_of_a_host_is_sent_though_its_address_is_connected_to() -> None:
    limits = FetchLimits(allowed_networks=("127.0.0.0/8", "::1/128"))
    with anyio.fail_after(60):
        async with open_site() as site:
            await fetch(f"http://localhost:{site.port}/page", limits, MOST_BYTES)
            assert site.asked == [(f"localhost:{site.port}", "/page")]


async def test_redirects_are_followed_a_few_times() -> None:
    with anyio.fail_after(60):
        async with open_site() as site:
            blob = await fetch(f"{site.url}/go?to=/go?to=/page", OURS, MOST_BYTES)
            assert blob.uri == f"{site.url}/page"
            circle = "/go?to=" * 7 + "/page"
            with pytest.raises(AddressUnreachableError, match="redirects more than 5 times"):
                await fetch(f"{site.url}/go?to={circle}", OURS, MOST_BYTES)


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.2/",
        "http://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/",
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
    ],
)
async def test_a_redirect_into_a_private_network_is_not_followed(target: str) -> None:
    with anyio.fail_after(60):
        async with open_site() as site:
            with pytest.raises(AddressRefusedError, match="is not fetched"):
                await fetch(f"{site.url}/go?to={target}", OURS, MOST_BYTES)


@pytest.mark.parametrize(
    ("path", "problem", "sentence"),
    [
        ("large", TooLargeError, "it has more than 0 MB"),
        ("endless", TooLargeError, "it has more than 0 MB"),
        ("image", UnsupportedFormatError, "it is image/png"),
        ("nothing", AddressUnreachableError, "HTTP 404"),
    ],
)
async def test_an_address_with_no_document_or_a_too_large_one_is_given_up(
    path: str, problem: type[DocumentImportError], sentence: str
) -> None:
    with anyio.fail_after(60):
        async with open_site() as site:
            with pytest.raises(problem, match=sentence):
                await fetch(f"{site.url}/{path}", OURS, MOST_BYTES)


async def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    limits = FetchLimits(allowed_networks=("127.0.0.1/32",), read_timeout_s=10, total_timeout_s=0.2)
    with anyio.fail_after(60):
        async with open_site() as site:
            with pytest.raises(AddressUnreachableError, match=r"it takes longer than 0\.2 s"):
                await fetch(f"{site.url}/silent", limits, MOST_BYTES)


async def test_a_host_that_does_not_answer_is_reported() -> None:
    # A port that is taken, and where nobody listens.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with anyio.fail_after(60), pytest.raises(AddressUnreachableError, match="the host does not answer"):
            await fetch(f"http://127.0.0.1:{port}/", OURS, MOST_BYTES)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://localhost:8080/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://0.0.0.0/",
        "http://[::ffff:127.0.0.1]/",
        "http://[fe80::1]/",
        "http://192.168.1.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://100.64.0.1/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "http:///",
        "http://user:secret@127.0.0.1/",
        "http://[::1",
        "://",
    ],
)
async def test_private_addresses_and_other_schemes_are_refused(url: str) -> None:
    with anyio.fail_after(60), pytest.raises(AddressRefusedError) as caught:
        await fetch(url, FetchLimits(), MOST_BYTES)
    assert "is not fetched" in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_a_network_of_ones_own_can_be_allowed() -> None:
    allowed = ["192.168.0.0/16"]
    for host in ("192.168.1.1", "::ffff:192.168.1.1"):
        assert await resolve_public("http://h/", host, 80, allowed) == [host]
    with pytest.raises(AddressRefusedError):
        await resolve_public("http://h/", "10.0.0.1", 80, allowed)


def test_an_address_is_shown_without_its_secrets() -> None:
    assert redact_url("https://user:word@example.com:8443/a?token=x#y") == "https://example.com:8443/a"
    assert redact_url("http://[broken") == "the address"
