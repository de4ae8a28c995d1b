"""The tools over HTTP: MCP at ``/mcp``, and each tool as plain JSON beside it, with the promised statuses.

    POST   /mcp                                MCP (Streamable HTTP)
    GET    /knowledge_bases                    list_knowledge_bases
    POST   /knowledge_bases                    create_knowledge_base {name, description?}
    GET    /knowledge_bases/{id}               one, with its documents
    DELETE /knowledge_bases/{id}               once it is empty
    POST   /knowledge_bases/{id}/search        search_documents {query, threshold?, max_results?}
    GET    /knowledge_bases/{id}/summary       get_knowledge_base_summary
    POST   /knowledge_bases/{id}/documents     add_document {text | url | path, title?, …}
    POST   /knowledge_bases/{id}/reindex       reindex
    DELETE /documents/{id}                     remove_document
    POST   /normalize                          normalize_ocr_text {text}
    GET    /healthz                            ok, for everybody

A problem is ``{"error": {"status", "message"}}``, beside the answer where there is one. Over MCP a problem is a tool
error instead; only a token that is not believed is 401 there, too.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import uvicorn
from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE, TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_servers.knowledge.access import TokenReader
from mcp_servers.knowledge.errors import BadArgumentError, InvalidTokenError, KnowledgeProblem
from mcp_servers.knowledge.server import create_server
from mcp_servers.knowledge.service import Service
from mcp_servers.knowledge.settings import HttpSettings, SettingsError, is_loopback
from mcp_servers.knowledge.tools import BY_NAME, Arguments, Caller
from mcp_servers.knowledge.types import EVERYONE, Access

logger = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]

# method, path, tool, and what the {id} of the path is called there
_ROUTES = (
    ("GET", "/knowledge_bases", "list_knowledge_bases", ""),
    ("POST", "/knowledge_bases", "create_knowledge_base", ""),
    ("GET", "/knowledge_bases/{id}", "list_knowledge_bases", "knowledge_base_id"),
    ("DELETE", "/knowledge_bases/{id}", "remove_document", "knowledge_base_id"),
    ("POST", "/knowledge_bases/{id}/search", "search_documents", "knowledge_base_id"),
    ("GET", "/knowledge_bases/{id}/summary", "get_knowledge_base_summary", "knowledge_base_id"),
    ("POST", "/knowledge_bases/{id}/documents", "add_document", "knowledge_base_id"),
    ("POST", "/knowledge_bases/{id}/reindex", "reindex", "knowledge_base_id"),
    ("DELETE", "/documents/{id}", "remove_document", "document_id"),
    ("POST", "/normalize", "normalize_ocr_text", ""),
)
_OK, _CREATED, _INTERNAL = 200, 201, 500
_CREATES = frozenset({"create_knowledge_base", "add_document"})


def create_app(service: Service, http: HttpSettings) -> Door:
    """The application, with its door.

    Args:
        service: what the tools do.
        http: who is let in.

    Raises:
        SettingsError: the keys of tokens cannot be used.
    """
    server = create_server(service, lambda context: access_of_request(context.request))
    # The door has looked at Host and Origin already, for every path.
    unguarded = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    inner = server.streamable_http_app(transport_security=unguarded)
    routes = [Route(path, _endpoint(service, tool, named), methods=[method]) for method, path, tool, named in _ROUTES]
    app = Starlette(
        routes=[*inner.routes, *routes, Route("/healthz", _healthy)],
        lifespan=lambda _: server.session_manager.run(),
    )
    return Door(app, http)


async def _healthy(_: Request) -> Response:
    return PlainTextResponse("ok")


def _endpoint(service: Service, name: str, named: str) -> Endpoint:
    tool = BY_NAME[name]

    async def call(request: Request) -> Response:
        try:
            given = await _body(request)
            if named:
                given[named] = request.path_params["id"]
            answer = await tool.run(service, Arguments(given), Caller(access_of_request(request)))
        except KnowledgeProblem as problem:
            return problem_response(problem)
        except ClientDisconnect:
            return Response(status_code=_INTERNAL)
        except Exception:
            # What it was is for the owner's log; a stranger learns nothing of it.
            logger.exception("%s %s failed", request.method, request.url.path)
            return _error(_INTERNAL, "Something went wrong inside the knowledge server. Its log says what.")
        problem = answer.problem()
        if problem:
            return _error(problem.status, str(problem), answer.facts())
        is_new = name in _CREATES and request.method == "POST"
        return JSONResponse(answer.facts(), _CREATED if is_new else _OK)

    return call


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object of a request; nothing for one without a body.

    Raises:
        BadArgumentError: it is none, or too large.
    """
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > DEFAULT_MAX_REQUEST_BODY_SIZE:
            raise BodyTooLargeError
    if not content:
        return {}
    try:
        value: object = json.loads(content)
    except (ValueError, RecursionError):
        raise BadArgumentError("the body", "is no JSON", "Send an object of arguments") from None
    if not isinstance(value, Mapping):
        raise BadArgumentError("the body", "is no object", "Send an object of arguments")
    return dict(cast("Mapping[str, Any]", value))


