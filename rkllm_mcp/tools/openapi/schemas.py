"""A schema of a specification becomes the little of it that a model needs to fill in arguments.

Kept are types, choices, limits, names and what is required; references are resolved where they stand, because a model
follows none. What an author says three times, examples, titles and formats of answers go. Each schema is bounded by a
``Detail``: how deep, how many words, how many nodes; what lies deeper is ``{"type": "object"}`` and still accepted. A
schema that makes no sense reads as one that allows anything; nothing here raises.

Followed: OpenAPI 3.0.4 and 3.1.1, Schema Object; JSON Schema 2020-12. What is left out is our choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rkllm_mcp.tools.openapi.references import Node, References, as_list, as_node, as_text
from rkllm_mcp.tools.openapi.wording import shortened

_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
# Formats that change what a model writes; the others name a width or are told by the description.
_FORMATS = frozenset({"date", "date-time", "time", "duration", "email", "uri", "binary", "byte"})
_LIMITS = ("minimum", "maximum", "minItems", "maxItems")
# More choices than these are told as examples: a model does not read a list of all time zones.
_MAX_CHOICES = 24
_MAX_CHOICE_CHARS = 300
_MAX_DEFAULT_CHARS = 40
# allOf within allOf, or a union within a union; and branches of one union.
_MAX_NESTING = 8
_MAX_BRANCHES = 12


@dataclass(frozen=True)
class Detail:
    """How much of a schema is kept.

    Args:
        depth: levels of objects and lists below an argument.
        words: characters of an argument's description.
        inner_words: characters of a description further inside.
        nodes: schemas looked at for one tool; beyond, everything is taken as it is named.
    """

    depth: int
    words: int
    inner_words: int
    nodes: int = 200


@dataclass
class Fields:
    """An object's properties as they stand in the specification, all branches of it joined.

    Args:
        properties: schema by name.
        required: names that must be given.
        open: other names are allowed, and the specification says so.
    """

    properties: dict[str, Any] = field(default_factory=dict[str, Any])
    required: set[str] = field(default_factory=set[str])
    open: bool = False


class Schemas:
    """Schemas of one document at one detail.

    Args:
        references: the document's.
        detail: how much is kept.
    """

    def __init__(self, references: References, detail: Detail) -> None:
        self._references = references
        self._detail = detail
        self._nodes_left = detail.nodes

    @property
    def is_exhausted(self) -> bool:
        """Whether there was more to look at than the detail allows, so that something is missing."""
        return self._nodes_left < 0

    def argument(self, schema: Any, description: str = "") -> dict[str, Any]:
        """An argument's schema, as a model reads it.

        Args:
            schema: as the specification has it, references and all.
            description: what the specification says beside the schema.
        """
        return self._small(schema, self._detail.depth, (), shortened(description, self._detail.words))

    def fields(self, schema: Any) -> Fields | None:
        """The properties of an object's schema, to become arguments of their own; None where it is no object."""
        joined = self._joined(schema, (), 0)[0]
        fields = self._own_fields(joined)
        for branches in self._unions(joined):
            found = [inner for branch in branches if (inner := self.fields_of_branch(branch)) is not None]
            if not found:
                continue
            if len(found) < len([branch for branch in branches if not self._is_null(branch)]):
                # One of the choices is no object, so the body is not always a list of fields.
                return None
            for inner in found:
                fields.properties = {**inner.properties, **fields.properties}
                fields.open = fields.open or inner.open
            fields.required |= set[str].intersection(*(inner.required for inner in found))
        return fields if fields.properties else None

    def fields_of_branch(self, branch: Any) -> Fields | None:
        """The properties of one branch of a union; None where it is no object."""
        if self._nodes_left <= 0:
            return None
        fields = self._own_fields(self._joined(branch, (), 0)[0])
        return fields if fields.properties else None

    # --- one schema --------------------------------------------------------------------------------------------------

    def _small(self, schema: Any, depth: int, trail: tuple[str, ...], words: str | None = None) -> dict[str, Any]:
        joined, inner_trail = self._joined(schema, trail, 0)
        if words is None:
            words = shortened(as_text(joined.get("description")), self._detail.inner_words)
        elif not words:
            words = shortened(as_text(joined.get("description")), self._detail.words)
        small = self._plain(joined, depth, inner_trail)
        for branches in self._unions(joined):
            small = {**small, **self._union(branches, depth, inner_trail)}
        if words:
            said = small.get("description")
            small["description"] = f"{words} ({said})" if said else words
        return small

    def _plain(self, schema: Node, depth: int, trail: tuple[str, ...]) -> dict[str, Any]:
        """A schema without unions."""
        small: dict[str, Any] = {}
        types = _types(schema)
        if types:
            small["type"] = types[0] if len(types) == 1 else list(types)
        if (form := as_text(schema.get("format"))) in _FORMATS:
            small["format"] = form
        self._add_choices(small, schema)
        small.update({key: schema[key] for key in _LIMITS if _is_number(schema.get(key))})
        default = schema.get("default")
        if default not in (None, "") and not isinstance(default, (dict, list)):
            small["default"] = default if len(str(default)) <= _MAX_DEFAULT_CHARS else None
            small = {key: value for key, value in small.items() if value is not None}
        if "array" in types or (not types and "items" in schema):
            small.setdefault("type", "array")
            items = self._small(schema.get("items"), depth - 1, trail) if depth > 0 else {}
            small["items"] = items
        elif "object" in types:
            self._add_properties(small, schema, depth, trail)
        return small

    def _add_choices(self, small: dict[str, Any], schema: Node) -> None:
        choices = [choice for choice in as_list(schema.get("enum")) if not isinstance(choice, (dict, list))]
        if "const" in schema and not isinstance(schema["const"], (dict, list)):
            choices = [schema["const"]]
        if not choices:
            return
        if len(choices) <= _MAX_CHOICES and len(str(choices)) <= _MAX_CHOICE_CHARS:
            small["enum"] = choices
            return
        some = ", ".join(str(choice) for choice in choices[:6])
        small["description"] = shortened(f"one of {len(choices)}: {some}, …", 160)

    def _add_properties(self, small: dict[str, Any], schema: Node, depth: int, trail: tuple[str, ...]) -> None:
        fields = self._own_fields(schema)
        if depth <= 0 or not fields.properties:
            extra = schema.get("additionalProperties")
            if depth > 0 and isinstance(extra, Mapping) and (inner := self._small(extra, depth - 1, trail)):
                small["additionalProperties"] = inner
            return
        small["properties"] = {name: self._small(inner, depth - 1, trail) for name, inner in fields.properties.items()}
        required = [name for name in fields.properties if name in fields.required]
        if required:
            small["required"] = required

    def _union(self, branches: Sequence[Any], depth: int, trail: tuple[str, ...]) -> dict[str, Any]:
        """What the branches add to the schema around them."""
        smalls: list[dict[str, Any]] = []
        if len(branches) <= _MAX_BRANCHES:
            for branch in branches:
                small = self._small(branch, depth, trail)
                if small not in smalls:
                    smalls.append(small)
        return _as_one(smalls)

    # --- joining -----------------------------------------------------------------------------------------------------

    def _joined(self, schema: Any, trail: tuple[str, ...], nesting: int) -> tuple[Node, tuple[str, ...]]:
        """The schema behind its references with its ``allOf`` merged in, and the references that led there."""
        self._nodes_left -= 1
        node, followed = self._references.followed(schema)
        if self._nodes_left < 0 or any(reference in trail for reference in followed):
            # A schema inside itself: the model gets its outermost round.
            return {key: node[key] for key in ("type", "description") if key in node}, trail
        trail = (*trail, *followed)
        branches = as_list(node.get("allOf"))
        if not branches or nesting >= _MAX_NESTING:
            return node, trail
        merged: dict[str, Any] = {}
        for branch in branches:
            inner, trail = self._joined(branch, trail, nesting + 1)
            _merge_into(merged, inner)
        own = {key: value for key, value in node.items() if key != "allOf"}
        _merge_into(merged, own)
        merged.update({key: own[key] for key in ("description", "default", "nullable") if key in own})
        return merged, trail

    def _unions(self, schema: Node) -> list[Sequence[Any]]:
        return [branches for key in ("oneOf", "anyOf") if (branches := as_list(schema.get(key)))]

    def _own_fields(self, schema: Node) -> Fields:
        required = {name for name in as_list(schema.get("required")) if isinstance(name, str)}
        properties = as_node(schema.get("properties"))
        # What only the server may write is nothing to be asked for.
        kept = {str(name): inner for name, inner in properties.items() if not self._is_read_only(inner)}
        extra = schema.get("additionalProperties")
        return Fields(kept, required & kept.keys(), extra is True or (isinstance(extra, Mapping)))

    def _is_read_only(self, schema: Any) -> bool:
        node = as_node(schema)
        return node.get("readOnly") is True or (
            "$ref" in node and self._references.resolved(node).get("readOnly") is True
        )

    def _is_null(self, branch: Any) -> bool:
        return self._references.resolved(branch).get("type") == "null"


