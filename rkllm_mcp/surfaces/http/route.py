"""The declaration of a route, which the application serves and ``openapi`` publishes.

    @Route("GET", "/v1/me", answers=(RouteResponse(Me),))
    async def me(request: Request) -> Me:
        \"\"\"The caller, and what the page needs to know first.\"\"\"

A handler returns the body of its reply, or a whole ``Response``, and raises ``errors.HTTPError``. Path parameters are
in braces (``/v1/tools/{name}:call``). Replies that every route may give are not declared here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

Handler: TypeAlias = Callable[[Request], Awaitable[object]]
Method: TypeAlias = Literal["GET", "POST", "PATCH", "PUT", "DELETE"]

JSON = "application/json"
EVENT_STREAM = "text/event-stream"
NDJSON = "application/x-ndjson"


@dataclass(frozen=True)
class RouteResponse:
    """A successful reply of a route."""

    model: Any = None  # the body, or one record of a stream; None where it is not JSON, or nothing
    status: int = 200  # the HTTP status
    media: str = JSON  # the content type
    says: str = "Done."  # one sentence
    headers: tuple[tuple[str, str], ...] = ()  # headers that belong to it, and what each says


def shown(model: type[BaseModel], value: object, /, **fields: Any) -> dict[str, Any]:
    """Return the fields of a response model: those that are given, the others from the attributes of ``value``."""
    return {name: fields[name] if name in fields else getattr(value, name) for name in model.model_fields}


async def _no_handler(request: Request) -> Response:
    raise NotImplementedError(request.url.path)


@dataclass(frozen=True)
class Route:
    """One path and method: a decorator of its handler, whose docstring begins with the summary."""

    method: Method  # the HTTP method; HEAD comes with GET
    path: str  # with parameters in braces
    body: type[BaseModel] | None = None  # what a request brings as JSON, read with ``bodies.read``
    body_media: str = JSON  # its content type, if it is another one
    query: type[BaseModel] | None = None  # what the address may bring, read with ``bodies.query``
    # what comes back; several with one status differ in their ``media``
    answers: tuple[RouteResponse, ...] = (RouteResponse(),)
    problems: tuple[int, ...] = ()  # the statuses that it may refuse with, in addition to those that every route may
    is_open: bool = False  # no key is needed
    handler: Handler = _no_handler

    def __call__(self, handler: Handler) -> Route:
        """Return the route with its handler."""
        return replace(self, handler=handler)
