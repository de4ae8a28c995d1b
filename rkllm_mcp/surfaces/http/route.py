"""What a route is: one declaration that the application runs and ``openapi`` publishes.

    ROUTES = (Route("POST", "/v1/embeddings", embed, "Turn texts into vectors", body=Wish, answers=(Answer(Vectors),)),)

A handler is ``async (Request) -> Response``; whatever it cannot do it raises as a ``problems.Problem``. A path writes
its parameters in braces (``/v1/tools/{name}:call``). Everything else that an answer may be, from the wrong key to a
broken machine, is the same for all routes and is added by whoever reads the declarations.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
Method: TypeAlias = Literal["GET", "POST", "PATCH", "PUT", "DELETE"]

JSON = "application/json"
EVENT_STREAM = "text/event-stream"
NDJSON = "application/x-ndjson"


@dataclass(frozen=True)
class Link:
    """Where an answer leads: something in it is a parameter of another route.

    Args:
        method: the other route's method.
        path: the other route's path.
        parameter: its parameter, or the field of its body.
        found: where that stands in the answer, as OpenAPI's runtime expressions say it (``$response.body#/id``).
        in_body: it is a field of the body.
    """

    method: Method
    path: str
    parameter: str
    found: str
    in_body: bool = False


@dataclass(frozen=True)
class RouteResponse:
    """What a route answers when all is well.

    Args:
        model: the body, or one record of a stream; None where it is no JSON, or nothing.
        status: the HTTP status.
        media: the content type.
        says: one sentence.
        headers: headers that belong to it, and what each says.
        links: where it leads.
    """

    model: Any = None
    status: int = 200
    media: str = JSON
    says: str = "Done."
    headers: tuple[tuple[str, str], ...] = ()
    links: tuple[Link, ...] = ()


@dataclass(frozen=True)
class Route:
    """One path and method.

    Args:
        method: the HTTP method; HEAD comes with GET.
        path: with parameters in braces.
        handler: answers a request.
        summary: what it does, in a few words.
        body: what a request brings as JSON, read with ``bodies.read``.
        query: what the address may bring, read with ``bodies.query``.
        answers: what comes back; several with one status differ in their ``media``.
        problems: the statuses that it may refuse with, besides those that every route may.
        is_open: no key is needed.
        takes_any_type: the body is JSON whatever its Content-Type says.
    """

    method: Method
    path: str
    handler: Handler
    summary: str
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    answers: tuple[RouteResponse, ...] = (RouteResponse(),)
    problems: tuple[int, ...] = ()
    is_open: bool = False
    takes_any_type: bool = False
