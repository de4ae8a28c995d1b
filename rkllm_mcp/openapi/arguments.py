"""Parameters and body of an operation -> one set of arguments, with the destination of each.

Reference: OpenAPI 3.0.4 and 3.1.1, Parameter, Request Body, Media Type and Encoding Object; mission "MCP統合設計",
パラメータの統合. The precedence for equal names (path, query, header, cookie, body) is our choice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

from rkllm_mcp.messages import as_list, as_mapping
from rkllm_mcp.openapi.document import Node, References, as_text
from rkllm_mcp.openapi.operations import PLACEHOLDER, BodyField, BodySpec, Location, Parameter, argument_key, sent_path
from rkllm_mcp.openapi.schemas import Schemas

_LOCATIONS: tuple[Location, ...] = ("path", "query", "header", "cookie")
_DEFAULT_STYLES = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}
_STYLES = {
    "path": {"simple", "label", "matrix"},
    "query": {"form", "spaceDelimited", "pipeDelimited", "deepObject"},
    "header": {"simple"},
    "cookie": {"form"},
}
# OpenAPI requires the first three to be ignored; the others belong to the connection.
_NOT_PARAMETERS = frozenset(
    {"accept", "content-type", "authorization", "host", "content-length", "connection", "transfer-encoding", "cookie"}
)
# In order of preference.
_MEDIA_TYPES = (
    re.compile(r"application/json"),
    re.compile(r"[^/]+/[^;]*\+json"),
    re.compile(r"\*/\*|application/\*|[^/]+/[^;]*json"),
    re.compile(r"application/x-www-form-urlencoded"),
    re.compile(r"multipart/"),
    re.compile(r"text/"),
)


@dataclass
class Arguments:
    """Arguments of an operation."""

    properties: dict[str, Any] = field(default_factory=dict[str, Any])  # schema by key
    required: list[str] = field(default_factory=list[str])  # required keys, in order
    parameters: tuple[Parameter, ...] = ()  # arguments outside the body
    body: BodySpec | None = None  # None without a body

    def add(self, name: str, location: str, schema: dict[str, Any], *, required: bool) -> str:
        """Add an argument and return its key."""
        key = argument_key(name, location, self.properties)
        self.properties[key] = schema
        if required:
            self.required.append(key)
        return key


def arguments_of(
    method: str, path: str, item: Node, node: Node, schemas: Schemas, references: References, supplied: frozenset[str]
) -> Arguments:
    """Return the arguments of one operation, but for those that the configuration fills (``supplied``, lower case)."""
    arguments = Arguments()
    declared: dict[tuple[str, str], dict[str, Any]] = {}
    # An operation's own parameters replace those of its path.
    for value in (*as_list(item.get("parameters")), *as_list(node.get("parameters"))):
        definition = references.resolve(value)
        name, place = str(definition.get("name") or ""), as_text(definition.get("in"))
        is_fixed = place == "header" and name.lower() in _NOT_PARAMETERS
        if name and place in _LOCATIONS and not is_fixed and not (place != "path" and name.lower() in supplied):
            declared[place, name] = {**definition, "name": name, "in": place}
    in_path = list(dict.fromkeys(match.group(2) for match in PLACEHOLDER.finditer(sent_path(path))))
    for name in in_path:
        # Specifications also declare as a query parameter what their path holds: /search?q={q}.
        own = declared.get(("path", name)) or declared.pop(("query", name), {"schema": {"type": "string"}})
        declared["path", name] = {**own, "name": name, "in": "path"}
    in_order = [("path", name) for name in in_path]
    in_order += [(place, name) for location in _LOCATIONS[1:] for place, name in declared if place == location]
    parameters: list[Parameter] = []
    for place_and_name in in_order:
        definition = declared[place_and_name]
        location = cast("Location", definition["in"])
        schema, style = definition.get("schema"), ""
        for media_type, content in islice(as_mapping(definition.get("content")).items(), 1):
            # Its value is a document.
            schema, style = as_mapping(content).get("schema"), "json" if "json" in str(media_type) else ""
        small = schemas.argument(schema, as_text(definition.get("description")))
        required = location == "path" or definition.get("required") is True
        key = arguments.add(definition["name"], location, small, required=required)
        declared_style = as_text(definition.get("style"))
        style = style or (declared_style if declared_style in _STYLES[location] else _DEFAULT_STYLES[location])
        explode = definition.get("explode")
        explode = explode if isinstance(explode, bool) else style == "form"
        is_reserved = definition.get("allowReserved") is True
        parameters.append(Parameter(key, definition["name"], location, style, explode, is_reserved))
    arguments.parameters = tuple(parameters)
    body = references.resolve(node.get("requestBody"))
    if body:
        arguments.body = _body(arguments, method, body, schemas, references)
    return arguments


def _body(arguments: Arguments, method: str, body: Node, schemas: Schemas, references: References) -> BodySpec | None:
    offered = {
        str(name).lower().partition(";")[0].strip(): as_mapping(value)
        for name, value in as_mapping(body.get("content")).items()
    }
    acceptable = ((pattern, name) for pattern in _MEDIA_TYPES for name in offered if pattern.match(name))
    pattern, offered_type = next(acceptable, (None, next(iter(offered), "application/json")))
    content = offered.get(offered_type, as_mapping(None))
    # A range is not a content type; an API that accepts any type accepts JSON.
    is_range = pattern is not None and "*" in offered_type and pattern is not _MEDIA_TYPES[-1]
    media_type = "application/json" if is_range else offered_type
    schema = content.get("schema")
    is_form = "form" in media_type or media_type.startswith("multipart/")
    fields = schemas.fields(schema) if is_form or "json" in media_type else None
    # Many specifications omit ``required`` of the body; a required field implies it.
    declared = body.get("required")
    must = declared is True or (
        declared is None and method in {"post", "put", "patch"} and bool(fields and fields.required)
    )
    if fields is None:
        description = as_text(body.get("description")) or ("" if "json" in media_type else f"{media_type} content")
        # XML and similar types have schemas too, but a model can only write them as text.
        is_text = schema is None or not (is_form or "json" in media_type)
        small = schemas.argument({"type": "string"} if is_text else schema, description)
        key = arguments.add("body", "body", small, required=declared is True)
        return BodySpec(media_type, whole=key, required=declared is True)
    encodings = as_mapping(content.get("encoding"))
    body_fields: list[BodyField] = []
    for name, field_schema in fields.properties.items():
        small = schemas.argument(field_schema)
        key = arguments.add(name, "body", small, required=must and name in fields.required)
        encoding = as_mapping(encodings.get(name))
        explode = encoding.get("explode")
        style = as_text(encoding.get("style"))
        explode = explode if isinstance(explode, bool) else style in ("", "form")
        content_type = as_text(encoding.get("contentType")).partition(",")[0].strip()
        value = references.resolve(field_schema)
        if value.get("type") == "array":
            value = references.resolve(value.get("items"))
        is_binary = as_text(value.get("contentMediaType")) == "application/octet-stream"
        is_file = is_binary or value.get("format") == "binary" or value.get("type") == "file"
        body_fields.append(BodyField(key, name, style, explode, content_type, is_file))
    return BodySpec(media_type, tuple(body_fields), required=must, open=fields.open)
