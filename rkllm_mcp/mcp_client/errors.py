"""Convert exceptions of the SDK, the system and the network to one sentence.

Covers ``mcp.Client`` 2.3.0: ``MCPError``, ``RuntimeError`` (a result that violates its schema), ``ValidationError``,
exception groups of them, ``OSError``, and the errors of httpx2.
"""

from __future__ import annotations

import shlex
from typing import Any, Literal, TypeAlias, cast

from pydantic import ValidationError

from rkllm_mcp.config.header_templates import placeholders
from rkllm_mcp.config.secrets import redacted_arguments, redacted_text
from rkllm_mcp.config.servers import MCPServerConfig, RemoteServer, StdioServer
from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.events import to_json
from rkllm_mcp.mcp_client import sdk
from rkllm_mcp.tasks import first_exception
from rkllm_mcp.text import first_line, shorten

_CLOSED = "Connection closed"  # the message of the SDK
_UNAUTHORIZED, _FORBIDDEN = 401, 403
_REFUSALS = (_UNAUTHORIZED, _FORBIDDEN)
_SERVER_ERRORS = 500
_MAX_CHARS = 400
_MAX_COMMAND_CHARS = 120


def is_connection_closed(error: BaseException) -> bool:
    """Return True if the connection failed, not the call: the server is gone, or a legacy HTTP session expired."""
    error = first_exception(error)
    if isinstance(error, sdk.mcp.MCPError):
        return has_hung_up(error) or is_session_lost(error)
    library = type(error).__module__.split(".")[0]
    return isinstance(error, (ConnectionError, EOFError)) or library in ("anyio", "httpx2", "httpcore2")


def has_hung_up(error: BaseException) -> bool:
    """Return True if the server closed an established connection instead of answering."""
    error = first_exception(error)
    if not isinstance(error, sdk.mcp.MCPError) or error.error.code != sdk.types.CONNECTION_CLOSED:
        return False
    # Servers use the same code, -32000, for errors of their own.
    return error.error.message == _CLOSED or _data(error).get("kind") in ("unreachable", "login")


def is_session_lost(error: BaseException) -> bool:
    """Return True if a server of 2025-11-25 or older has dropped the session; the request was not executed."""
    error = first_exception(error)
    message = error.error.message.lower() if isinstance(error, sdk.mcp.MCPError) else ""
    return "session not found" in message or "session terminated" in message


def http_status(error: BaseException) -> int:
    """Return the HTTP status of a refused request; 0 for other errors."""
    status = _data(error).get("httpStatus")
    return status if isinstance(status, int) else int(getattr(first_exception(error), "status", 0))


def _data(error: BaseException) -> dict[str, Any]:
    """Return the data of a JSON-RPC error; empty without any."""
    error = first_exception(error)
    data: Any = error.error.data if isinstance(error, sdk.mcp.MCPError) else None
    return cast("dict[str, Any]", data) if isinstance(data, dict) else {}


def may_be_an_older_server(error: BaseException | None) -> bool:
    """Return True if a failed Streamable HTTP handshake looks like a server that only supports HTTP with SSE.

    It answers the POST with an error about the request itself, not about keys, limits or internal failures.
    """
    if error is None:
        return False
    error = first_exception(error)
    is_not_found = isinstance(error, sdk.mcp.MCPError) and error.error.code == sdk.types.METHOD_NOT_FOUND
    return is_not_found or http_status(error) in (400, 404, 405, 406, 410, 415, 422, 501)


def call_failure(spec: MCPServerConfig, error: Exception) -> str:
    """Return a sentence for the model about a failed call."""
    error_leaf = first_exception(error)
    status = http_status(error_leaf)
    if status in _REFUSALS:
        return f"The server refused the call (HTTP {status}): {_refusal(spec, status)}."
    if isinstance(error_leaf, sdk.mcp.MCPError):
        sentence = f"The call failed: {_detail(error_leaf)} (code {error_leaf.error.code})."
        # What its data says, such as the argument that is wrong.
        data: Any = error_leaf.error.data
        if isinstance(data, dict):
            data = {key: value for key, value in cast("dict[str, Any]", data).items() if key not in _HIDDEN_DATA}
        if data in (None, "", {}, []):
            return sentence
        return f"{sentence} Details: {shorten(data if isinstance(data, str) else to_json(data), _MAX_CHARS)}"
    if isinstance(error_leaf, ValidationError):
        return "The server's result is not valid MCP; report this to its author, or answer without it."
    return f"The call failed: {_detail(error_leaf)}"


