"""Gemma 4's notation for tools, calls and results: bare keys, and strings between ``<|"|>`` control tokens.

The quotation marks are control tokens, so a string needs no escapes: untrusted text cannot contain one. Keys are
sorted, as in the family's template. Source: reference toolcall-formats 1.1, and the rendering of the template that vLLM
publishes for the family.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from rkllm_mcp.messages import ToolSpec, as_list, as_mapping
from rkllm_mcp.prompt.tokenizer import ControlText, PlainText, Segment
from rkllm_mcp.prompt.tool_list import CallStyle, spaced_json

QUOTE = '<|"|>'


def gemma_value(value: Any) -> list[Segment]:
    """Return a JSON value in Gemma 4's notation."""
    if isinstance(value, str):
        return [ControlText(QUOTE), PlainText(value), ControlText(QUOTE)]
    if isinstance(value, Mapping):
        mapping = cast("Mapping[str, Any]", value)
        entries = [_entry(key, mapping[key]) for key in sorted(mapping, key=str.lower)]
        return [ControlText("{"), *_join(entries), ControlText("}")]
    if isinstance(value, Sequence):
        items = [gemma_value(item) for item in cast("Sequence[Any]", value)]
        return [ControlText("["), *_join(items), ControlText("]")]
    return [PlainText(spaced_json(value))]


def gemma_declaration(tool: ToolSpec) -> list[Segment]:
    """Return a tool as ``declaration:name{description:…,parameters:{…}}``."""
    schema = tool.shown_schema
    fields: list[list[Segment]] = []
    if schema.get("properties"):
        fields.append(_properties(schema["properties"]))
    if schema.get("required"):
        fields.append(_entry("required", list(schema["required"])))
    fields.append(_entry("type", "OBJECT"))
    return [
        PlainText(f"declaration:{tool.name}"),
        ControlText("{"),
        *_entry("description", tool.description),
        ControlText(",parameters:{"),
        *_join(fields),
        ControlText("}}"),
    ]


# The brace that opens the arguments is in the beginning of the call.
GEMMA_CALL = CallStyle(lambda name: f"call:{name}{{", lambda arguments: gemma_value(arguments)[1:])


def _entry(key: str, value: Any) -> list[Segment]:
    return [PlainText(f"{key}:"), *gemma_value(value)]


def _join(parts: Sequence[Sequence[Segment]]) -> list[Segment]:
    segments: list[Segment] = []
    for index, part in enumerate(parts):
        segments += [*([ControlText(",")] if index else []), *part]
    return segments


def _properties(properties: Mapping[str, Any]) -> list[Segment]:
    members = [[PlainText(f"{name}:"), *_property(properties[name])] for name in sorted(properties, key=str.lower)]
    return [ControlText("properties:{"), *_join(members), ControlText("}")]


def _property(schema: Any) -> list[Segment]:
    """Return one parameter: description, keywords of its type, and the type last, in capitals."""
    # JSON Schema also knows true and false.
    table = as_mapping(schema)
    kinds = list(_kinds(table))
    kind = next((name for name in kinds if name != "null"), "string")
    fields: list[list[Segment]] = []
    if table.get("description"):
        fields.append(_entry("description", str(table["description"])))
    if table.get("enum"):
        fields.append(_entry("enum", list(table["enum"])))
    if kind == "array" and isinstance(table.get("items"), Mapping):
        fields.append([PlainText("items:"), *_property(table["items"])])
    if "null" in kinds or table.get("nullable"):
        fields.append(_entry("nullable", value=True))
    if kind == "object" and table.get("properties"):
        fields.append(_properties(table["properties"]))
        if table.get("required"):
            fields.append(_entry("required", list(table["required"])))
    fields.append(_entry("type", kind.upper()))
    return [ControlText("{"), *_join(fields), ControlText("}")]


def _kinds(schema: Mapping[str, Any]) -> Iterator[str]:
    """Return the allowed types; the template has no unions, so they are written as one type, possibly nullable."""
    kind: Any = schema.get("type")
    if isinstance(kind, str):
        yield kind
    else:
        yield from map(str, as_list(kind))
    for inner in (*as_list(schema.get("anyOf")), *as_list(schema.get("oneOf"))):
        yield from _kinds(as_mapping(inner))
