"""Schema of a specification -> the reduced schema that a model needs to fill in arguments.

Types, enums, limits, names and required fields are preserved; references are resolved in place. Repeated descriptions,
examples, titles and response formats are dropped. A ``Detail`` limits depth, text and number of nodes; deeper schemas
become ``{"type": "object"}``, which still accepts values. An invalid schema becomes one that allows anything; nothing
in this module raises.

Reference: OpenAPI 3.0.4 and 3.1.1, Schema Object; JSON Schema 2020-12. The reductions are our choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rkllm_mcp.messages import as_list, as_mapping
from rkllm_mcp.openapi.document import Node, References, as_text
from rkllm_mcp.openapi.operations import shorten_to_sentence

_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
# Formats that affect the value that a model writes; others name a width or repeat the description.
_FORMATS = frozenset({"date", "date-time", "time", "duration", "email", "uri", "binary", "byte"})
_LIMITS = ("minimum", "maximum", "minItems", "maxItems")
_UNIONS = ("oneOf", "anyOf")
# Longer enums become examples, such as a list of all time zones.
_MAX_CHOICES = 24
_MAX_CHOICE_CHARS = 300
_MAX_DEFAULT_CHARS = 40
# Nesting of allOf and of unions; and the branches of one union.
_MAX_NESTING = 8
_MAX_BRANCHES = 12


@dataclass(frozen=True)
class Detail:
    """Limits for reducing a schema."""

    depth: int  # levels of objects and lists below an argument
    words: int  # characters of an argument's description
    inner_words: int  # characters of a nested description
    nodes: int = 200  # schemas examined per tool; further ones allow anything


@dataclass
class Fields:
    """Properties of an object, with all branches joined."""

    properties: dict[str, Any] = field(default_factory=dict[str, Any])  # schema by name
    required: set[str] = field(default_factory=set[str])  # names of required properties
    open: bool = False  # additional properties are explicitly allowed


class Schemas:
    """Schemas of one document at one detail."""

    def __init__(self, references: References, detail: Detail) -> None:
        self._references = references
        self._detail = detail
        self.nodes_left = detail.nodes  # below zero parts are missing

    def argument(self, schema: Any, description: str = "") -> dict[str, Any]:
        """Return the reduced schema of an argument, with the description of the surrounding parameter or field."""
        return self._small(schema, self._detail.depth, (), shorten_to_sentence(description, self._detail.words))

    def fields(self, schema: Any) -> Fields | None:
        """Return the properties of an object schema as separate arguments; None if it is not an object."""
        joined = self._merge_all_of(schema, (), 0)[0]
        fields = self._own_fields(joined)
        for key in _UNIONS:
            branches = as_list(joined.get(key))
            # A branch beyond the limit of nodes counts as none with fields.
            fields_of_branches = [
                self._own_fields(self._merge_all_of(branch, (), 0)[0]) if self.nodes_left > 0 else Fields()
                for branch in branches
            ]
            members = [inner for inner in fields_of_branches if inner.properties]
            if not members:
                continue
            if len(members) < sum(self._references.resolve(branch).get("type") != "null" for branch in branches):
                # One alternative is not an object, so the body is not always a set of fields.
                return None
            for inner in members:
                fields.properties = {**inner.properties, **fields.properties}
                fields.open = fields.open or inner.open
            fields.required |= set[str].intersection(*(inner.required for inner in members))
        return fields if fields.properties else None

    def _small(self, schema: Any, depth: int, trail: tuple[str, ...], words: str | None = None) -> dict[str, Any]:
        joined, inner_trail = self._merge_all_of(schema, trail, 0)
        if words is None:
            words = shorten_to_sentence(as_text(joined.get("description")), self._detail.inner_words)
        elif not words:
            words = shorten_to_sentence(as_text(joined.get("description")), self._detail.words)
        small = self._plain(joined, depth, inner_trail)
        for key in _UNIONS:
            small = {**small, **self._union(as_list(joined.get(key)), depth, inner_trail)}
        if words:
            description = small.get("description")
            small["description"] = f"{words} ({description})" if description else words
        return small

    def _plain(self, schema: Node, depth: int, trail: tuple[str, ...]) -> dict[str, Any]:
        """Reduce a schema without its unions."""
        small: dict[str, Any] = {}
        types = _types(schema)
        if types:
            small["type"] = types[0] if len(types) == 1 else list(types)
        if (form := as_text(schema.get("format"))) in _FORMATS:
            small["format"] = form
        choices = [choice for choice in as_list(schema.get("enum")) if not isinstance(choice, (dict, list))]
        if "const" in schema and not isinstance(schema["const"], (dict, list)):
            choices = [schema["const"]]
        if choices:
            if len(choices) <= _MAX_CHOICES and len(str(choices)) <= _MAX_CHOICE_CHARS:
                small["enum"] = choices
            else:
                some = ", ".join(str(choice) for choice in choices[:6])
                small["description"] = shorten_to_sentence(f"one of {len(choices)}: {some}, …", 160)
        for key in _LIMITS:
            limit = schema.get(key)
            if isinstance(limit, (int, float)) and not isinstance(limit, bool):
                small[key] = limit
        default = schema.get("default")
        if default not in (None, "") and not isinstance(default, (dict, list)):
            small["default"] = default if len(str(default)) <= _MAX_DEFAULT_CHARS else None
            small = {key: value for key, value in small.items() if value is not None}
        if "array" in types or (not types and "items" in schema):
            small.setdefault("type", "array")
            small["items"] = self._small(schema.get("items"), depth - 1, trail) if depth > 0 else {}
        elif "object" in types:
            fields, extra = self._own_fields(schema), schema.get("additionalProperties")
            if depth > 0 and fields.properties:
                small["properties"] = {
                    name: self._small(inner, depth - 1, trail) for name, inner in fields.properties.items()
                }
                if required := [name for name in fields.properties if name in fields.required]:
                    small["required"] = required
            elif depth > 0 and isinstance(extra, Mapping) and (inner := self._small(extra, depth - 1, trail)):
                small["additionalProperties"] = inner
        return small

    def _union(self, branches: Sequence[Any], depth: int, trail: tuple[str, ...]) -> dict[str, Any]:
        """Return the schema keys contributed by the branches of a union."""
        smalls: list[dict[str, Any]] = []
        for branch in branches if len(branches) <= _MAX_BRANCHES else ():
            small = self._small(branch, depth, trail)
            if small not in smalls:
                smalls.append(small)
        # The shortest equivalent schema.
        null = any(small.get("type") == "null" for small in smalls)
        alternatives = [small for small in smalls if small.get("type") != "null"]
        choices = [choice for small in alternatives for choice in as_list(small.get("enum"))]
        types = list(dict.fromkeys(small["type"] for small in alternatives if isinstance(small.get("type"), str)))
        types += ["null"] if null else []
        typed: dict[str, Any] = {"type": types[0] if len(types) == 1 else types} if types else {}
        if alternatives and all(
            small.keys() <= {"type", "enum", "description"} and "enum" in small for small in alternatives
        ):
            return {**typed, "enum": [*dict.fromkeys(choices), *([None] if null else [])]}
        if all(small.keys() <= {"type"} and isinstance(small.get("type"), str) for small in alternatives):
            return typed
        if len(alternatives) == 1:
            only = dict(alternatives[0])
            if null and isinstance(only.get("type"), str):
                only["type"] = [only["type"], "null"]
            return only
        if any(not small for small in alternatives):
            return {}  # one branch allows anything
        return {"anyOf": [*alternatives, *([{"type": "null"}] if null else [])]}

    def _merge_all_of(self, schema: Any, trail: tuple[str, ...], nesting: int) -> tuple[Node, tuple[str, ...]]:
        """Resolve references, merge ``allOf``, and return the schema with the references that were followed."""
        self.nodes_left -= 1
        node, followed = self._references.follow(schema)
        if self.nodes_left < 0 or any(reference in trail for reference in followed):
            # A recursive schema: the model gets the outermost level.
            return {key: node[key] for key in ("type", "description") if key in node}, trail
        trail = (*trail, *followed)
        branches = as_list(node.get("allOf"))
        if not branches or nesting >= _MAX_NESTING:
            return node, trail
        parts: list[Node] = []
        for branch in branches:
            inner, trail = self._merge_all_of(branch, trail, nesting + 1)
            parts.append(inner)
        base = {key: value for key, value in node.items() if key != "allOf"}
        merged: dict[str, Any] = {}
        # Properties and required names are joined; of other keys the first value counts.
        for part in (*parts, base):
            for key, value in part.items():
                if key == "properties":
                    merged[key] = {**as_mapping(merged.get(key)), **as_mapping(value)}
                elif key == "required":
                    merged[key] = [*as_list(merged.get(key)), *as_list(value)]
                else:
                    merged.setdefault(key, value)
        merged.update({key: base[key] for key in ("description", "default", "nullable") if key in base})
        return merged, trail

    def _own_fields(self, schema: Node) -> Fields:
        required = {name for name in as_list(schema.get("required")) if isinstance(name, str)}
        properties = as_mapping(schema.get("properties"))
        writable: dict[str, Any] = {}
        for name, inner in properties.items():
            node = as_mapping(inner)
            is_read_only = node.get("readOnly") is True
            if "$ref" in node and not is_read_only:
                is_read_only = self._references.resolve(node).get("readOnly") is True
            # Read-only properties are not arguments.
            if not is_read_only:
                writable[str(name)] = inner
        extra = schema.get("additionalProperties")
        return Fields(writable, required & writable.keys(), extra is True or (isinstance(extra, Mapping)))


def _types(schema: Node) -> tuple[str, ...]:
    """Return the types of a schema, declared or implied, ``null`` last."""
    declared = schema.get("type")
    types = [declared] if isinstance(declared, str) else list(as_list(declared))
    if not types and ("properties" in schema or isinstance(schema.get("additionalProperties"), Mapping)):
        types = ["object"]
    if types == ["file"]:
        types = ["string"]
    if schema.get("nullable") is True and types:
        types.append("null")
    return tuple(name for name in _TYPES if name in types)
