"""Operation, arguments and credentials -> one HTTP request, as plain values. No IO.

Arguments cannot escape their location: a path value is one segment, a header value has no line break, and arguments
never replace values of the configuration.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote, unquote, unquote_to_bytes, urljoin, urlsplit

from rkllm_mcp.events import to_json
from rkllm_mcp.messages import as_list, as_mapping
from rkllm_mcp.openapi.document import Node
from rkllm_mcp.openapi.operations import PLACEHOLDER, BodyField, BodySpec, Operation, Parameter, sent_path
from rkllm_mcp.openapi.security import Credentials
from rkllm_mcp.toolcalls.arguments import ArgumentError, MismatchError, coerce_arguments

_VARIABLE = re.compile(r"\{([^{}]*)\}")


def address_of(levels: Iterable[Any], spec_url: str) -> str:
    """Return the address of an operation without a trailing slash; empty if the specification names none.

    ``levels`` holds the ``servers`` of the operation, of its path and of the document; the first non-empty one is used.
    Relative addresses are resolved against ``spec_url``, which is empty if the specification did not come from a URL.
    """
    # The default without servers: the origin of the specification.
    for server in (*(server for servers in levels for server in as_list(servers)), {"url": "/"}):
        table = as_mapping(server)
        variables = as_mapping(table.get("variables"))
        # Every second piece is the name of a variable.
        pieces = _VARIABLE.split(str(table.get("url", "")))
        for index in range(1, len(pieces), 2):
            variable = as_mapping(variables.get(pieces[index]))
            choices = as_list(variable.get("enum"))
            pieces[index] = str(variable.get("default", choices[0] if choices else f"{{{pieces[index]}}}"))
        address = "".join(pieces).strip()
        try:
            address = urljoin(spec_url, address) if spec_url else address
            parts = urlsplit(address)
        except ValueError:
            continue
        if parts.scheme in {"http", "https"} and parts.hostname and "{" not in address:
            return address.partition("?")[0].partition("#")[0].rstrip("/")
    return ""


# Not encoded if a parameter allows reserved characters; "&", "=", "+" and "#" would end the value.
_RESERVED = ":/?[]@!$'()*,;"
_DELIMITERS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}
# Nesting of objects; no known API filter is deeper.
_MAX_DEPTH = 8


def scalar_text(value: Any) -> str:
    """Return a scalar as text, and a container as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return value if isinstance(value, str) else to_json(value)


def _in_path(parameter: Parameter, value: Any) -> str:
    """Return the text that replaces ``{name}`` in the path."""
    if parameter.style == "json":
        return _percent_encode(to_json(value))
    explode, name = parameter.explode, _percent_encode(parameter.name)
    if parameter.style == "matrix":
        return "".join(f";{pair}" for pair in _pairs(name, value, explode=explode, delimiter=","))
    prefix, joint = (".", "." if explode else ",") if parameter.style == "label" else ("", ",")
    if isinstance(value, Mapping):
        return prefix + joint.join(_members(cast("Node", value), "=" if explode else ","))
    return prefix + joint.join(_percent_encode(scalar_text(item)) for item in _items(value))


def _in_query(parameter: Parameter, value: Any) -> list[str]:
    """Return the ``name=value`` pairs of the query, or of a cookie."""
    is_cookie = parameter.location == "cookie"
    safe = _RESERVED if parameter.allow_reserved and not is_cookie else ""
    name = _percent_encode(parameter.name)
    if parameter.style == "json":
        return [f"{name}={_percent_encode(to_json(value), safe)}"]
    if parameter.style == "deepObject" and isinstance(value, Mapping):
        leaves = ((_percent_encode(parameter.name + path), scalar_text(leaf)) for path, leaf in _deep(value, 0))
        return [f"{key}={_percent_encode(text, safe)}" for key, text in leaves]
    delimiter = "%2C" if is_cookie else _DELIMITERS.get(parameter.style, ",")
    return _pairs(name, value, explode=parameter.explode, delimiter=delimiter, safe=safe)


def _pairs(name: str, value: Any, *, explode: bool, delimiter: str, safe: str = "") -> list[str]:
    if isinstance(value, Mapping):
        members = _members(cast("Node", value), "=" if explode else delimiter, safe)
        return members if explode else [f"{name}={delimiter.join(members)}"]
    items = [_percent_encode(scalar_text(item), safe) for item in _items(value)]
    return [f"{name}={item}" for item in items] if explode else [f"{name}={delimiter.join(items)}"]


def _members(value: Mapping[str, Any], joint: str, safe: str = "") -> list[str]:
    members = ((_percent_encode(str(key)), scalar_text(inner)) for key, inner in value.items() if inner is not None)
    return [f"{key}{joint}{_percent_encode(text, safe)}" for key, text in members]


