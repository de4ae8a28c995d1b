"""Reduce a tool's JSON Schema to a form that every service accepts: an object with properties, without references.

Services reject different constructs (references, a choice at the top level, an array without items, a boolean schema).
Arguments are checked against the original schema afterwards, so the reduction costs only precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

from rkllm_mcp.messages import as_list, as_mapping, resolved_reference

Schema = Mapping[str, Any]

_MAX_DEPTH = 12  # deeper than the arguments that a model can fill in
# Bounds the expansion of mutually recursive references; real tools have less than a tenth of this.
_MAX_SCHEMAS = 2000
_DROPPED = frozenset({"$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "$ref", "title", "examples"})
_OWN_KEYWORDS = frozenset({"type", "description"})
_CHOICES = ("anyOf", "oneOf", "allOf")
# Keywords whose value maps names to schemas, holds a list of them, or is one.
_NAMED = frozenset({"properties", "patternProperties"})
_LISTED = frozenset({*_CHOICES, "prefixItems"})
_SINGLE = frozenset({"items", "additionalProperties", "not", "contains", "if", "then", "else", "propertyNames"})


def wire_schema(schema: Schema) -> dict[str, Any]:
    """Return the schema to send; accepts invalid schemas too."""
    root = _Cleaning(schema).clean(schema, ())
    properties: dict[str, Any] = {}
    required: list[str] = []
    branches = {key: [as_mapping(branch) for branch in as_list(root.get(key))] for key in _CHOICES}
    for part in (root, *chain.from_iterable(branches.values())):
        for name, item in as_mapping(part.get("properties")).items():
            properties.setdefault(name, item)
    # Of a choice at the top level only properties that all branches require are required.
    for part in (root, *branches["allOf"]):
        names = (name for name in as_list(part.get("required")) if isinstance(name, str))
        required += [name for name in names if name in properties and name not in required]
    extra = {key: value for key, value in root.items() if key not in {*_CHOICES, "type", "properties", "required"}}
    wire: dict[str, Any] = {"type": "object", "properties": properties, **extra}
    return {**wire, "required": required} if required else wire


@dataclass(eq=False)
class _Cleaning:
    """Reduces one schema, resolving references from ``root``."""

    root: Schema
    remaining: int = _MAX_SCHEMAS

    def clean(self, schema: object, trail: tuple[str, ...], depth: int = 0) -> dict[str, Any]:
        """Remove constructs that services reject; a boolean schema or one beyond the limits becomes ``{}``.

        ``trail`` holds the references that led to this schema, ``depth`` its nesting.
        """
        self.remaining -= 1
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or self.remaining < 0:
            return {}
        # Local references become their targets; the schema's own keywords take precedence.
        resolved = dict(cast("Schema", schema))
        while isinstance(reference := resolved.pop("$ref", None), str) and reference.startswith("#"):
            target = as_mapping(resolved_reference(self.root, reference))
            if reference in trail:
                # A recursive reference is reduced to its type and description.
                kind = {key: value for key, value in target.items() if key in _OWN_KEYWORDS}
                resolved = {**kind, **resolved}
                break
            trail = (*trail, reference)
            resolved = {**target, **resolved}
        cleaned: dict[str, Any] = {}
        for key, value in resolved.items():
            if key in _DROPPED or key.startswith("x-"):
                continue
            if key in _NAMED:
                parts = as_mapping(value)
                cleaned[key] = {name: self.clean(part, trail, depth + 1) for name, part in parts.items()}
            elif key in _LISTED:
                cleaned[key] = [self.clean(part, trail, depth + 1) for part in as_list(value)]
            elif key in _SINGLE and not isinstance(value, bool):
                cleaned[key] = self.clean(value, trail, depth + 1)
            else:
                # Every service accepts additionalProperties = false, which is one of these.
                cleaned[key] = value
        if cleaned.get("type") == "array":
            cleaned.setdefault("items", {})
        return cleaned
