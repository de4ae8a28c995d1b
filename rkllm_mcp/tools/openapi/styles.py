"""Argument values in the format of a path, query, header or cookie: every style, exploded or not.

The results are percent-encoded, so that later code does not need to know where a value ends. ``None``, an empty list
and an empty object count as absent, because the styles cannot express them.

Reference: OpenAPI 3.0.4 and 3.1.1, Style Values and Style Examples; RFC 6570. For nested objects, which the tables do
not cover, deepObject continues with brackets and other styles write JSON; our choice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

from rkllm_mcp.tools.openapi.operation import Parameter
from rkllm_mcp.tools.openapi.references import as_node

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
    return value if isinstance(value, str) else json_text(value)


def json_text(value: Any) -> str:
    """Return a value as compact JSON, without escaping other scripts."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def is_absent(value: Any) -> bool:
    """Return True if a value counts as absent outside a body."""
    return value is None or (isinstance(value, (list, tuple, Mapping)) and not value)


def in_path(parameter: Parameter, value: Any) -> str:
    """Return the text that replaces ``{name}`` in the path."""
    if parameter.style == "json":
        return _encoded(json_text(value))
    explode, name = parameter.explode, _encoded(parameter.name)
    if parameter.style == "matrix":
        return "".join(f";{pair}" for pair in _pairs(name, value, explode=explode, delimiter=","))
    prefix, joint = (".", "." if explode else ",") if parameter.style == "label" else ("", ",")
    if isinstance(value, Mapping):
        return prefix + joint.join(_members(as_node(value), "=" if explode else ","))
    return prefix + joint.join(_encoded(scalar_text(item)) for item in _items(value))


def in_query(parameter: Parameter, value: Any) -> list[str]:
    """Return the ``name=value`` pairs of the query."""
    safe = _RESERVED if parameter.allow_reserved else ""
    name = _encoded(parameter.name)
    if parameter.style == "json":
        return [f"{name}={_encoded(json_text(value), safe)}"]
    if parameter.style == "deepObject" and isinstance(value, Mapping):
        return [
            f"{_encoded(parameter.name + path)}={_encoded(scalar_text(inner), safe)}" for path, inner in _deep(value, 0)
        ]
    delimiter = _DELIMITERS.get(parameter.style, ",")
    return _pairs(name, value, explode=parameter.explode, delimiter=delimiter, safe=safe)


def in_header(parameter: Parameter, value: Any) -> str:
    """Return the header's value; headers are not percent-encoded."""
    if parameter.style == "json":
        return json_text(value)
    if isinstance(value, Mapping):
        pairs = [(str(key), scalar_text(inner)) for key, inner in cast("Mapping[str, Any]", value).items()]
        return ",".join(f"{key}={text}" if parameter.explode else f"{key},{text}" for key, text in pairs)
    return ",".join(scalar_text(item) for item in _items(value))


def in_cookie(parameter: Parameter, value: Any) -> list[str]:
    """Return the ``name=value`` pairs of the cookie."""
    name = _encoded(parameter.name)
    if parameter.style == "json":
        return [f"{name}={_encoded(json_text(value))}"]
    return _pairs(name, value, explode=parameter.explode, delimiter="%2C")


def _pairs(name: str, value: Any, *, explode: bool, delimiter: str, safe: str = "") -> list[str]:
    if isinstance(value, Mapping):
        members = _members(as_node(value), "=" if explode else delimiter, safe)
        return members if explode else [f"{name}={delimiter.join(members)}"]
    items = [_encoded(scalar_text(item), safe) for item in _items(value)]
    return [f"{name}={item}" for item in items] if explode else [f"{name}={delimiter.join(items)}"]


def _members(value: Mapping[str, Any], joint: str, safe: str = "") -> list[str]:
    return [
        f"{_encoded(str(key))}{joint}{_encoded(scalar_text(inner), safe)}"
        for key, inner in value.items()
        if inner is not None
    ]


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


def _encoded(text: str, safe: str = "") -> str:
    return quote(text, safe=safe, errors="replace")
