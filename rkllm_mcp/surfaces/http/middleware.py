"""What every request passes before its route, and every answer after it: one plain ASGI wrapper.

    request ─▶ id ─▶ Host, Origin ─▶ preflight ─▶ key ─▶ route ─▶ security headers, CORS headers, id ─▶ log

A slash too many in the path makes no other address of it. Refusals are in OpenAI's shape like any route's. The log has
method, path, status and time; no header, no query, no body.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from rkllm_base.addresses import is_loopback
from rkllm_mcp.config.secrets import CONFIGURED, DEVICE_PREFIX, matches
from rkllm_mcp.config.section import Right
from rkllm_mcp.config.sections import RIGHTS, Config
from rkllm_mcp.errors import ModelExchangeError, StoreError
from rkllm_mcp.surfaces.http.admission import HeldBody
from rkllm_mcp.surfaces.http.errors import HEADER, REQUEST_ID, HTTPError, begin_request, response_to
from rkllm_mcp.surfaces.http.metrics import set_response
from rkllm_mcp.surfaces.http.state import HELD_BODY, OWNER, SERVER_SEND, ServiceState
from rkllm_mcp.surfaces.invitations import is_board
from rkllm_mcp.surfaces.invocation import RefusalLog
from rkllm_mcp.text import language_of_header

_KEY_HEADERS = ("x-api-key", "api-key")
# The label of a key that a device got for a code, which only the owner makes in a terminal.
LINKED_DEVICE = "device "
# The label of the key that commands of this user read from the state folder; see surfaces.running_service.
TERMINAL = "terminal"
# The label of a key that was made for a program.
PROGRAM = "program "
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Principal:
    """An authenticated caller."""

    tenant: str  # name; empty for the owner
    key: str  # label of the key, which does not reveal it; empty without a key
    rights: tuple[Right, ...] = RIGHTS
    parent: str = ""  # of the keys that it makes: id of its device, or name of its entry in the configuration
    is_own: bool = False  # the owner's own key, or a device that the owner linked; no key for a program
    recalls: bool = False  # the memory is recalled for requests that send the whole conversation


async def principal_of(headers: Mapping[str, str], service: ServiceState) -> Principal:
    """Authenticate a request by its headers; an HTTPError 401 without a known key."""
    config, key = service.config, _key(headers)
    if service.terminal_key and secrets.compare_digest(key.encode(), service.terminal_key.encode()):
        return Principal(OWNER, TERMINAL, is_own=True)
    device = None
    if key.startswith(DEVICE_PREFIX):
        device = await service.tenants.tenant(OWNER).app.store.devices.find(key)
    if device is not None:
        # Those that the key of the configuration has that it comes from; none if that is gone.
        above: Sequence[Right] = RIGHTS
        if device.parent:
            entries = config.service.owner_keys()
            above = next((kept for entry, kept in entries if _name_of(entry) == device.parent), ())
        given = device.rights or RIGHTS
        remaining: tuple[Right, ...] = tuple(right for right in RIGHTS if right in given and right in above)
        if device.rights and remaining:
            return Principal(OWNER, f"{PROGRAM}{device.id}", remaining, device.id)
        if remaining:
            return Principal(OWNER, f"{LINKED_DEVICE}{device.id}", remaining, device.id, is_own=remaining == RIGHTS)
    if not config.key_entries:
        return Principal(OWNER, "", is_own=True)
    if not key:
        raise HTTPError(401, "a key is required; send it as 'Authorization: Bearer KEY'")
    keys = enumerate(config.service.owner_keys())
    recalling = {key.key for key in config.service.keys if key.memory}
    principals = [
        (
            Principal(
                OWNER,
                f"owner {number}",
                rights,
                _name_of(entry),
                is_own=set(RIGHTS) <= set(rights),
                recalls=entry in recalling,
            ),
            entry,
        )
        for number, (entry, rights) in keys
    ]
    for tenant in config.tenants:
        granted: dict[Right, bool] = {"approve": tenant.may_approve is not False, "write": tenant.may_write}
        rights: tuple[Right, ...] = tuple(right for right in RIGHTS if granted.get(right, True))
        principals.append((Principal(tenant.name, f"tenant {tenant.name}", rights), tenant.api_key))
    # All of them, whichever it is: the time tells nothing.
    callers = [caller for caller, entry in principals if matches(key, entry)]
    if not callers:
        raise HTTPError(401, "the key is not known here; 'rkllm-mcp config add-key' makes one")
    return callers[0]


def _name_of(entry: str) -> str:
    """Return the name of a key of the configuration as the parent of others; it does not reveal the key."""
    return f"{CONFIGURED}{hashlib.sha256(entry.encode('utf-8', 'replace')).hexdigest()[:16]}"


def _key(headers: Mapping[str, str]) -> str:
    kind, _, token = headers.get("authorization", "").strip().partition(" ")
    if kind.lower() == "bearer" and token.strip():
        return token.strip()
    key = next((headers[name].strip() for name in _KEY_HEADERS if headers.get(name)), "")
    if not key and kind.lower() == "basic":
        # The key of a program that takes nothing but an address, as in http://me:KEY@board:8080.
        with suppress(binascii.Error, UnicodeDecodeError):
            return base64.b64decode(token.strip(), validate=True).decode().partition(":")[2]
    return key


def check_host(headers: Mapping[str, str], config: Config) -> None:
    """Refuse foreign Host names with 403 if no key protects the service.

    A web page can resolve its own name to 127.0.0.1 (DNS rebinding) and so reach local services; it cannot choose the
    Host header. With a key it gains nothing.
    """
    service = config.service
    host = headers.get("host", "").lower()
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        name = None
    allowed = {allowed_host.lower() for allowed_host in service.allowed_hosts}
    is_allowed = name in allowed or host in allowed or (not allowed and bool(config.key_entries))
    if is_allowed or (name is not None and (is_loopback(name) or name == service.host.lower())):
        return
    raise HTTPError(403, f"{host or 'no name'} is not a name of this board; add it to allowed_hosts in [service]")


def allowed_origin(headers: Mapping[str, str], config: Config) -> str | None:
    """Return the origin of the page that sends a request, None without one; a foreign page is refused with 403."""
    origin = headers.get("origin")
    if origin is None or origin in config.service.cors or "*" in config.service.cors:
        return origin
    # The page of this service has its scheme, host and port.
    with suppress(ValueError):
        there, here = urlsplit(origin), urlsplit(f"//{headers.get('host', '')}")
        default = _DEFAULT_PORTS.get(there.scheme)
        is_same = (there.hostname, there.port or default) == (here.hostname, here.port or default)
        if is_same and default is not None:
            return origin
    raise HTTPError(403, f"pages of {origin} may not use this board; add it to cors in [service]")


logger = logging.getLogger("rkllm_mcp.access")

# For the page: no foreign sources, no inline code, no framing. It has no effect on JSON.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SECURITY = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(self)",
}
_EXPOSED = "X-Conversation-Id, X-Request-Id, X-Model, X-Board, Idempotent-Replayed, Retry-After"
_METHODS = "GET, HEAD, POST, PATCH, DELETE, OPTIONS"
_COUNTED_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_USUAL_HEADERS = "Authorization, Content-Type, Idempotency-Key, X-Api-Key, X-Request-Id"
# The page's files, which need no key.
_PAGE = "/static/"
# How long a browser may remember a preflight, seconds.
_PREFLIGHT_S = "600"

# What boards ask each other.
_OF_BOARDS = frozenset({"/readyz", "/v1/board", "/v1/models", "/api/tags"})

# Key of the scope for the declared route of a request, once it is known.
ROUTE = "rkllm_mcp.route"


class RequestMiddleware:
    """Middleware before the application: request id, Host, Origin, keys, CORS, headers and access log."""

    def __init__(self, app: Starlette, service: ServiceState, open_paths: Collection[str]) -> None:
        self._app = app
        self._service = service
        self._open_paths = frozenset(open_paths)
        # Level error: visible without a log, since a client may be guessing keys.
        self._refusals = RefusalLog(logging.getLogger("rkllm_mcp.refusals").error)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        # The router alone: Starlette's own answers to errors have another shape, and the gate has all of ours.
        scope["app"] = self._app
        if scope["type"] != "http":
            await self._app.router(scope, receive, send)
            return
        if not scope["path"].startswith(_PAGE):
            # A base address that ends in a slash makes slashes too many.
            scope["path"] = re.sub(r"/{2,}", "/", scope["path"]).rstrip("/") or "/"
        headers = Headers(scope=scope)
        begin_request(headers.get(HEADER, ""), headers.get("traceparent", ""))
        # A client may call its method anything, and every name that is counted is kept.
        method = scope["method"] if scope["method"] in _COUNTED_METHODS else "_OTHER"
        # A path cannot write lines of its own into a log.
        path = scope["path"].encode("unicode_escape").decode("ascii")[:200]
        origin: str | None = None
        started, status = time.monotonic(), 0

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                answer_headers = MutableHeaders(scope=message)
                answer_headers[HEADER] = REQUEST_ID.get()
                for name, value in _SECURITY.items():
                    answer_headers.setdefault(name, value)
                # Replies are private to the caller; the page's files are revalidated each time.
                caching = "no-cache" if scope["path"].startswith(_PAGE) else "no-store"
                answer_headers.setdefault("Cache-Control", caching)
                answer_headers.add_vary_header("Origin")
                if origin is not None:
                    answer_headers["Access-Control-Allow-Origin"] = origin
                    answer_headers["Access-Control-Expose-Headers"] = _EXPOSED
            await send(message)

        with self._service.traces.request(method, headers) as span:
            try:
                check_host(headers, self._service.config)
                origin = allowed_origin(headers, self._service.config)
                if origin is not None and "access-control-request-method" in headers and scope["method"] == "OPTIONS":
                    await _preflight(headers)(scope, receive, send_counted)
                    return
                caller = await self._caller(scope["method"], scope["path"], headers)
                scope["state"] = {**scope.get("state", {}), **vars(caller)}
                scope[SERVER_SEND] = send
                if not caller.key:
                    await self._app.router(scope, receive, send_counted)
                    return
                is_good = partial(self._has_rights_of, caller, headers)
                scope["state"]["while_good"] = partial(self._service.open_keys.ending, _key(headers), is_good)
                with self._service.open_keys.ending(_key(headers), is_good) as good:
                    await self._app.router(scope, receive, send_counted)
                if good.cancelled_caught:
                    await self._end_revoked(scope, receive, send_counted, has_begun=status > 0)
            except Exception as error:  # noqa: BLE001  # whatever it is, the client is told, or the log
                if isinstance(error, HTTPError) and (error.status == 403 or (error.status == 401 and _key(headers))):
                    self._refusals.note((scope.get("client") or [""])[0], f"{error.status} at {path}")
                language = language_of_header(headers.get("accept-language", "")) or "en"
                response = response_to(error, scope["path"], language, scope["method"])
                if not status:
                    await response(scope, receive, send_counted)
            finally:
                held_body: HeldBody | None = scope.get(HELD_BODY)
                if held_body is not None:
                    held_body.shrink(0)
                took_s, route = time.monotonic() - started, scope.get(ROUTE, "")
                figures = {"method": scope["method"], "path": path, "status": status, "seconds": round(took_s, 4)}
                line = "%s %s %d %.0f ms"
                logger.info(line, scope["method"], path, status, took_s * 1000, extra={"fields": figures})
                self._service.metrics.count_request(method, route, status, took_s)
                set_response(span, method, route, status)

    async def _caller(self, method: str, path: str, headers: Headers) -> Principal:
        secret = self._service.config.service.boards_secret
        is_asked = secret is not None and method == "GET" and path in _OF_BOARDS
        if is_asked and is_board(headers.get("authorization", ""), secret or "", path):
            return Principal(OWNER, "", ("chat",))
        try:
            return await principal_of(headers, self._service)
        except (HTTPError, ModelExchangeError):
            if path in self._open_paths or path.startswith(_PAGE):
                return Principal("", "")
            raise

    async def _end_revoked(self, scope: Scope, receive: Receive, send: Send, *, has_begun: bool) -> None:
        if not has_begun:
            await response_to(HTTPError(401, "the key was revoked"), scope["path"])(scope, receive, send)
            return
        # A body whose length was announced cannot be ended before; the server closes the connection then.
        with suppress(Exception):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _has_rights_of(self, caller: Principal, headers: Headers) -> bool:
        """Return True if a request would still be admitted, with all rights that its caller had."""
        try:
            now = await principal_of(headers, self._service)
        except HTTPError:
            return False
        except (ModelExchangeError, StoreError):
            return True
        return now.tenant == caller.tenant and set(now.rights) >= set(caller.rights)


def _preflight(headers: Headers) -> Response:
    response = Response(status_code=204)
    response.headers["Access-Control-Allow-Methods"] = _METHODS
    response.headers["Access-Control-Allow-Headers"] = headers.get("access-control-request-headers", _USUAL_HEADERS)
    response.headers["Access-Control-Max-Age"] = _PREFLIGHT_S
    if headers.get("access-control-request-private-network") == "true":
        response.headers["Access-Control-Allow-Private-Network"] = "true"
    response.headers["Vary"] = "Access-Control-Request-Headers"
    return response
