"""A tool as one line: name, parameters with their types, and what they mean.

``get_weather(location: string, unit?: "c"|"f") — Weather of a place. location: a city`` says all that a call needs in
less than half the tokens of its JSON: types, enums, which parameters may be left out (``?``), and every description.
Models were trained on the JSON, so this is a choice of the owner's (``tool_listing = "compact"``). Our choice, after
the measurements of reference toolcall-formats 6.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from rkllm_mcp.messages import ToolSpec

_UNIONS = ("anyOf", "oneOf")
# Below this depth, and where a schema refers to itself, an object is just an object.
_MAX_DEPTH = 4
_SPACE = re.compile(r"\s+")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z")


@dataclass(frozen=True)
class _Place:
    """Where in a schema a type stands: the document that references mean, and what is being written around it."""

    root: Mapping[str, Any]
    within: frozenset[str] = frozenset()
    depth: int = 0

    def inner(self, references: frozenset[str] = frozenset()) -> _Place:
        return replace(self, within=self.within | references, depth=self.depth + 1)


def signature(tool: ToolSpec) -> str:
    """``tool`` as one line."""
    schema = tool.input_schema
    notes = [
        f"{_name(name)}: {description}"
        for name, inner in _properties(schema).items()
        if (description := _one_line(_table(inner).get("description", "")))
    ]
    description = _one_line(tool.description)
    if description and notes and description[-1] not in ".!?。！？":
        description += "."
    words = " ".join(filter(None, (description, "; ".join(notes))))
    line = f"{tool.name}({_parameters(schema, _Place(schema))})" + (f" — {words}" if words else "")
    # A description must not end the list, which is plain text to some models.
    return line.replace("</tool", "< /tool")


def _parameters(schema: Mapping[str, Any], place: _Place) -> str:
    required = cast("Sequence[str]", schema.get("required") or ())
    return ", ".join(
        f"{_name(name)}{'' if name in required else '?'}: {_type(inner, place)}"
        for name, inner in _properties(schema).items()
    )


def _type(schema: Any, place: _Place) -> str:
    table, references = _resolved(_table(schema), place.root)
    if "enum" in table or "const" in table:
        values: Sequence[Any] = table["enum"] if "enum" in table else [table["const"]]
        return "|".join(json.dumps(value, ensure_ascii=False) for value in values)
    if place.depth > _MAX_DEPTH or references & place.within:
        return "object"
    inner = place.inner(references)
    for keyword in _UNIONS:
        if table.get(keyword):
            return _union([_type(each, inner) for each in table[keyword]])
    kind: Any = table.get("type")
    if isinstance(kind, list):
        return _union([_named(str(name), table, inner) for name in cast("list[Any]", kind)])
    return _named(str(kind or ("object" if "properties" in table else "any")), table, inner)


def _named(kind: str, table: Mapping[str, Any], place: _Place) -> str:
    if kind == "array":
        inner = _type(table["items"], place) if "items" in table else "any"
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if kind == "object" and _properties(table):
        return f"{{{_parameters(table, place)}}}"
    return kind


def _union(types: Sequence[str]) -> str:
    return "|".join(dict.fromkeys(types))


def _resolved(table: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[Mapping[str, Any], frozenset[str]]:
    """The schema that a reference within the document means, and the references followed; others stay as they are."""
    seen: set[str] = set()
    while isinstance(reference := table.get("$ref"), str) and reference.startswith("#/") and reference not in seen:
        seen.add(reference)
        found: Any = root
        for part in reference[2:].split("/"):
            found = _table(found).get(part.replace("~1", "/").replace("~0", "~"))
        table = {**_table(found), **{key: value for key, value in table.items() if key != "$ref"}}
    return table, frozenset(seen)


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return _table(schema.get("properties"))


def _table(value: Any) -> Mapping[str, Any]:
    """A schema as a table; JSON Schema also knows true and false."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _name(name: str) -> str:
    return name if _IDENTIFIER.match(name) else json.dumps(name, ensure_ascii=False)


def _one_line(text: Any) -> str:
    return _SPACE.sub(" ", str(text)).strip()
