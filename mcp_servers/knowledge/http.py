"""HTTP application: MCP at ``/mcp`` and each tool as plain JSON, with authentication and the specified statuses.

``_ROUTES`` has the addresses of the tools, whose arguments are a JSON object; ``add_document`` also takes a form with a
file. ``/healthz`` is ok, without authentication.

Errors are ``{"error": {"status", "message"}}``, added to the result if there is one. Over MCP they are tool errors,
except an invalid token, which is 401.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast
from urllib.parse import urlsplit

from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE, TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import Headers, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_servers.knowledge.access import TokenVerifier
from mcp_servers.knowledge.errors import BadArgumentError, InvalidTokenError, KnowledgeError
from mcp_servers.knowledge.ingest import uploaded_blob
from mcp_servers.knowledge.results import ToolOutput
from mcp_servers.knowledge.server import create_server
from mcp_servers.knowledge.service import CallContext, KnowledgeService
from mcp_servers.knowledge.settings import HttpSettings, SettingsError
from mcp_servers.knowledge.tools import BY_NAME
from mcp_servers.knowledge.types import UNRESTRICTED, Access
from mcp_servers.knowledge.validation import BASE, ToolArguments, check_may_write
from rkllm_base.addresses import is_loopback
from rkllm_base.listener import Listener, ListenError, listening_socket
from rkllm_base.uploads import limit_receive

logger = logging.getLogger(__name__)

# method, path, tool, tool argument that receives {id}
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
_FORM_BYTES = 100_000
_CREATES = frozenset({"create_knowledge_base", "add_document"})


def create_app(service: KnowledgeService, http: HttpSettings) -> AccessMiddleware:
    """Create the ASGI application; raise SettingsError if the configured token keys are unusable."""
    server = create_server(service, lambda context: request_access(context.request))
    # AccessMiddleware has checked Host and Origin for every path.
    transport_security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    inner = server.streamable_http_app(transport_security=transport_security)
    routes = [
        *inner.routes,
        *(
            Route(path, partial(_respond, service, tool, id_argument), methods=[method])
            for method, path, tool, id_argument in _ROUTES
        ),
        Route("/healthz", PlainTextResponse("ok"), methods=["GET"]),
    ]
    return AccessMiddleware(Starlette(routes=routes, lifespan=lambda _: server.session_manager.run()), http)


async def _respond(service: KnowledgeService, tool: str, id_argument: str, request: Request) -> Response:
    try:
        access = request_access(request)
        is_form = request.headers.get("content-type", "").lower().startswith("multipart/form-data")
        if is_form and tool == "add_document":
            check_may_write(access, files=True)
            with service.uploads.receiving(access):
                answer = await _add_file(service, request, access)
        else:
            # The arguments of a path after the question mark are those of a page.
            arguments = {**request.query_params, **await _body(request)}
            if id_argument:
                arguments[id_argument] = request.path_params["id"]
            answer = await BY_NAME[tool].run(service, ToolArguments(arguments), CallContext(access))
    except KnowledgeError as problem:
        return error_response(problem)
    except ClientDisconnect:
        return Response(status_code=_INTERNAL)
    except Exception:
        # Details go to the log only: they may contain private data.
        logger.exception("%s %s failed", request.method, request.url.path)
        return error_response(KnowledgeError("Internal"))
    problem = answer.problem()
    if problem:
        return error_response(problem, answer.structured_content())
    return JSONResponse(answer.structured_content(), _CREATED if tool in _CREATES else _OK)


async def _add_file(service: KnowledgeService, request: Request, access: Access) -> ToolOutput:
    """Add the document of a form; large files are spooled to a file without a name."""
    limit = service.uploads.max_bytes + _FORM_BYTES
    form = _limit_body(request, limit).form(max_files=1, max_fields=20)
    try:
        async with form as fields:
            file = fields.get("file")
            if not isinstance(file, UploadFile):
                raise BadArgumentError("file", "is missing", "Send the document as the part named file, with its name")
            if (file.size or 0) > service.uploads.max_bytes:
                raise KnowledgeError("BodyTooLarge", megabytes=service.uploads.max_bytes // 1_000_000)
            media_type = (file.content_type or "").partition(";")[0]
            blob = uploaded_blob(await file.read(), file.filename or "", access, media_type)
            form_values: dict[str, Any] = {name: value for name, value in fields.items() if isinstance(value, str)}
    except HTTPException as error:
        raise BadArgumentError("the form", f"cannot be read ({error.detail})", "Send multipart/form-data") from None
    if "fields" in form_values:
        try:
            form_values["fields"] = json.loads(form_values["fields"])
        except (ValueError, RecursionError):
            raise BadArgumentError("fields", "is not JSON", "Give an object of texts") from None
    form_values[BASE] = request.path_params["id"]
    return await service.add(ToolArguments(form_values), CallContext(access), blob)


def _limit_body(request: Request, limit: int) -> Request:
    """Return the request with limits on the size of its body and on its time."""
    receive = limit_receive(
        request.receive,
        limit,
        too_large=lambda: KnowledgeError("BodyTooLarge", megabytes=limit // 1_000_000),
        stalled=lambda words: KnowledgeError("BodyStalled", words=words),
    )
    return Request(request.scope, receive)


async def _body(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request, or an empty one without a body."""
    content = await _limit_body(request, DEFAULT_MAX_REQUEST_BODY_SIZE).body()
    if not content:
        return {}
    try:
        value: object = json.loads(content)
    except (ValueError, RecursionError):
        raise BadArgumentError("the body", "is not JSON", "Send an object of arguments") from None
    if not isinstance(value, Mapping):
        raise BadArgumentError("the body", "is not an object", "Send an object of arguments")
    return dict(cast("Mapping[str, Any]", value))


