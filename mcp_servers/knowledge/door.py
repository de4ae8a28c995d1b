"""Who is let in over HTTP: every request passes here before anything reads it.

Without tokens the service is for programs of this machine: the request has to name a loopback host, and come from no
page of another one, or any web page could reach it through its visitor's browser. With tokens every request has to
bring one, and what it says is kept with the request.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_servers.knowledge.access import TokenReader
from mcp_servers.knowledge.problems import InvalidTokenError, KnowledgeProblem
from mcp_servers.knowledge.settings import HttpSettings, is_loopback
from mcp_servers.knowledge.values import EVERYONE, Access

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