def _merge_into(merged: dict[str, Any], schema: Node) -> None:
    """Add a branch of an ``allOf``: properties and required names add up, of the rest the first word holds."""
    for key, value in schema.items():
        if key == "properties":
            merged[key] = {**as_node(merged.get(key)), **as_node(value)}
        elif key == "required":
            merged[key] = [*as_list(merged.get(key)), *as_list(value)]
        else:
            merged.setdefault(key, value)


def _types(schema: Node) -> tuple[str, ...]:
    """The types a schema names or means, ``null`` last."""
    named = schema.get("type")
    wanted = [named] if isinstance(named, str) else list(as_list(named))
    if not wanted and ("properties" in schema or isinstance(schema.get("additionalProperties"), Mapping)):
        wanted = ["object"]
    if wanted == ["file"]:
        wanted = ["string"]
    if schema.get("nullable") is True and wanted:
        wanted.append("null")
    return tuple(name for name in _TYPES if name in wanted)


def _as_one(smalls: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The branches of a union in the shortest spelling that means the same, or nearly."""
    null = any(small.get("type") == "null" for small in smalls)
    rest = [small for small in smalls if small.get("type") != "null"]
    choices = [choice for small in rest for choice in as_list(small.get("enum"))]
    if rest and all(small.keys() <= {"type", "enum", "description"} and "enum" in small for small in rest):
        types = list(dict.fromkeys(small["type"] for small in rest if isinstance(small.get("type"), str)))
        return {**_typed(types, null=null), "enum": [*dict.fromkeys(choices), *([None] if null else [])]}
    if all(small.keys() <= {"type"} and isinstance(small.get("type"), str) for small in rest):
        return _typed(list(dict.fromkeys(small["type"] for small in rest if small)), null=null)
    if len(rest) == 1:
        only = dict(rest[0])
        if null and isinstance(only.get("type"), str):
            only["type"] = [only["type"], "null"]
        return only
    if any(not small for small in rest):
        return {}  # one branch allows anything
    return {"anyOf": [*rest, *([{"type": "null"}] if null else [])]}


def _typed(types: Iterable[str], *, null: bool) -> dict[str, Any]:
    names = [*types, *(["null"] if null else [])]
    return {"type": names[0] if len(names) == 1 else names} if names else {}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