class BodyTooLargeError(KnowledgeProblem):
    """More than is read of a request."""

    status = 413
    _WORDS = f"The request has more than {DEFAULT_MAX_REQUEST_BODY_SIZE // 2**20} MB"
    _ADVICE = "Send the document in parts, or add it as a file on the server's machine"


def problem_response(problem: KnowledgeProblem) -> Response:
    """A problem as HTTP says it."""
    return _error(problem.status, str(problem))


def _error(status: int, message: str, answer: Mapping[str, Any] | None = None) -> Response:
    return JSONResponse({**(answer or {}), "error": {"status": status, "message": message}}, status)


_STATE = "knowledge_access"
# Says nothing but that the program runs.
_OPEN = frozenset({"/healthz"})


class ForeignRequestError(KnowledgeProblem):
    """A request that a web page may have made in somebody's browser."""

    status = 403
    _WORDS = "This service is for programs of this machine"
    _ADVICE = "Ask it as 127.0.0.1 or localhost, and from no page of another host"


class Door:
    """An application behind its door.

    Args:
        app: the application.
        http: who is let in.

    Raises:
        SettingsError: the keys of tokens cannot be used.
    """

    def __init__(self, app: ASGIApp, http: HttpSettings) -> None:
        self._app = app
        self._tokens = TokenReader(http.tokens) if http.tokens.is_configured else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or say why not."""
        if scope["type"] == "http" and scope["path"] not in _OPEN:
            try:
                access = self._access(Headers(scope=scope))
            except KnowledgeProblem as problem:
                await _refusal(problem)(scope, receive, send)
                return
            scope.setdefault("state", {})[_STATE] = access
        await self._app(scope, receive, send)

    def _access(self, headers: Headers) -> Access:
        if self._tokens:
            return self._tokens.access_of(headers.get("authorization", ""))
        if not _is_here(f"//{headers.get('host', '')}") or not _is_here(headers.get("origin") or "//127.0.0.1"):
            raise ForeignRequestError
        return EVERYONE


def access_of_request(request: Any) -> Access:
    """Who makes a request; nobody is anybody without having passed the door.

    Raises:
        InvalidTokenError: it did not.
    """
    access: object = request.scope.get("state", {}).get(_STATE) if isinstance(request, Request) else None
    if not isinstance(access, Access):
        raise InvalidTokenError("nobody knows who asks")
    return access


def _is_here(address: str) -> bool:
    try:
        return is_loopback(urlsplit(address).hostname or "")
    except ValueError:
        return False


def _refusal(problem: KnowledgeProblem) -> JSONResponse:
    challenge = {"www-authenticate": "Bearer"} if isinstance(problem, InvalidTokenError) else None
    return JSONResponse({"error": {"status": problem.status, "message": str(problem)}}, problem.status, challenge)


# What is under way may end by itself for so long once the server is told to stop, seconds.
_STOP_S = 5
_MOST_CONNECTIONS = 256


class _Listener(uvicorn.Server):
    """Leaves the signals to the program, which cancels it."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture none."""
        yield


async def listen(app: ASGIApp, http: HttpSettings, told: Callable[[int], None]) -> None:
    """Serve until cancelled.

    Args:
        app: the application.
        http: where.
        told: the port, once it is open.

    Raises:
        SettingsError: the port cannot be had.
    """
    settings = uvicorn.Config(
        app,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_STOP_S,
    )
    listener = _Listener(settings)
    with _open_socket(http) as opened:
        told(opened.getsockname()[1])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_until_cancelled, listener)
            try:
                # Cancelled it would leave its connections open; it is told to stop instead.
                with anyio.CancelScope(shield=True):
                    await listener.serve([opened])
            finally:
                tasks.cancel_scope.cancel()
    # Whoever cancelled this is to be heard.
    await anyio.lowlevel.checkpoint()


def _open_socket(http: HttpSettings) -> socket.socket:
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(http.host.strip("[]"), http.port, type=socket.SOCK_STREAM)
        opened = socket.create_server(address, family=family)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SettingsError(f"Cannot listen on {http.host}:{http.port} ({reason}): give another one.") from None
    opened.setblocking(False)
    return opened


async def _until_cancelled(listener: _Listener) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        listener.should_exit = True
