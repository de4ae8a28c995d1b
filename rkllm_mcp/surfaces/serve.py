"""How other hosts reach the board's abilities: standard input and output, or HTTP.

Over HTTP the server listens on loopback only, unless ``[service] api_keys`` names keys; then every request needs one.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Generator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import anyio

from rkllm_mcp.config.keys import matches
from rkllm_mcp.config.service import is_loopback
from rkllm_mcp.errors import UsageError
from rkllm_mcp.surfaces.lines import PipedLines
from rkllm_mcp.surfaces.session import EXIT_DONE, Session, run_async

if TYPE_CHECKING:
    from rkllm_mcp.surfaces.offering import BoardServer

# What is under way may end by itself for so long once the server is told to stop, seconds.
_STOP_S = 5
_AT_A_TERMINAL = (
    "This speaks MCP on standard input: let a host start it as a server with the command 'rkllm-mcp' and the arguments "
    "'tools serve', or listen with --http; Ctrl-C ends."
)

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
WebApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class Offer:
    """What is served, and where.

    Args:
        over_http: over HTTP instead of standard input and output.
        host: the address to listen on.
        port: the port to listen on.
        embedding_model: a model's name or path, where the chat model is not to embed.
        ranking_model: likewise for ranking.
    """

    over_http: bool = False
    host: str | None = None
    port: int | None = None
    embedding_model: str | None = None
    ranking_model: str | None = None


def serve(session: Session, offer: Offer) -> int:
    """Serve until the client leaves, or until interrupted."""
    config = session.config()
    host = offer.host or config.service.host
    port = config.service.port if offer.port is None else offer.port
    keys = config.service.api_keys
    if offer.over_http and not is_loopback(host) and not keys:
        raise UsageError(f"off loopback ({host}) a key is required; add api_keys = ['…'] to [service]")

    if not offer.over_http and sys.stdin.isatty():
        session.status(_AT_A_TERMINAL)

    async def work() -> int:
        from rkllm_mcp.abilities import OtherModels, open_abilities
        from rkllm_mcp.surfaces.offering import BoardServer

        others = OtherModels(offer.embedding_model, offer.ranking_model)
        async with open_abilities(config, others, status=session.status) as abilities:
            server = BoardServer(abilities)
            if offer.over_http:
                await _over_http(server, host, port, keys, session)
            else:
                await _over_stdio(server)
        return EXIT_DONE

    return run_async(work)


async def _over_stdio(server: BoardServer) -> None:
    from mcp.server.stdio import stdio_server

    # The SDK would read in a thread, which no signal ends while the client says nothing.
    lines = cast("Any", _InputLines(PipedLines(sys.stdin.fileno())))
    async with stdio_server(stdin=lines) as (reading, writing):
        await server.run_on(reading, writing)


class _InputLines:
    """Lines of standard input, to be iterated over."""

    def __init__(self, lines: PipedLines) -> None:
        self._lines = lines

    def __aiter__(self) -> _InputLines:
        return self

    async def __anext__(self) -> str:
        line = await self._lines.read()
        if line is None:
            raise StopAsyncIteration
        return line


async def _over_http(server: BoardServer, host: str, port: int, keys: Sequence[str], session: Session) -> None:
    import uvicorn

    class Listening(uvicorn.Server):
        """Leaves the signals to the command, which cancels this."""

        @contextmanager
        def capture_signals(self) -> Generator[None]:
            yield

        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if not self.should_exit:
                session.status(f"Serving MCP at http://{host}:{self.servers[0].sockets[0].getsockname()[1]}/mcp")

    app = server.streamable_http_app(host=host)
    settings = uvicorn.Config(
        with_keys(cast("WebApp", app), keys),
        host=host,
        port=port,
        log_level="error",
        lifespan="on",
        timeout_graceful_shutdown=_STOP_S,
    )
    listening = Listening(settings)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_until_told, listening)
        try:
            # Cancelled it would leave its sockets open; it is told to stop instead.
            with anyio.CancelScope(shield=True):
                await listening.serve()
        except SystemExit:
            raise UsageError(f"cannot listen on {host}:{port}; choose another --port") from None
        finally:
            tasks.cancel_scope.cancel()
    # Whoever interrupted this is to be heard.
    await anyio.lowlevel.checkpoint()


async def _until_told(listening: Any) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        listening.should_exit = True


def with_keys(app: WebApp, keys: Sequence[str]) -> WebApp:
    """The application for whoever sends one of the keys as a bearer token; for everybody where there are none."""
    if not keys:
        return app

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _has_key(scope["headers"], keys):
            headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send(
                {"type": "http.response.body", "body": b'{"error":"a key is required: Authorization: Bearer KEY"}'}
            )
            return
        await app(scope, receive, send)

    return guarded


def _has_key(headers: Sequence[tuple[bytes, bytes]], keys: Sequence[str]) -> bool:
    sent = next((value for name, value in headers if name.lower() == b"authorization"), b"")
    kind, _, token = sent.partition(b" ")
    key = token.strip().decode("latin-1")
    # Every key is compared, and each in the same time whatever was sent.
    found = [entry for entry in keys if matches(key, entry)]
    return kind.lower() == b"bearer" and bool(found)
