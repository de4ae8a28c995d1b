"""HTTP transports: Streamable HTTP, and HTTP with SSE.

The SDK hides HTTP errors behind "Server returned an error response", ends every call of a connection when one request
fails, and over SSE never answers a refused call. The HTTP client used here converts a failed request to a JSON-RPC
error response with the HTTP status, so that only this call fails.

Follows MCP 2025-11-25 and 2026-07-28, transports, Streamable HTTP; 2024-11-05, HTTP with SSE; the requests of mcp
2.3.0.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

import anyio

from rkllm_base.json_values import LONG_BYTES
from rkllm_mcp.config.servers import RemoteServer
from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.mcp_client import sdk
from rkllm_mcp.mcp_client.transports.channel import MAX_MESSAGE_BYTES, ChangedStream, messages_in
from rkllm_mcp.mcp_client.transports.long_messages import EVENT_STREAM, LongMessages
from rkllm_mcp.mcp_client.transports.tls import tls_context
from rkllm_mcp.tasks import run_costly

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import ReadStream, TransportStreams
    from mcp.shared.message import SessionMessage

    from rkllm_mcp.mcp_client.transports.channel import Incoming

# Limit of an error response's body.
_MAX_ERROR_BYTES = 65536
# Error codes of JSON-RPC and of the SDK.
_INVALID_REQUEST = -32600
_METHOD_NOT_FOUND = -32601
_INTERNAL_ERROR = -32603
_CONNECTION_CLOSED = -32000

# A request that was refused with 429 and a Retry-After is sent again at most so often, and waits for at most this part
# of the time limit of a call, so that the call ends with the reason and not with the limit.
_MAX_REPEATS = 3
_LONGEST_PAUSE = 0.5
# Refusals with 400 of a session that a server does not know any more; the examples of both SDKs answer so.
_LOST_SESSION = re.compile(
    rb"\b(no valid|invalid|unknown|expired)\b.{0,20}\bsession"
    rb"|\bsession\b.{0,40}\b(not found|invalid|unknown|expired|terminated|closed|does not exist)\b",
    re.IGNORECASE,
)


@asynccontextmanager
async def streamable_http(
    spec: RemoteServer, headers: Mapping[str, str], auth: httpx2.Auth | None, stop_grace_s: float
) -> AsyncGenerator[TransportStreams]:
    """Open the streams of a server behind Streamable HTTP."""
    long = LongMessages()
    # The first byte may take as long as a whole call; the limit of the call expires before this one.
    http = _client(spec, headers, auth, stop_grace_s, long, read_timeout_s=spec.timeout_s + spec.connect_timeout_s)
    async with (
        http,
        sdk.streamable_http.streamable_http_client(
            spec.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES
        ) as (received, write),
    ):
        yield ChangedStream(received, long.restore), write


@asynccontextmanager
async def sse(
    spec: RemoteServer, sent: Mapping[str, str], auth: httpx2.Auth | None, stop_grace_s: float
) -> AsyncGenerator[TransportStreams]:
    """Open the streams of a server behind HTTP with SSE."""
    incoming_send, incoming = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
    long = LongMessages()

    def client(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
        del headers, timeout
        # The event stream may be silent between two calls, so it has no read timeout.
        return _client(spec, sent, auth, stop_grace_s, long, read_timeout_s=None, incoming=incoming_send)

    with incoming_send, incoming:
        async with (
            sdk.sse.sse_client(spec.url, auth=auth, httpx_client_factory=client) as (received, write),
            anyio.create_task_group() as pumps,
        ):
            pumps.start_soon(_pump, ChangedStream(received, long.restore), incoming_send)
            try:
                yield incoming, write
            finally:
                pumps.cancel_scope.cancel()


async def _pump(received: ReadStream[SessionMessage | Exception], incoming: Incoming) -> None:
    with incoming:
        async for item in received:
            try:
                await incoming.send(item)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


def _client(
    spec: RemoteServer,
    headers: Mapping[str, str],
    auth: httpx2.Auth | None,
    stop_grace_s: float,
    long: LongMessages,
    *,
    read_timeout_s: float | None,
    incoming: Incoming | None = None,
) -> httpx2.AsyncClient:
    """Return an HTTP client that converts failed requests to JSON-RPC errors, which ``incoming`` takes over SSE."""
    longest_pause_s = _LONGEST_PAUSE * spec.timeout_s

    class ErrorConvertingClient(sdk.httpx2.AsyncClient):
        async def send(self, request: sdk.httpx2.Request, **settings: Any) -> sdk.httpx2.Response:
            if request.method == "DELETE":
                # Ending a session is optional, so it has a short timeout.
                request.extensions["timeout"] = sdk.httpx2.Timeout(stop_grace_s).as_dict()
            attempt = partial(super().send, request, **settings)
            call = _request_id(request)
            if call is None:
                return long.shorten_events(await _send_in_time(attempt, longest_pause_s))
            try:
                response = await _send_in_time(attempt, longest_pause_s)
                if incoming is None:
                    response = await _mend_response(call, response, long)
            except sdk.httpx2.StreamError as error:
                return await _error_response(request, _error(call, str(error), _INTERNAL_ERROR), incoming)
            except (sdk.httpx2.TransportError, RkllmMcpError, sdk.client_auth.OAuthFlowError) as error:
                kind = {"kind": "unreachable" if isinstance(error, sdk.httpx2.TransportError) else "login"}
                if isinstance(error, sdk.httpx2.TimeoutException):
                    reason = f"it did not answer in time ({type(error).__name__})"
                elif isinstance(error, sdk.httpx2.TransportError):
                    reason = f"it cannot be reached: {str(error) or type(error).__name__}"
                elif isinstance(error, sdk.client_auth.OAuthRegistrationError):
                    remedy = f"configure client_id and redirect_uri for '{spec.name}'"
                    reason = f"dynamic client registration failed; {remedy} ({error})"
                else:
                    is_own = isinstance(error, RkllmMcpError)
                    reason = str(error) if is_own else f"the login to '{spec.name}' failed: {error}"
                failure = _error(call, reason, _CONNECTION_CLOSED, kind)
                return await _error_response(request, failure, incoming)
            if response.status_code == HTTPStatus.NO_CONTENT and incoming is None:
                failure = _error(call, "the server answered a request with 204 No Content", _INTERNAL_ERROR)
                return await _error_response(request, failure, incoming)
            if response.status_code < HTTPStatus.BAD_REQUEST:
                return long.shorten_events(response)
            error = await _refusal(call, response, has_session="mcp-session-id" in request.headers)
            return await _error_response(request, error, incoming, response.status_code)

    timeout = sdk.httpx2.Timeout(spec.connect_timeout_s, read=read_timeout_s)
    verify = tls_context(spec.ca_file) if spec.ca_file else True
    hooks = {"response": [_keep_tls]}
    return ErrorConvertingClient(headers=dict(headers), timeout=timeout, auth=auth, verify=verify, event_hooks=hooks)


async def _send_in_time(attempt: Callable[[], Awaitable[httpx2.Response]], longest_pause_s: float) -> httpx2.Response:
    """Send a request, and again after the time that a 429 names."""
    response = await attempt()
    for _ in range(_MAX_REPEATS):
        pause_s = _retry_after_s(response)
        if pause_s is None or pause_s > longest_pause_s:
            break
        await response.aclose()
        await anyio.sleep(pause_s)
        response = await attempt()
    return response


async def _keep_tls(response: httpx2.Response) -> None:
    """Let a redirect on the same host keep its https: a server behind a TLS proxy does not know of it."""
    if not response.has_redirect_location:
        return
    url = response.request.url
    target = url.join(response.headers["location"])
    if (url.scheme, target.scheme, target.host) == ("https", "http", url.host) and target.port in (None, url.port):
        response.headers["location"] = str(target.copy_with(scheme="https", port=url.port))


def _retry_after_s(response: httpx2.Response) -> float | None:
    """Return the seconds after which a request that was refused with 429 may be sent again; None for any other."""
    value = response.headers.get("retry-after", "") if response.status_code == HTTPStatus.TOO_MANY_REQUESTS else ""
    if value.isdecimal():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
        return max(0.0, (moment - datetime.now(timezone.utc)).total_seconds())
    except (ValueError, TypeError):
        # No date, or one without a zone.
        return None


def _request_id(request: httpx2.Request) -> str | int | None:
    """Return the id of the JSON-RPC request in an HTTP request; None for notifications and other requests."""
    if request.method != "POST" or not request.headers.get("content-type", "").startswith("application/json"):
        return None
    try:
        message: Any = json.loads(request.content)
    except (ValueError, RuntimeError):
        return None
    if not isinstance(message, dict) or "method" not in message:
        return None
    request_id = cast("dict[str, Any]", message).get("id")
    return request_id if isinstance(request_id, (str, int)) else None


async def _error_response(
    request: httpx2.Request, error: dict[str, Any], incoming: Incoming | None, status: int = HTTPStatus.BAD_GATEWAY
) -> httpx2.Response:
    """Return the response that makes the SDK raise ``error`` in the caller."""
    if incoming is None:
        return sdk.httpx2.Response(status, json=error, request=request)
    # Over SSE, answers arrive on the event stream; an HTTP error on this request would end the session.
    for message in messages_in(json.dumps(error)):
        await incoming.send(message)
    return sdk.httpx2.Response(HTTPStatus.ACCEPTED, request=request)


async def _refusal(call: str | int, response: httpx2.Response, *, has_session: bool) -> dict[str, Any]:
    """Return the JSON-RPC error for an HTTP error: the server's own if it sent one."""
    body = b""
    try:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > _MAX_ERROR_BYTES:
                break
    except (sdk.httpx2.HTTPError, sdk.httpx2.StreamError):
        pass
    finally:
        await response.aclose()
    error: dict[str, Any] | None = None
    with suppress(ValueError, TypeError, KeyError, RecursionError):
        stated: Any = json.loads(body)["error"]
        error = cast("dict[str, Any]", stated) if isinstance(stated["code"], int) else None
    status = response.status_code
    is_method = error is not None and error["code"] == _METHOD_NOT_FOUND
    is_unknown = status == HTTPStatus.NOT_FOUND and not is_method
    if has_session and (is_unknown or (status == HTTPStatus.BAD_REQUEST and _LOST_SESSION.search(body))):
        return _error(call, "Session terminated", _INVALID_REQUEST, {"httpStatus": status})
    if error is None:
        message = f"HTTP {status} {response.reason_phrase}".strip()
        if (pause_s := _retry_after_s(response)) is not None:
            message = f"{message}; it may be tried again in {math.ceil(pause_s)} s"
        # Without a session a 404 is a method that the server does not know.
        code = _METHOD_NOT_FOUND if status == HTTPStatus.NOT_FOUND else _INTERNAL_ERROR
        return _error(call, message, code, {"httpStatus": status})
    data: Any = error.get("data")
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        details = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
        data = {**details, "httpStatus": status}
    return _error(call, str(error.get("message", "")), error["code"], data)


