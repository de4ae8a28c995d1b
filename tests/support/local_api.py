"""A REST API on a port of this machine: it tells how it was called, and misbehaves on request."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from rkllm_base.listener import listening_socket

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]


@dataclass
class LocalApi:
    """A running API.

    Attributes:
        url: its address.
        documents: what it serves below ``/documents/``, by name.
        elsewhere: where ``/away`` redirects to.
        asked: the paths that were asked for, in order.
        keys: the ``Authorization`` that each of them came with.
    """

    url: str
    documents: dict[str, Any] = field(default_factory=dict[str, Any])
    elsewhere: str = ""
    asked: list[str] = field(default_factory=list[str])
    keys: list[str | None] = field(default_factory=list["str | None"])

    def note(self, request: Request) -> None:
        self.asked.append(request.url.path)
        self.keys.append(request.headers.get("authorization"))


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield  # signals are the test run's


@asynccontextmanager
async def open_api() -> AsyncGenerator[LocalApi]:
    """An API that is gone when the block is left."""
    listener = listening_socket("127.0.0.1", 0)
    api = LocalApi(f"http://127.0.0.1:{listener.getsockname()[1]}")
    config = uvicorn.Config(_app(api), lifespan="off", log_config=None, timeout_graceful_shutdown=1)
    server = _Server(config)
    with listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            try:
                yield api
            finally:
                server.should_exit = True


def _app(api: LocalApi) -> Starlette:
    app = Starlette(
        routes=[
            Route("/echo{rest:path}", _echo, methods=METHODS),
            Route("/documents/{name}", _document),
            Route("/status/{code}", _status, methods=METHODS),
            Route("/redirect/{where}", _redirect, methods=METHODS),
            Route("/content/{kind}", _content),
            Route("/silence", _silence),
        ]
    )
    app.state.api = api
    return app


def _api(request: Request) -> LocalApi:
    return request.app.state.api


async def _echo(request: Request) -> Response:
    _api(request).note(request)
    body = await request.body()
    kind = request.headers.get("content-type", "")
    parts = await _parts(request) if "form" in kind else []
    told = {
        "method": request.method,
        "path": request.scope["raw_path"].decode(),
        "query": request.scope["query_string"].decode(),
        "headers": dict(request.headers.items()),
        "type": kind.partition(";")[0],
        "body": None if parts else body.decode("utf-8", "replace"),
        "parts": parts,
    }
    return JSONResponse(told, headers={"Set-Cookie": "session=abc"})


async def _parts(request: Request) -> list[list[Any]]:
    parts: list[list[Any]] = []
    async with request.form() as form:
        for name, value in form.multi_items():
            if isinstance(value, str):
                parts.append([name, value])
            else:
                parts.append([name, value.filename, value.content_type, (await value.read()).decode("latin-1")])
    return parts


async def _document(request: Request) -> Response:
    _api(request).note(request)
    content = _api(request).documents.get(request.path_params["name"])
    if content is None:
        return PlainTextResponse("no such document", 404)
    if isinstance(content, bytes):
        return Response(content, media_type="application/octet-stream")
    return JSONResponse(content)


async def _status(request: Request) -> Response:
    code = int(request.path_params["code"])
    page = "<html><head><style>p{}</style></head><body><p>It <b>broke</b></p></body></html>"
    odd = {
        201: Response(status_code=201, headers={"Location": "/things/5"}),
        204: Response(status_code=204),
        429: JSONResponse({"message": "status 429"}, 429, headers={"Retry-After": "7"}),
        500: Response(page, 500, media_type="text/html"),
    }
    return odd.get(code) or JSONResponse({"message": f"status {code}"}, code)


async def _redirect(request: Request) -> Response:
    targets = {
        "here": "/echo/landed",
        "away": f"{_api(request).elsewhere}/echo/landed",
        "circle": "/redirect/circle",
    }
    return RedirectResponse(targets[request.path_params["where"]], int(request.query_params.get("status", "307")))


async def _content(request: Request) -> Response:
    contents: dict[str, tuple[bytes, str]] = {
        "image": (b"\x89PNG" + bytes(1996), "image/png"),
        "bytes": (bytes(10), ""),
        "japanese": ("気温は二十度".encode("shift_jis"), "text/plain; charset=Shift_JIS"),
        "strange": (b"plain", "text/plain; charset=no-such"),
    }
    kind = request.path_params["kind"]
    if kind in contents:
        content, media_type = contents[kind]
        return Response(content, headers={"Content-Type": media_type})
    return StreamingResponse(_endless(), media_type="text/plain")


async def _silence(request: Request) -> Response:
    _api(request).note(request)
    while (await request.receive())["type"] != "http.disconnect":
        pass
    return Response()


async def _endless() -> AsyncGenerator[bytes]:
    while True:
        await anyio.lowlevel.checkpoint()
        yield b"x" * 65536
