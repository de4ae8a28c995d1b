"""A tool's JSON Schema becomes one that every service takes: an object with properties, without references.

Services differ in what they refuse (references, a choice at the top, an array without items, ``true`` for a schema);
what is sent stays within what all of them take. Arguments are checked against the tool's own schema afterwards, so
what is left out here costs precision and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

Schema = Mapping[str, Any]

# Deeper than any argument that a model fills in by itself.
_MAX_DEPTH = 12
# References that lead to each other in every way would be written out for ever; no tool that is used has a tenth of it.
_MAX_SCHEMAS = 2000
_KEPT_OUT = frozenset({"$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "$ref", "title", "examples"})
_SAID_OF_ITSELF = frozenset({"type", "description"})
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
    root = _Cleaning(schema).cleaned(schema, ())
    properties: dict[str, Any] = {}
    required: list[str] = []
    for part in (root, *_branches(root, _CHOICES)):
        for name, item in _mapping(part.get("properties")).items():
            properties.setdefault(name, item)
    # A choice at the top asks for one of several sets; only what all of them ask for is required.
    for part in (root, *_branches(root, ("allOf",))):
        names = (name for name in _sequence(part.get("required")) if isinstance(name, str))
        required += [name for name in names if name in properties and name not in required]
    rest = {key: value for key, value in root.items() if key not in {*_CHOICES, "type", "properties", "required"}}
    wire: dict[str, Any] = {"type": "object", "properties": properties, **rest}
    return {**wire, "required": required} if required else wire


class _Cleaning:
    """One schema on its way to the wire.

    Args:
        root: where references start from.
    """

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = _MAX_SCHEMAS

    def cleaned(self, schema: object, trail: tuple[str, ...], depth: int = 0) -> dict[str, Any]:
        """A schema without what services refuse; a boolean one, and what is too much, allows anything.

        Args:
            schema: the schema.
            trail: the references that led here.
            depth: how many schemas it stands in.
        """
        self._left -= 1
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or self._left < 0:
            return {}
        whole, trail = self._resolved(cast("Schema", schema), trail)
        cleaned = {
            key: self._value(key, value, trail, depth + 1)
            for key, value in whole.items()
            if key not in _KEPT_OUT and not key.startswith("x-")
        }
        if cleaned.get("type") == "array":
            cleaned.setdefault("items", {})
        return cleaned

    def _value(self, key: str, value: Any, trail: tuple[str, ...], depth: int) -> Any:
        if key in _NAMED:
            return {name: self.cleaned(item, trail, depth) for name, item in _mapping(value).items()}
        if key in _LISTED:
            return [self.cleaned(item, trail, depth) for item in _sequence(value)]
        # additionalProperties = false is an answer that is understood everywhere.
        if key in _SINGLE and not isinstance(value, bool):
            return self.cleaned(value, trail, depth)
        return value

    def _resolved(self, schema: Schema, trail: tuple[str, ...]) -> tuple[Schema, tuple[str, ...]]:
        """The schema with what its local references lead to, its own keywords first."""
        whole = dict(schema)
        while isinstance(reference := whole.pop("$ref", None), str) and reference.startswith("#"):
            target: object = self._root
            for step in filter(None, reference.removeprefix("#").split("/")):
                target = _mapping(target).get(step.replace("~1", "/").replace("~0", "~"))
            if reference in trail:
                # It leads back to itself: what it is can be said, not what is in it.
                kind = {key: value for key, value in _mapping(target).items() if key in _SAID_OF_ITSELF}
                return {**kind, **whole}, trail
            trail = (*trail, reference)
            whole = {**_mapping(target), **whole}
        return whole, trail


def _branches(schema: Schema, keys: Sequence[str]) -> list[Schema]:
    return [_mapping(branch) for key in keys for branch in _sequence(schema.get(key))]


def _mapping(value: object) -> Schema:
    return cast("Schema", value) if isinstance(value, Mapping) else {}


def _sequence(value: object) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list) else ()
