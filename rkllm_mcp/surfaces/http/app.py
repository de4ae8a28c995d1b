"""The ASGI application: route table, middleware, and one error shape.

It opens no resources, so a test can call it without a socket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp

from rkllm_mcp.surfaces.http import (
    approvals,
    audio,
    board,
    boards,
    completions,
    conversations,
    devices,
    execute,
    memory,
    model_catalogue,
    models,
    ollama,
    openai,
    openapi,
    page,
    person,
    resources,
    schedules,
    servers,
    tools,
)
from rkllm_mcp.surfaces.http.middleware import ROUTE, RequestMiddleware
from rkllm_mcp.surfaces.http.rights import TABLE, Row, check_rights
from rkllm_mcp.surfaces.http.route import Route

if TYPE_CHECKING:
    from rkllm_mcp.surfaces.http.state import ServiceState

_MODULES = (
    completions,
    models,
    model_catalogue,
    openai,
    audio,
    ollama,
    execute,
    conversations,
    schedules,
    tools,
    servers,
    approvals,
    devices,
    resources,
    board,
    boards,
    person,
    memory,
    openapi,
    page,
)
# Every route that one of these modules declares.
ROUTES = tuple(route for module in _MODULES for route in vars(module).values() if isinstance(route, Route))


def create_app(
    service: ServiceState, routes: Sequence[Route] = ROUTES, rights: Mapping[tuple[str, str], Row] = TABLE
) -> ASGIApp:
    """Return the application of ``service``: its routes, which ask the rights of their rows, and the page's files."""
    paths: dict[str, dict[str, Route]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method] = route
    # One entry for each path, so that a 405 names every method of it; fixed paths before those with parameters.
    entries: list[BaseRoute] = []
    for path in sorted(paths, key=lambda path: path.count("{")):
        entry = StarletteRoute(path, partial(_dispatch, path, paths[path], rights), methods=list(paths[path]))
        if "{" not in path:
            # It takes every method and refuses those that it has not, before a path with parameters is asked.
            entry.methods = None
        entries.append(entry)
    app = Starlette(routes=[*entries, page.FILES])
    # The gate has taken off what is too many: a redirect would lose the body of a POST in many clients.
    app.router.redirect_slashes = False
    app.state.service = service
    app.state.routes = tuple(routes)
    return RequestMiddleware(app, service, [route.path for route in routes if route.is_open])


async def _dispatch(
    path: str, methods: Mapping[str, Route], rights: Mapping[tuple[str, str], Row], request: Request
) -> Response:
    request.scope[ROUTE] = path
    method = "GET" if request.method == "HEAD" and "GET" in methods else request.method
    if method not in methods:
        allowed = {*methods, "HEAD"} if "GET" in methods else {*methods}
        raise HTTPException(405, headers={"Allow": ", ".join(sorted(allowed))})
    check_rights(rights, method, path, request.state.rights)
    route = methods[method]
    reply = await route.handler(request)
    if isinstance(reply, Response):
        return reply
    # A body becomes JSON with the status of the first answer, None an empty reply.
    status = route.answers[0].status
    if reply is None:
        return Response(status_code=status)
    return JSONResponse(reply.model_dump(mode="json") if isinstance(reply, BaseModel) else reply, status)
