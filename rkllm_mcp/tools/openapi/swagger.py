"""Swagger 2.0 -> OpenAPI 3; some large APIs publish only the old version.

Only the differences are rewritten: addresses, body and form parameters, list formats, and names of security.
Definitions stay in place, so references to them remain valid.

Reference: Swagger 2.0 specification; OpenAPI 3.0.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rkllm_mcp.tools.openapi.references import Node, References, as_list, as_node, as_text

_STYLES = {
    "multi": {"style": "form", "explode": True},
    "ssv": {"style": "spaceDelimited", "explode": False},
    "pipes": {"style": "pipeDelimited", "explode": False},
}
_METHODS = ("get", "post", "put", "patch", "delete", "head", "options")
_PLACES = frozenset({"path", "query", "header"})
_BESIDE_THE_SCHEMA = frozenset({"name", "in", "description", "required", "collectionFormat", "allowEmptyValue"})


def is_swagger(document: Node) -> bool:
    """Return True for a specification of version 2."""
    return str(document.get("swagger", "")).startswith("2")


def upgraded(document: Node) -> dict[str, Any]:
    """Return the same API as OpenAPI 3."""
    references = References(document)
    paths = {
        str(path): _path(as_node(references.resolved(item)), document, references)
        for path, item in as_node(document.get("paths")).items()
    }
    schemes = {name: _scheme(as_node(value)) for name, value in as_node(document.get("securityDefinitions")).items()}
    return {
        **document,
        "openapi": "3.0.0",
        "servers": _servers(document),
        "paths": paths,
        "components": {"securitySchemes": schemes},
    }


def _servers(document: Node) -> list[dict[str, str]]:
    host, base = as_text(document.get("host")), as_text(document.get("basePath"))
    base = f"/{base.strip('/')}"
    if not host:
        return [{"url": base}]
    schemes = [scheme for scheme in as_list(document.get("schemes")) if scheme in {"http", "https"}]
    return [{"url": f"{'https' if 'https' in schemes or not schemes else 'http'}://{host}{base}"}]


def _scheme(definition: Node) -> Node:
    return {"type": "http", "scheme": "basic"} if definition.get("type") == "basic" else definition


def _path(item: Node, document: Node, references: References) -> dict[str, Any]:
    shared = as_list(item.get("parameters"))
    path: dict[str, Any] = {key: value for key, value in item.items() if key != "parameters"}
    for method in _METHODS:
        if isinstance(item.get(method), Mapping):
            path[method] = _operation(as_node(item[method]), shared, document, references)
    return path


def _operation(operation: Node, shared: Any, document: Node, references: References) -> dict[str, Any]:
    parameters: dict[tuple[str, str], Node] = {}
    for value in (*shared, *as_list(operation.get("parameters"))):
        definition = references.resolved(value)
        parameters[as_text(definition.get("in")), str(definition.get("name", ""))] = definition
    consumes = as_list(operation.get("consumes")) or as_list(document.get("consumes"))
    changed = dict(operation)
    changed["parameters"] = [_parameter(value) for (place, _), value in parameters.items() if place in _PLACES]
    body = _body([value for (place, _), value in parameters.items() if place in {"body", "formData"}], consumes)
    if body:
        changed["requestBody"] = body
    return changed


def _parameter(definition: Node) -> dict[str, Any]:
    beside = {key: definition[key] for key in ("name", "in", "description", "required") if key in definition}
    lists = _STYLES.get(as_text(definition.get("collectionFormat")), {"explode": False})
    return {**beside, "schema": _schema(definition), **(lists if definition.get("type") == "array" else {})}


def _schema(definition: Node) -> dict[str, Any]:
    return {key: value for key, value in definition.items() if key not in _BESIDE_THE_SCHEMA}


def _body(definitions: list[Node], consumes: Any) -> dict[str, Any]:
    whole = next((definition for definition in definitions if definition.get("in") == "body"), None)
    types = [media_type for media_type in consumes if isinstance(media_type, str)]
    if whole is not None:
        content = {media_type: {"schema": whole.get("schema")} for media_type in types or ["application/json"]}
        return {"content": content, "required": whole.get("required"), "description": whole.get("description")}
    if not definitions:
        return {}
    has_file = any(definition.get("type") == "file" for definition in definitions)
    is_multipart = has_file or (types and all(media_type.startswith("multipart/") for media_type in types))
    schema = {
        "type": "object",
        "properties": {
            str(definition.get("name", "")): {**_schema(definition), "description": definition.get("description")}
            for definition in definitions
        },
        "required": [definition.get("name") for definition in definitions if definition.get("required") is True],
    }
    media_type = "multipart/form-data" if is_multipart else "application/x-www-form-urlencoded"
    return {"content": {media_type: {"schema": schema}}}
