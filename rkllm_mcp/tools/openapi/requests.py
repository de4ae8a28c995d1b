"""Operation, arguments and credentials -> one HTTP request, as plain values. No IO.

Arguments cannot escape their location: a path value is one segment, a header value has no line break, and arguments
never replace values of the configuration.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from rkllm_mcp.toolcalls.arguments import ArgumentError, MismatchError, coerce_arguments
from rkllm_mcp.tools.openapi.bodies import body_of
from rkllm_mcp.tools.openapi.operation import Operation, Parameter
from rkllm_mcp.tools.openapi.security import Credentials
from rkllm_mcp.tools.openapi.styles import in_cookie, in_header, in_path, in_query, is_absent

_ACCEPT = "application/json, text/*;q=0.9, */*;q=0.5"
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_LINE_BREAK = re.compile(r"[\r\n\0]")
_NAMED_ARGUMENTS = 12


@dataclass(frozen=True)
class Request:
    """One HTTP request."""

    method: str  # upper case
    url: str  # absolute and percent-encoded
    headers: Mapping[str, str] = field(repr=False)
    content: bytes | None = field(default=None, repr=False)  # None without a body


def request_for(
    operation: Operation, arguments: Mapping[str, Any], credentials: Credentials, *, boundary: str = ""
) -> Request:
    """Return the request for a call.

    ``arguments`` are named by their keys or by the API's own names. ``credentials`` replace arguments of the same name.
    A multipart body without ``boundary`` gets a random one.

    Raises:
        ArgumentError: an argument is missing, unknown, or cannot be sent.
    """
    given = _given(operation, arguments)
    query = [pair for one in _placed(operation, given, "query") for pair in in_query(*one)]
    query += [f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in credentials.query.items()]
    headers = {"Accept": _ACCEPT}
    headers.update(
        (parameter.name, _one_line(parameter.key, in_header(parameter, value)))
        for parameter, value in _placed(operation, given, "header")
    )
    cookies = [pair for one in _placed(operation, given, "cookie") for pair in in_cookie(*one)]
    cookies += [f"{name}={value}" for name, value in credentials.cookies.items()]
    if cookies:
        headers["Cookie"] = "; ".join(cookies)
    outside = {parameter.key for parameter in operation.parameters}
    in_body = {key: value for key, value in given.items() if key not in outside}
    body = body_of(operation.body, in_body, boundary or secrets.token_hex(16)) if operation.body else None
    headers = _overridden(headers, credentials.headers)
    if body is not None:
        # The Content-Type must match the boundary of the body.
        headers = _overridden(headers, {"Content-Type": body[0]})
    url = operation.address + _path(operation, given)
    if query:
        url = f"{url}{'&' if '?' in url else '?'}{'&'.join(query)}"
    return Request(operation.method, url, headers, body[1] if body else None)


def _given(operation: Operation, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked arguments by key."""
    properties: Mapping[str, Any] = operation.input_schema["properties"]
    body = operation.body
    own_names = {parameter.name: parameter.key for parameter in operation.parameters}
    own_names |= {one.name: one.key for one in body.fields if one.name not in own_names} if body else {}
    given = {name if name in properties else own_names.get(name, name): value for name, value in arguments.items()}
    unknown = [name for name in given if name not in properties]
    if unknown and not (body and body.open):
        names = ", ".join(list(properties)[:_NAMED_ARGUMENTS]) or "none"
        raise ArgumentError(f"Unknown argument '{unknown[0]}'; the arguments are: {names}.")
    try:
        return coerce_arguments(given, operation.input_schema).value
    except MismatchError as mismatch:
        raise ArgumentError(mismatch.sentence) from None


def _placed(operation: Operation, given: Mapping[str, Any], place: str) -> list[tuple[Parameter, Any]]:
    return [
        (parameter, given[parameter.key])
        for parameter in operation.parameters
        if parameter.place == place and not is_absent(given.get(parameter.key))
    ]


def _path(operation: Operation, given: Mapping[str, Any]) -> str:
    by_name = {parameter.name: parameter for parameter in operation.parameters if parameter.place == "path"}

    def value(match: re.Match[str]) -> str:
        parameter = by_name[match.group(1)]
        text = "" if is_absent(given.get(parameter.key)) else in_path(parameter, given[parameter.key])
        if not text:
            # An empty value would address /users/ instead of /users/{id}.
            raise ArgumentError(f"The argument '{parameter.key}' must not be empty.")
        return text

    path = _PLACEHOLDER.sub(value, operation.path)
    path = path if path.startswith("/") or not path else f"/{path}"
    if any(unquote(segment) in {".", ".."} for segment in path.split("/")):
        raise ArgumentError("A part of the path must not be '.' or '..'.")
    return quote(path, safe="/%:@!$&'()*+,;=~?")


def _overridden(headers: Mapping[str, str], by: Mapping[str, str]) -> dict[str, str]:
    # Header names are case-insensitive.
    taken = {name.lower() for name in by}
    return {**{name: value for name, value in headers.items() if name.lower() not in taken}, **by}


def _one_line(key: str, value: str) -> str:
    if _LINE_BREAK.search(value):
        raise ArgumentError(f"The argument '{key}' must be one line.")
    return value