def _deep(value: Any, depth: int) -> list[tuple[str, Any]]:
    """Return the leaves of an object with their paths in brackets."""
    if isinstance(value, Mapping) and depth < _MAX_DEPTH:
        members = cast("Mapping[str, Any]", value).items()
        return [(f"[{key}]{path}", leaf) for key, inner in members for path, leaf in _deep(inner, depth + 1)]
    if isinstance(value, (list, tuple)):
        return [("", item) for item in _items(value)]
    return [] if value is None else [("", value)]


def _items(value: Any) -> Sequence[Any]:
    items = cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else [value]
    return [item for item in items if item is not None]


def _percent_encode(text: str, safe: str = "") -> str:
    return quote(text, safe=safe, errors="replace")


_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?((?:;[\w.+-]+=[\w.+-]+)*)(;base64)?,(.*)", re.DOTALL)


def body_of(body: BodySpec, arguments: Mapping[str, Any], boundary: str) -> tuple[str, bytes] | None:
    """Return the content type and the bytes to send; None for an empty body.

    An open body takes arguments that are not among its fields as well. ``boundary`` must not occur in any part.
    """
    if body.whole and body.whole not in arguments:
        return None
    if body.whole:
        value = arguments[body.whole]
        if "json" in body.media_type:
            return body.media_type, to_json(value).encode("utf-8", "replace")
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value).items()
            form = _form(body.media_type, [(BodyField(str(name), str(name)), inner) for name, inner in items], boundary)
            if form is not None:
                return form
        media_type = f"{body.media_type}; charset=utf-8" if body.media_type.startswith("text/") else body.media_type
        return media_type, _content(value)[1]
    members = [(field, arguments[field.key]) for field in body.fields if field.key in arguments]
    if body.open:
        keys = {field.key for field in body.fields}
        members += [(BodyField(name, name), value) for name, value in arguments.items() if name not in keys]
    if not members and not body.required:
        return None
    form = _form(body.media_type, members, boundary)
    if form is not None:
        return form
    return body.media_type, to_json({field.name: value for field, value in members}).encode("utf-8", "replace")


def _form(media_type: str, members: Sequence[tuple[BodyField, Any]], boundary: str) -> tuple[str, bytes] | None:
    """Return the content type and the bytes of a form; None if the media type is not a form."""
    if media_type == "application/x-www-form-urlencoded":
        pairs: list[str] = []
        for field, value in members:
            if value is not None:
                # Without a style an object is one value with its default content type.
                is_text = not field.style and (isinstance(value, Mapping) or "json" in field.content_type)
                parameter = Parameter(field.key, field.name, "query", field.style or "form", field.explode)
                pairs += _in_query(parameter, to_json(value) if is_text else value)
        return media_type, "&".join(pairs).encode()
    if media_type.startswith("multipart/"):
        mark = f"--{boundary}".encode()
        parts = [mark + b"\r\n" + part + b"\r\n" for field, value in members for part in _parts(field, value)]
        return f"{media_type}; boundary={boundary}", b"".join(parts) + mark + b"--\r\n"
    return None


def _parts(field: BodyField, value: Any) -> Iterator[bytes]:
    if isinstance(value, (list, tuple)) and "json" not in field.content_type:
        for item in cast("Sequence[Any]", value):
            yield from _parts(field, item)
    elif value is not None:
        media_type, content = _content(value)
        # Escape as browsers do: these characters would end the name or the line.
        name = field.name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        head = f'Content-Disposition: form-data; name="{name}"'
        if field.is_file:
            head += f'; filename="{name}"'
            media_type = media_type or "application/octet-stream"
        media_type = field.content_type if field.content_type and "*" not in field.content_type else media_type
        head += f"\r\nContent-Type: {media_type}" if media_type else ""
        yield head.encode() + b"\r\n\r\n" + content


def _content(value: Any) -> tuple[str, bytes]:
    """Return the media type that a ``data:`` value names, and its bytes."""
    if isinstance(value, (Mapping, list, tuple)):
        return "application/json", to_json(value).encode("utf-8", "replace")
    text = scalar_text(value)
    match = _DATA_URL.fullmatch(text) if text.startswith("data:") else None
    if match is None:
        return "", text.encode("utf-8", "replace")
    media_type, _, is_base64, data = match.groups()
    try:
        content = base64.b64decode(data, validate=False) if is_base64 else unquote_to_bytes(data)
    except (binascii.Error, ValueError):
        content = text.encode("utf-8", "replace")
    return media_type or "", content


