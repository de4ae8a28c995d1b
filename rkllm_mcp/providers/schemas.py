"""A tool's JSON Schema becomes one that every service takes: an object with properties, without references.

Services differ in what they refuse (references, a choice at the top, an array without items, ``true`` for a schema);
what is sent stays within what all of them take. Arguments are checked against the tool's own schema afterwards, so
what is left out here costs precision and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

Schema = Mapping[str, Any]

# Deeper than any argument that a model fills in by itself; a reference to itself ends here as well.
_MAX_DEPTH = 12
_KEPT_OUT = frozenset({"$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "$ref", "title", "examples"})
_CHOICES = ("anyOf", "oneOf", "allOf")
# Keywords whose value maps names to schemas, holds a list of them, or is one.
_NAMED = frozenset({"properties", "patternProperties"})
_LISTED = frozenset({*_CHOICES, "prefixItems"})
_SINGLE = frozenset({"items", "additionalProperties", "not", "contains", "if", "then", "else", "propertyNames"})


def wire_schema(schema: Schema) -> dict[str, Any]:
    """The schema as it is sent.

    Args:
        schema: the tool's own; anything, also what makes no sense.
    """
    root = _cleaned(schema, schema, 0)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for part in (root, *_branches(root)):
        for name, item in _mapping(part.get("properties")).items():
            properties.setdefault(name, item)
    # A choice at the top asks for one of several sets; only what all of them ask for is required.
    for part in (root, *_branches(root, ("allOf",))):
        required += [name for name in _sequence(part.get("required")) if name in properties and name not in required]
    rest = {key: value for key, value in root.items() if key not in {*_CHOICES, "type", "properties", "required"}}
    wire: dict[str, Any] = {"type": "object", "properties": properties, **rest}
    return {**wire, "required": required} if required else wire


def _branches(schema: Schema, keys: Sequence[str] = _CHOICES) -> list[Schema]:
    return [_mapping(branch) for key in keys for branch in _sequence(schema.get(key))]


def _cleaned(schema: object, root: Schema, depth: int) -> dict[str, Any]:
    """One schema without what services refuse; a boolean one, and what lies too deep, allows anything."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return {}
    whole = _resolved(cast("Schema", schema), root)
    cleaned = {
        key: _value(key, value, root, depth)
        for key, value in whole.items()
        if key not in _KEPT_OUT and not key.startswith("x-")
    }
    if cleaned.get("type") == "array":
        cleaned.setdefault("items", {})
    return cleaned


def _value(key: str, value: Any, root: Schema, depth: int) -> Any:
    if key in _NAMED:
        return {name: _cleaned(item, root, depth + 1) for name, item in _mapping(value).items()}
    if key in _LISTED:
        return [_cleaned(item, root, depth + 1) for item in _sequence(value)]
    # additionalProperties = false is an answer that is understood everywhere.
    if key in _SINGLE and not isinstance(value, bool):
        return _cleaned(value, root, depth + 1)
    return value


def _resolved(schema: Schema, root: Schema) -> Schema:
    """The schema with what its local references lead to, its own keywords first."""
    whole = dict(schema)
    for _ in range(_MAX_DEPTH):
        reference = whole.pop("$ref", None)
        if not isinstance(reference, str) or not reference.startswith("#"):
            break
        target: object = root
        for step in filter(None, reference.removeprefix("#").split("/")):
            target = _mapping(target).get(step.replace("~1", "/").replace("~0", "~"))
        whole = {**_mapping(target), **whole}
    return whole


def _mapping(value: object) -> Schema:
    return cast("Schema", value) if isinstance(value, Mapping) else {}


def _sequence(value: object) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list) else ()