def error_response(problem: KnowledgeError, answer: Mapping[str, Any] | None = None) -> Response:
    """Return an error as an HTTP response, added to the result if there is one."""
    challenge = {"www-authenticate": "Bearer"} if isinstance(problem, InvalidTokenError) else None
    error = {"status": problem.status, "message": str(problem)}
    return JSONResponse({**(answer or {}), "error": error}, problem.status, challenge)


_STATE_KEY = "knowledge_access"
# Needs no authentication: it only shows that the process runs.
_PUBLIC_PATHS = frozenset({"/healthz"})


class AccessMiddleware:
    """Authenticate every request except ``/healthz``.

    Without tokens the service is for programs on this machine: ``Host`` and ``Origin`` must be loopback, otherwise any
    web page could reach it through a browser (DNS rebinding). With tokens every request needs a valid one. The
    resulting Access is stored in the request's scope.
    """

    def __init__(self, app: ASGIApp, http: HttpSettings) -> None:
        self._app = app
        self._tokens = TokenVerifier(http.tokens) if http.tokens.secret or http.tokens.jwks else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it with an error."""
        if scope["type"] == "http" and scope["path"] not in _PUBLIC_PATHS:
            headers, access = Headers(scope=scope), UNRESTRICTED
            problem: KnowledgeError | None = None
            if self._tokens:
                try:
                    access = self._tokens.access_of(headers.get("authorization", ""))
                except KnowledgeError as error:
                    problem = error
            elif not _is_local(f"//{headers.get('host', '')}") or not _is_local(headers.get("origin") or "//127.0.0.1"):
                problem = KnowledgeError("NonLocalRequest")
            if problem:
                await error_response(problem)(scope, receive, send)
                return
            scope.setdefault("state", {})[_STATE_KEY] = access
        await self._app(scope, receive, send)


def request_access(request: Any) -> Access:
    """Return the access of a request; raise InvalidTokenError if the middleware did not set it."""
    access: object = request.scope.get("state", {}).get(_STATE_KEY) if isinstance(request, Request) else None
    if not isinstance(access, Access):
        raise InvalidTokenError("authentication is required")
    return access


def _is_local(address: str) -> bool:
    try:
        return is_loopback(urlsplit(address).hostname or "")
    except ValueError:
        return False


_MAX_CONNECTIONS = 256


async def serve_http(app: ASGIApp, http: HttpSettings, on_listening: Callable[[int], None]) -> None:
    """Serve until cancelled, then let running requests finish for ``FLUSH_S``.

    ``on_listening`` receives the port. Raises SettingsError if the address cannot be bound.
    """
    listener = Listener(app, lifespan="on", most=_MAX_CONNECTIONS)
    try:
        listening = listening_socket(http.host, http.port)
    except ListenError as error:
        raise SettingsError(f"{str(error)[:1].upper()}{str(error)[1:]}.") from None
    with listening:
        on_listening(listening.getsockname()[1])
        await listener.serve_until_cancelled(listening)