_ACCEPT = "application/json, text/*;q=0.9, */*;q=0.5"
_LINE_BREAK = re.compile(r"[\r\n\0]")
_NAMED_ARGUMENTS = 12


@dataclass(frozen=True)
class Request:
    """One HTTP request."""

    method: str  # upper case
    url: str  # absolute and percent-encoded
    headers: Mapping[str, str] = field(repr=False)
    content: bytes | None = field(default=None, repr=False)  # None without a body


def request_for(operation: Operation, arguments: Mapping[str, Any], credentials: Credentials) -> Request:
    """Return the request for a call; an ArgumentError if an argument is missing, unknown, or cannot be sent.

    ``arguments`` are named by their keys or by the API's own names. ``credentials`` replace arguments of the same name.
    """
    properties: Mapping[str, Any] = operation.input_schema["properties"]
    spec = operation.body
    own_names = {parameter.name: parameter.key for parameter in operation.parameters}
    own_names |= {field.name: field.key for field in spec.fields if field.name not in own_names} if spec else {}
    values_by_key = {
        name if name in properties else own_names.get(name, name): value for name, value in arguments.items()
    }
    unknown = [name for name in values_by_key if name not in properties]
    if unknown and not (spec and spec.open):
        names = ", ".join(list(properties)[:_NAMED_ARGUMENTS]) or "none"
        raise ArgumentError(f"Unknown argument '{unknown[0]}'; the arguments are: {names}.")
    try:
        values = coerce_arguments(values_by_key, operation.input_schema).value
    except MismatchError as mismatch:
        raise ArgumentError(mismatch.sentence) from None
    query = [pair for placed in _parameters_in(operation, values, "query") for pair in _in_query(*placed)]
    query += [f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in credentials.query.items()]
    headers = {"Accept": _ACCEPT}
    for parameter, value in _parameters_in(operation, values, "header"):
        # Headers are not percent-encoded.
        if parameter.style == "json":
            text = to_json(value)
        elif isinstance(value, Mapping):
            joint, members = "=" if parameter.explode else ",", cast("Mapping[str, Any]", value).items()
            text = ",".join(f"{key}{joint}{scalar_text(inner)}" for key, inner in members)
        else:
            text = ",".join(scalar_text(item) for item in _items(value))
        headers[parameter.name] = text
        if _LINE_BREAK.search(text):
            raise ArgumentError(f"The argument '{parameter.key}' must be one line.")
    cookies = [pair for placed in _parameters_in(operation, values, "cookie") for pair in _in_query(*placed)]
    cookies += [f"{name}={value}" for name, value in credentials.cookies.items()]
    if cookies:
        headers["Cookie"] = "; ".join(cookies)
    outside = {parameter.key for parameter in operation.parameters}
    in_body = {key: value for key, value in values.items() if key not in outside}
    body = body_of(spec, in_body, secrets.token_hex(16)) if spec else None
    # Header names are case-insensitive; the Content-Type must match the boundary of the body.
    for added in (credentials.headers, {"Content-Type": body[0]} if body else {}):
        names = {name.lower() for name in added}
        headers = {**{name: value for name, value in headers.items() if name.lower() not in names}, **added}
    keys = {parameter.name: parameter.key for parameter in operation.parameters if parameter.location == "path"}
    texts = {
        parameter.name: _in_path(parameter, value) for parameter, value in _parameters_in(operation, values, "path")
    }
    template, path, end = sent_path(operation.path), "", 0
    for match in PLACEHOLDER.finditer(template):
        before, name, after = match.groups()
        text = texts.get(name)
        if not text:
            # An empty value would address /users/ instead of /users/{id}.
            raise ArgumentError(f"The argument '{keys[name]}' must not be empty.")
        path += template[end : match.start()] + (text.replace("%2F", "/") if before or after else text)
        end = match.end()
    path += template[end:]
    path = path if path.startswith("/") or not path else f"/{path}"
    if any(unquote(segment) in {".", ".."} for segment in path.split("/")):
        raise ArgumentError("A part of the path must not be '.' or '..'.")
    url = operation.address + quote(path, safe="/%:@!$&'()*+,;=~?")
    if query:
        url = f"{url}{'&' if '?' in url else '?'}{'&'.join(query)}"
    return Request(operation.method, url, headers, body[1] if body else None)


def _parameters_in(operation: Operation, arguments: Mapping[str, Any], location: str) -> list[tuple[Parameter, Any]]:
    """Return the parameters of a place and their values; null, and an empty list or object, count as absent."""
    values = (
        (parameter, arguments.get(parameter.key))
        for parameter in operation.parameters
        if parameter.location == location
    )
    return [(parameter, value) for parameter, value in values if value is not None and value not in ([], (), {})]
