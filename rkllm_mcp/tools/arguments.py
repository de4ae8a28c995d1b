"""Validate and coerce tool arguments against a JSON Schema before they leave for something other than an MCP server.

    "3" + {"type": "integer"} -> 3          "a" + {"type": "array"} -> ["a"]          missing or wrong -> ArgumentError

Follows JSON Schema 2020-12; the set of conversions is our choice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
    "null": (type(None),),
}
_MAX_SHOWN = 60
# Values nested deeper than this are passed on unchanged.
_MAX_DEPTH = 16


class ArgumentError(ValueError):
    """An argument that is missing or has the wrong type; the message is written for the model."""


def checked(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``arguments`` with the types of ``schema``; names that the schema does not list are passed on unchanged.

    Raises:
        ArgumentError: an argument is missing or has the wrong type.
    """
    return _object(dict(arguments), schema, "", 0)


def fitting(value: Any, schema: Any, path: str = "", depth: int = 0) -> Any:
    """Coerce one value to its schema, recursively.

    Raises:
        ArgumentError: the value has another type and cannot be converted.
    """
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return value
    node = cast("Mapping[str, Any]", schema)
    types = _types(node)
    if types and not any(_is(value, name) for name in types):
        value = _converted(value, types, path)
    if isinstance(value, dict) and "object" in types:
        return _object(cast("dict[str, Any]", value), node, path, depth)
    if isinstance(value, (list, tuple)) and "array" in types:
        items = cast("Sequence[Any]", value)
        return [fitting(item, node.get("items"), f"{path}[{index}]", depth + 1) for index, item in enumerate(items)]
    if isinstance(value, float) and value.is_integer() and "integer" in types and "number" not in types:
        return int(value)
    return cast("Any", value)


def _object(value: dict[str, Any], schema: Mapping[str, Any], path: str, depth: int) -> dict[str, Any]:
    properties = cast("Mapping[str, Any]", schema.get("properties") or {})
    required = cast("Sequence[str]", schema.get("required") or ())
    missing = [name for name in required if name not in value]
    if missing:
        raise ArgumentError(f"The argument '{_joined(path, missing[0])}' is missing.")
    return {
        name: fitting(inner, properties.get(name), _joined(path, name), depth + 1)
        # A null for an optional argument means "not given", unless the schema allows null.
        for name, inner in value.items()
        if inner is not None or name in required or _may_be_null(properties.get(name))
    }


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _may_be_null(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return True
    node = cast("Mapping[str, Any]", schema)
    return not _types(node) or "null" in _types(node)


def _types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    named = schema.get("type")
    names = [named] if isinstance(named, str) else cast("list[Any]", named) if isinstance(named, list) else []
    return tuple(name for name in names if isinstance(name, str))


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean" or name not in _KINDS
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _KINDS.get(name, object))


def _converted(value: Any, types: Sequence[str], path: str) -> Any:
    if isinstance(value, str):
        read = _read(value)
        if any(_is(read, name) for name in types):
            return read
    elif "string" in types and isinstance(value, (bool, int, float)):
        return json.dumps(value)
    if "array" in types and value is not None and not isinstance(value, dict):
        return [value]
    shown = json.dumps(value, ensure_ascii=False, default=str)
    shown = shown if len(shown) <= _MAX_SHOWN else f"{shown[: _MAX_SHOWN - 1]}…"
    raise ArgumentError(f"The argument '{path}' must be {' or '.join(types)}, not {shown}.")


def _read(text: str) -> Any:
    """Parse ``text`` as JSON; return ``text`` itself if it is not JSON."""
    spelled = text.strip()
    try:
        value = json.loads(spelled if spelled[:1] in ("{", "[", '"') else spelled.lower())
    except (ValueError, RecursionError):
        return text
    return text if value in (math.inf, -math.inf) else value