def _error(call: str | int, message: str, code: int, data: Any = None) -> dict[str, Any]:
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    return {"jsonrpc": "2.0", "id": call, "error": error}


# How an event stream begins.
_EVENT_FIELDS = (b"event:", b"data:", b"id:", b"retry:", b":")


async def _mend_response(call: str | int, response: httpx2.Response, long: LongMessages) -> httpx2.Response:
    """Return a response to a request in the form that the SDK reads; one that it refuses with a reason stays as it is.

    A list around the message, a missing Content-Type and what ``messages_in`` repairs are read; the size is limited.
    """
    kind = response.headers.get("content-type", "").lower()
    if response.status_code != HTTPStatus.OK or (kind and not kind.startswith("application/json")):
        return response
    body = bytearray()
    try:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_MESSAGE_BYTES:
                raise sdk.httpx2.StreamError(f"the response has more than {MAX_MESSAGE_BYTES // 1024**2} MB")
    finally:
        await response.aclose()
    headers = {k: v for k, v in response.headers.items() if k not in ("content-encoding", "content-length")}
    headers["content-type"] = "application/json"
    content = bytes(body)
    if not kind and content.lstrip().startswith(_EVENT_FIELDS):
        headers["content-type"] = EVENT_STREAM
    elif len(content) <= LONG_BYTES:
        mended = _own_response(call, content)
        content = (
            content if mended is None else mended.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        )
    elif (mended := await run_costly(_own_response, call, content)) is not None:
        content = long.shorten(mended)
    else:
        content = json.dumps(_error(call, "the response cannot be read", _INTERNAL_ERROR)).encode()
    return sdk.httpx2.Response(response.status_code, headers=headers, content=content, request=response.request)


def _own_response(call: str | int, content: bytes) -> SessionMessage | None:
    """Return the response to a request in a body; None if it has none."""
    for item in messages_in(content):
        message = item.message
        if isinstance(message, (sdk.types.JSONRPCResponse, sdk.types.JSONRPCError)) and str(message.id) == str(call):
            message.id = call
            return item
    return None
