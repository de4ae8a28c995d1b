"""An OpenAPI description as a table: routes with parameters, bodies and replies, then schemas with fields and types."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]


def interface_lines(description: Json) -> Iterable[str]:
    """Each route of an OpenAPI description with its parameters, bodies and refusals, then the fields of each schema."""
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            yield f"{method.upper()} {path}{' (open)' if operation.get('security') == [] else ''}"
            for parameter in operation.get("parameters", ()):
                mark = _optional_mark(parameter["required"])
                yield f"  {parameter['in']} {parameter['name']}{mark}: {type_of(parameter['schema'])}"
            for media, content in operation.get("requestBody", {"content": {}})["content"].items():
                yield f"  body {media}: {type_of(content['schema'])}"
            statuses: dict[str, list[str]] = {}
            for status, response in operation["responses"].items():
                contents = response.get("content", {}).items()
                types = "; ".join(f"{media}: {type_of(content['schema'])}" for media, content in contents) or "nothing"
                headers = "".join(f" +{name}" for name in response.get("headers", ()) if status[0] == "2")
                statuses.setdefault(f"{types}{headers}", []).append(status)
            for types, numbers in statuses.items():
                yield f"  {' '.join(numbers)} {types}"
    for name, schema in sorted(description["components"]["schemas"].items()):
        properties: Json = schema.get("properties", {})
        yield f"{name}" if properties else f"{name}: {type_of(schema)}"
        for key, value in properties.items():
            yield f"  {key}{_optional_mark(key in schema.get('required', ()))}: {type_of(value)}"


def _optional_mark(required: bool) -> str:
    return "" if required else "?"


# What _bare_type says, and words.
_SAID = frozenset(
    ["title", "description", "type", "anyOf", "oneOf", "allOf", "$ref", "items", "properties", "required", "enum"]
)
_SCHEMAS = frozenset({"contentSchema", "additionalProperties"})


def type_of(schema: Json | bool) -> str:
    """A JSON Schema in one line: its type, then what limits it."""
    if isinstance(schema, bool):
        return "any" if schema else "nothing"
    limits = {key: value for key, value in schema.items() if key not in _SAID}
    words = (f" {key}={type_of(value) if key in _SCHEMAS else _value(value)}" for key, value in limits.items())
    return _bare_type(schema) + "".join(words)


def _value(value: object) -> str:
    return value if isinstance(value, str) and " " in value else json.dumps(value, ensure_ascii=False)


def _bare_type(node: Json) -> str:
    if "$ref" in node:
        return str(node["$ref"]).rpartition("/")[2]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in node:
            return f"({(' & ' if key == 'allOf' else ' | ').join(type_of(choice) for choice in node[key])})"
    if "enum" in node:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in node["enum"])
    if "items" in node:
        return f"[{type_of(node['items'])}]"
    if "properties" in node:
        required = node.get("required", ())
        fields = (
            f"{key}{_optional_mark(key in required)}: {type_of(value)}" for key, value in node["properties"].items()
        )
        return f"{{{', '.join(fields)}}}"
    return str(node.get("type", "any"))