# Data that the host itself adds to an error, and addresses that a person visits: they are not for the model.
_HIDDEN_DATA = frozenset({"httpStatus", "kind", "elicitations"})


def connect_failure(spec: MCPServerConfig, error: BaseException, ending: str) -> str:
    """Return a sentence for the user about a failed connection, with the remedy; ``ending`` is that of its process."""
    error = first_exception(error)
    if isinstance(error, RkllmMcpError):
        return str(error)
    if isinstance(spec, StdioServer):
        if ending:
            return f"it {ending} before it was ready; run {_command(spec)} in a terminal to see why"
        if isinstance(error, FileNotFoundError):
            if spec.folder is not None and error.filename == spec.folder:
                return f"the folder {spec.folder!r} does not exist; create it, or correct the server's cwd"
            missing = spec.command if error.filename in (spec.command, None) else str(error.filename)
            return f"{missing!r} was not found; install it, or correct the server's command, PATH or cwd"
        if isinstance(error, (OSError, ValueError)):
            reason = shorten(first_line(str(error)), _MAX_CHARS)
            return f"{spec.command!r} cannot be started: {reason}; correct the server's command, args, env or cwd"
        return f"the handshake failed: {_detail(error)}; check that {_command(spec)} is an MCP server"
    status = http_status(error)
    if status in _REFUSALS:
        return f"the server refused the connection (HTTP {status}): {_refusal(spec, status)}"
    where = redacted_text(spec.url)
    return f"{where} cannot be used: {_detail(error)}; check the URL, the headers and that the server runs"


# Kinds of failed connections that a person can mend in different ways; empty for all others.
FailureKind: TypeAlias = Literal["", "slow", "login", "key", "unreachable", "not_mcp"]


def failure_kind(spec: MCPServerConfig, error: BaseException | None) -> FailureKind:
    """Return the kind of a failed connection; ``error`` is None if it was not ready in time."""
    if error is None:
        return "slow"
    if isinstance(spec, StdioServer):
        return ""
    status = http_status(error)
    if status in _REFUSALS:
        return "key" if spec.auth == "none" else "login"
    kind = _data(error).get("kind", "")
    return kind or ("" if status >= _SERVER_ERRORS else "not_mcp")


def _refusal(spec: MCPServerConfig, status: int) -> str:
    """Return the meaning of a 401 or 403 for this server, with the remedy."""
    template = {} if isinstance(spec, StdioServer) else spec.headers_template
    if isinstance(spec, RemoteServer) and spec.auth != "none":
        problem = "the login is missing or has expired" if status == _UNAUTHORIZED else "the login does not allow this"
        return f"{problem}; log in again with 'rkllm-mcp servers test {spec.name}' in a terminal"
    names = ", ".join(f"'{name}'" for value in template.values() for name in placeholders(value))
    if names:
        problem = "is missing, wrong or has expired" if status == _UNAUTHORIZED else "does not allow this"
        return f"the token {names} {problem}; send a valid one with the request"
    problem = "the key is missing or not valid" if status == _UNAUTHORIZED else "the key does not allow this"
    return f"{problem}; correct headers_template of server '{spec.name}'"


def _detail(error: BaseException) -> str:
    message = error.error.message if isinstance(error, sdk.mcp.MCPError) else str(error)
    return shorten(first_line(message), _MAX_CHARS) or type(error).__name__


def _command(spec: StdioServer) -> str:
    # Quoted for the shell, so that it can be pasted; a command that contains quotes is not quoted again.
    line = shlex.join((spec.command, *redacted_arguments(spec.args)))
    return f"'{line}'" if "'" not in line and len(line) <= _MAX_COMMAND_CHARS else "its command"
