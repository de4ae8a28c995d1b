"""Whatever the SDK, the system or the network raises becomes one clear sentence.

Followed: what ``mcp.Client`` 2.3.0 raises around a connection and a call: ``MCPError``, ``RuntimeError`` (a result that
    breaks its schema), ``ValidationError``, groups of them, ``OSError``, and the errors of httpx2.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.tools.servers import ServerSpec
from rkllm_mcp.tools.tokens import placeholders

if TYPE_CHECKING:
    from mcp import MCPError

_UNAUTHORIZED, _FORBIDDEN = 401, 403
_REFUSALS = (_UNAUTHORIZED, _FORBIDDEN)
_MAX_CHARS = 400
_MAX_COMMAND_CHARS = 120


def leaf(error: BaseException) -> BaseException:
    """The first error inside nested groups."""
    # By attribute: the class of groups is built in since Python 3.11 and comes from a backport before.
    inner = cast("tuple[BaseException, ...]", getattr(error, "exceptions", ()))
    return leaf(inner[0]) if inner else error


def is_connection_closed(error: BaseException) -> bool:
    """Whether the connection, not the call, has failed: the server is gone, or a legacy HTTP session is."""
    from mcp_types import CONNECTION_CLOSED

    error = leaf(error)
    if _is_mcp_error(error):
        return error.error.code == CONNECTION_CLOSED or is_session_lost(error)
    return isinstance(error, (ConnectionError, EOFError)) or type(error).__module__.split(".")[0] in (
        "anyio",
        "httpx2",
        "httpcore2",
    )


def has_hung_up(error: BaseException) -> bool:
    """Whether the server has ended a connection that there was, instead of an answer."""
    from mcp_types import CONNECTION_CLOSED

    error = leaf(error)
    return _is_mcp_error(error) and error.error.code == CONNECTION_CLOSED


def is_session_lost(error: BaseException) -> bool:
    """Whether a server of 2025-11-25 or before has forgotten the session; it has run nothing then."""
    error = leaf(error)
    message = error.error.message.lower() if _is_mcp_error(error) else ""
    return "session not found" in message or "session terminated" in message


def http_status(error: BaseException) -> int:
    """The HTTP status that a server refused a request with; 0 when it was something else."""
    error = leaf(error)
    data: Any = error.error.data if _is_mcp_error(error) else None
    status = cast("dict[str, Any]", data).get("httpStatus") if isinstance(data, dict) else None
    return status if isinstance(status, int) else int(getattr(error, "status", 0))


def may_be_an_older_server(error: BaseException | None) -> bool:
    """Whether a failed Streamable HTTP handshake looks like that of a server that only knows HTTP with SSE.

    Those answer a POST with an HTTP error that is about the request; keys, limits and trouble are about something else.
    """
    from mcp_types import METHOD_NOT_FOUND

    if error is None:
        return False
    error = leaf(error)
    is_not_found = _is_mcp_error(error) and error.error.code == METHOD_NOT_FOUND
    return is_not_found or http_status(error) in (400, 404, 405, 406, 410, 415, 422, 501)


def call_failure(spec: ServerSpec, error: Exception) -> str:
    """Why a call brought no result, for the model to read."""
    from pydantic import ValidationError

    error_leaf = leaf(error)
    status = http_status(error_leaf)
    if status in _REFUSALS:
        return f"The server refused the call (HTTP {status}): {_refusal(spec, status)}."
    if _is_mcp_error(error_leaf):
        return f"The call failed: {_first_line(error_leaf.error.message)} (code {error_leaf.error.code})."
    if isinstance(error_leaf, ValidationError):
        return "The server's result is not one that MCP knows; ask its author, or answer without it."
    return f"The call failed: {_first_line(str(error_leaf)) or type(error_leaf).__name__}"


def connect_failure(spec: ServerSpec, error: BaseException, ending: str) -> str:
    """Why a server did not come up, and what to do, for a person.

    Args:
        spec: the server.
        error: what was raised.
        ending: how its process ended, when it did.
    """
    error = leaf(error)
    if isinstance(error, RkllmMcpError):
        return str(error)
    if ending:
        return f"it {ending} before it was ready; run {_command(spec)} in a terminal to see why"
    if isinstance(error, FileNotFoundError):
        if spec.cwd is not None and error.filename == spec.cwd:
            return f"there is no folder {spec.cwd!r}; make it, or correct the server's cwd"
        missing = spec.command if error.filename in (spec.command, None) else str(error.filename)
        return f"{missing!r} was not found; install it, or correct the server's command, PATH or cwd"
    if isinstance(error, (OSError, ValueError)) and spec.transport == "stdio":
        reason = _first_line(str(error))
        return f"{spec.command!r} cannot be started: {reason}; correct the server's command, args, env or cwd"
    status = http_status(error)
    if status in _REFUSALS:
        return f"the server refused the connection (HTTP {status}): {_refusal(spec, status)}"
    if spec.transport == "stdio":
        return f"the handshake failed: {_detail(error)}; check that {_command(spec)} is an MCP server"
    return f"{spec.url} cannot be used: {_detail(error)}; check the address, the headers and that the server runs"


def _refusal(spec: ServerSpec, status: int) -> str:
    """What a 401 or 403 means for a server, and what to do."""
    if spec.oauth is not None:
        what = "the login is missing or has expired" if status == _UNAUTHORIZED else "the login does not allow this"
        return f"{what}; log in again with 'rkllm-mcp servers test {spec.name}' in a terminal"
    names = ", ".join(f"'{name}'" for value in spec.headers_template.values() for name in placeholders(value))
    if names:
        what = "is missing, wrong or has expired" if status == _UNAUTHORIZED else "does not allow this"
        return f"the token {names} {what}; send a valid one with the request"
    what = (
        "wants a key or has not taken the one it got" if status == _UNAUTHORIZED else "does not allow this key to do it"
    )
    return f"it {what}; correct headers_template of server '{spec.name}'"


def _detail(error: BaseException) -> str:
    message = error.error.message if _is_mcp_error(error) else str(error)
    return _first_line(message) or type(error).__name__


def _command(spec: ServerSpec) -> str:
    # As a shell would read it, so that it can be pasted; quotes around all of it would be in the way of those inside.
    line = shlex.join((spec.command, *spec.args))
    return f"'{line}'" if "'" not in line and len(line) <= _MAX_COMMAND_CHARS else "its command"


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0][:_MAX_CHARS]


def _is_mcp_error(error: BaseException) -> TypeGuard[MCPError]:
    from mcp import MCPError

    return isinstance(error, MCPError)
