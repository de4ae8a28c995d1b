"""A specification becomes operations: lenient, so that one that cannot be read costs itself and no other.

Every operation is converted by itself, at the highest detail whose arguments stay within the budget of one tool; names
and what is required are never cut. What was left out or could not be read is a note.

Followed: OpenAPI 3.0.4 and 3.1.1. What real specifications get wrong and still mean is taken as meant: placeholders
    without a parameter, types that are none, keys that are numbers, ids that are used twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rkllm_mcp.toolcalls.schemas import SchemaCostError, measure_schema
from rkllm_mcp.tools.openapi.addresses import address_of
from rkllm_mcp.tools.openapi.arguments import Arguments, arguments_of
from rkllm_mcp.tools.openapi.naming import operation_name
from rkllm_mcp.tools.openapi.operation import Operation, Scheme
from rkllm_mcp.tools.openapi.references import Node, References, as_list, as_node, as_text
from rkllm_mcp.tools.openapi.schemas import Detail, Schemas
from rkllm_mcp.tools.openapi.security import alternatives, schemes_of
from rkllm_mcp.tools.openapi.swagger import is_swagger, upgraded
from rkllm_mcp.tools.openapi.wording import described

METHODS = ("get", "post", "put", "patch", "delete", "head", "options", "trace", "query")
DESCRIPTION_CHARS = 240
# Characters of one tool's arguments as JSON; about 500 tokens, and a model of 4,000 holds a handful of tools.
SCHEMA_CHARS = 2000
_DETAILS = (Detail(3, 140, 70), Detail(2, 90, 40), Detail(1, 60, 0), Detail(1, 0, 0), Detail(0, 0, 0, nodes=5000))


@dataclass(frozen=True)
class Conversion:
    """What became of a specification.

    Args:
        operations: in its order.
        notes: one line about everything that was left out, and why.
    """

    operations: tuple[Operation, ...]
    notes: tuple[str, ...]


@dataclass
class _Reading:
    """A specification being read."""

    root: Node
    base_url: str
    spec_url: str
    supplied: frozenset[str]
    references: References
    schemes: Mapping[str, Scheme]
    names: set[str] = field(default_factory=set[str])


def convert(
    document: Node, *, base_url: str = "", spec_url: str = "", supplied: frozenset[str] = frozenset()
) -> Conversion:
    """The operations of a specification.

    Args:
        document: the specification as plain values.
        base_url: the address of the API, where it is not the specification's to say; it holds for every operation.
        spec_url: where the specification came from; empty where that is no URL.
        supplied: names in lower case of headers, query parameters and cookies that the configuration fills, which a
            model is therefore not asked for.
    """
    if is_swagger(document):
        document = upgraded(document)
    references = References(document)
    schemes = schemes_of(as_node(as_node(document.get("components")).get("securitySchemes")), references)
    reading = _Reading(document, base_url.rstrip("/"), spec_url, supplied, references, schemes)
    operations: list[Operation] = []
    notes: list[str] = []
    for method, path, item, node in _methods(document, references):
        operation = _operation_or_reason(reading, method, path, item, node)
        if isinstance(operation, Operation):
            operations.append(operation)
        else:
            notes.append(f"({method.upper()} {path} is left out: {operation})")
    return Conversion(tuple(operations), (*notes, *(f"({note})" for note in references.notes)))


def _methods(document: Node, references: References) -> Iterator[tuple[str, str, Node, Node]]:
    for path, value in as_node(document.get("paths")).items():
        item = references.resolved(value)
        for method in METHODS:
            if isinstance(item.get(method), Mapping):
                yield method, str(path), item, as_node(item[method])


def _operation_or_reason(reading: _Reading, method: str, path: str, item: Node, node: Node) -> Operation | str:
    try:
        operation = _operation(reading, method, path, item, node)
        measure_schema(operation.input_schema)
        return operation
    except SchemaCostError as error:
        return f"the schema of its arguments takes too much work: {error}"
    except Exception as error:  # noqa: BLE001  (whatever one operation is like, the others are converted)
        return f"it cannot be read, {type(error).__name__}: {str(error)[:200]}"


def _operation(reading: _Reading, method: str, path: str, item: Node, node: Node) -> Operation:
    # In YAML an id may be a number.
    operation_id = str(node.get("operationId") or "")
    name = operation_name(operation_id, method, path, reading.names)
    arguments, schema = _within_budget(reading, method, path, item, node)
    reading.names.add(name)
    security = node.get("security", reading.root.get("security"))
    levels = (node.get("servers"), item.get("servers"), reading.root.get("servers"))
    summary = as_text(node.get("summary")) or as_text(item.get("summary"))
    description = as_text(node.get("description")) or as_text(item.get("description"))
    return Operation(
        name=name,
        id=operation_id,
        method=method.upper(),
        path=path,
        address=reading.base_url or address_of(levels, reading.spec_url),
        description=described(summary, description, DESCRIPTION_CHARS) or f"{method.upper()} {path}",
        input_schema=schema,
        tags=tuple(str(tag) for tag in as_list(node.get("tags"))),
        parameters=arguments.parameters,
        body=arguments.body,
        security=alternatives(security, reading.schemes),
    )


def _within_budget(
    reading: _Reading, method: str, path: str, item: Node, node: Node
) -> tuple[Arguments, dict[str, Any]]:
    """The arguments at the highest detail that the budget allows; at the lowest whatever they take."""
    arguments = Arguments()
    schema: dict[str, Any] = {}
    for detail in _DETAILS:
        schemas = Schemas(reading.references, detail)
        arguments = arguments_of(method, path, item, node, schemas, reading.references, reading.supplied)
        schema = {"type": "object", "properties": arguments.properties}
        if arguments.required:
            schema["required"] = list(arguments.required)
        if not schemas.is_exhausted and len(json.dumps(schema, ensure_ascii=False, default=str)) <= SCHEMA_CHARS:
            break
    return arguments, schema
