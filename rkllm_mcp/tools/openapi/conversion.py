"""Specification -> operations, leniently: an operation that cannot be read does not affect the others.

Each operation is converted at the highest detail whose arguments fit the budget of one tool; names and required
arguments are never dropped. Omitted and unreadable parts are reported as notes.

Reference: OpenAPI 3.0.4 and 3.1.1. Frequent mistakes of real specifications are accepted: placeholders without a
parameter, unknown types, numeric keys, duplicate ids.
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
# JSON characters of one tool's arguments; about 500 tokens, so a model with 4,000 tokens can hold a few tools.
SCHEMA_CHARS = 2000
_DETAILS = (Detail(3, 140, 70), Detail(2, 90, 40), Detail(1, 60, 0), Detail(1, 0, 0), Detail(0, 0, 0, nodes=5000))


@dataclass(frozen=True)
class Conversion:
    """Result of a conversion."""

    operations: tuple[Operation, ...]  # in the order of the specification
    notes: tuple[str, ...]  # one line per omitted part, with the reason


@dataclass
class _ConversionState:
    """State of one conversion."""

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
    """Return the operations of a specification, given as plain values.

    ``base_url`` replaces the address of the specification for every operation; ``spec_url`` is empty if the
    specification did not come from a URL. ``supplied`` holds the lower-case names of headers, query parameters and
    cookies that the configuration fills; they are not arguments of the tools.
    """
    if is_swagger(document):
        document = upgraded(document)
    references = References(document)
    schemes = schemes_of(as_node(as_node(document.get("components")).get("securitySchemes")), references)
    state = _ConversionState(document, base_url.rstrip("/"), spec_url, supplied, references, schemes)
    operations: list[Operation] = []
    notes: list[str] = []
    for method, path, item, node in _methods(document, references):
        operation = _operation_or_reason(state, method, path, item, node)
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


def _operation_or_reason(state: _ConversionState, method: str, path: str, item: Node, node: Node) -> Operation | str:
    try:
        operation = _operation(state, method, path, item, node)
        measure_schema(operation.input_schema)
        return operation
    except SchemaCostError as error:
        return f"the schema of its arguments takes too much work: {error}"
    except Exception as error:  # noqa: BLE001  (a broken operation must not prevent the conversion of the others)
        return f"it cannot be read, {type(error).__name__}: {str(error)[:200]}"


def _operation(state: _ConversionState, method: str, path: str, item: Node, node: Node) -> Operation:
    # A YAML id can be a number.
    operation_id = str(node.get("operationId") or "")
    name = operation_name(operation_id, method, path, state.names)
    arguments, schema = _within_budget(state, method, path, item, node)
    state.names.add(name)
    security = node.get("security", state.root.get("security"))
    levels = (node.get("servers"), item.get("servers"), state.root.get("servers"))
    summary = as_text(node.get("summary")) or as_text(item.get("summary"))
    description = as_text(node.get("description")) or as_text(item.get("description"))
    return Operation(
        name=name,
        id=operation_id,
        method=method.upper(),
        path=path,
        address=state.base_url or address_of(levels, state.spec_url),
        description=described(summary, description, DESCRIPTION_CHARS) or f"{method.upper()} {path}",
        input_schema=schema,
        tags=tuple(str(tag) for tag in as_list(node.get("tags"))),
        parameters=arguments.parameters,
        body=arguments.body,
        security=alternatives(security, state.schemes),
    )


def _within_budget(
    state: _ConversionState, method: str, path: str, item: Node, node: Node
) -> tuple[Arguments, dict[str, Any]]:
    """Return the arguments at the highest detail within the budget, else at the lowest detail."""
    arguments = Arguments()
    schema: dict[str, Any] = {}
    for detail in _DETAILS:
        schemas = Schemas(state.references, detail)
        arguments = arguments_of(method, path, item, node, schemas, state.references, state.supplied)
        schema = {"type": "object", "properties": arguments.properties}
        if arguments.required:
            schema["required"] = list(arguments.required)
        if not schemas.is_exhausted and len(json.dumps(schema, ensure_ascii=False, default=str)) <= SCHEMA_CHARS:
            break
    return arguments, schema
