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
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE, TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from mcp_servers.knowledge.arguments import Arguments
from mcp_servers.knowledge.door import Door, access_of_request
from mcp_servers.knowledge.problems import BadArgumentError, KnowledgeProblem
from mcp_servers.knowledge.server import create_server
from mcp_servers.knowledge.service import Service
from mcp_servers.knowledge.settings import HttpSettings
from mcp_servers.knowledge.tools import BY_NAME, Caller

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
