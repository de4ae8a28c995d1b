"""REST API as a tool server: loads its specification, converts operations to tools and calls to requests.

The specification comes from a file, a URL or the configuration itself; it is
parsed in a thread, because a large one takes half a second of CPU. Tokens are filled in per call and not stored.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import anyio
import anyio.to_thread

from rkllm_mcp import __version__
from rkllm_mcp.config.addresses import Reach, origin_of
from rkllm_mcp.config.header_templates import MissingTokenError, fill, placeholders, redact, secrets_of, tokens_for
from rkllm_mcp.config.servers import OpenAPIServer, matches_any
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.messages import ToolSpec, as_list, as_mapping
from rkllm_mcp.openapi.arguments import Arguments, arguments_of
from rkllm_mcp.openapi.client import HttpClientError, open_http_client, result_of
from rkllm_mcp.openapi.document import (
    DocumentError,
    Node,
    References,
    as_text,
    parse_document,
    upgrade,
)
from rkllm_mcp.openapi.operations import Operation, Scheme, describe, operation_name, sent_path
from rkllm_mcp.openapi.request import Request, address_of, request_for
from rkllm_mcp.openapi.schemas import Detail, Schemas
from rkllm_mcp.openapi.security import credentials_for, schemes_of
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.toolcalls.arguments import ArgumentError
from rkllm_mcp.toolcalls.results import text_result
from rkllm_mcp.toolcalls.schemas import SchemaCostError, measure_schema

if TYPE_CHECKING:
    from rkllm_mcp.openapi.client import HttpClient


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
    document = upgrade(document)
    references = References(document)
    schemes = schemes_of(as_mapping(as_mapping(document.get("components")).get("securitySchemes")), references)
    state = _ConversionState(document, base_url.rstrip("/"), spec_url, supplied, references, schemes)
    operations: list[Operation] = []
    notes: list[str] = []
    for path, value in as_mapping(document.get("paths")).items():
        item = references.resolve(value)
        for method in METHODS:
            if not isinstance(item.get(method), Mapping):
                continue
            left_out = f"{method.upper()} {path} is left out"
            try:
                operation = _operation(state, method, str(path), item, as_mapping(item[method]))
                measure_schema(operation.input_schema)
                operations.append(operation)
            except SchemaCostError as error:
                notes.append(f"({left_out}: the schema of its arguments takes too much work: {error})")
            except Exception as error:  # noqa: BLE001  (a broken operation must not prevent the conversion of the others)
                notes.append(f"({left_out}: it cannot be read, {type(error).__name__}: {str(error)[:200]})")
    return Conversion(tuple(operations), (*notes, *(f"({note})" for note in references.notes)))


def _operation(state: _ConversionState, method: str, path: str, item: Node, node: Node) -> Operation:
    # A YAML id can be a number.
    operation_id = str(node.get("operationId") or "")
    name = operation_name(operation_id, method, path, state.names)
    # The highest detail within the budget, else the lowest.
    arguments = Arguments()
    schema: dict[str, Any] = {}
    for detail in _DETAILS:
        schemas = Schemas(state.references, detail)
        arguments = arguments_of(method, path, item, node, schemas, state.references, state.supplied)
        schema = {"type": "object", "properties": arguments.properties}
        if arguments.required:
            schema["required"] = list(arguments.required)
        if schemas.nodes_left >= 0 and len(json.dumps(schema, ensure_ascii=False, default=str)) <= SCHEMA_CHARS:
            break
    state.names.add(name)
    requirements = as_list(node.get("security", state.root.get("security")))
    names_of_schemes = [list(as_mapping(requirement)) for requirement in requirements]
    levels = (node.get("servers"), item.get("servers"), state.root.get("servers"))
    summary = as_text(node.get("summary")) or as_text(item.get("summary"))
    description = as_text(node.get("description")) or as_text(item.get("description"))
    return Operation(
        name=name,
        id=operation_id,
        method=method.upper(),
        path=path,
        address=state.base_url or address_of(levels, state.spec_url),
        description=describe(summary, description, DESCRIPTION_CHARS) or f"{method.upper()} {path}",
        input_schema=schema,
        tags=tuple(str(tag) for tag in as_list(node.get("tags"))),
        parameters=arguments.parameters,
        body=arguments.body,
        # An alternative with an unknown scheme cannot be met.
        security=tuple(
            tuple(state.schemes[scheme] for scheme in names)
            for names in names_of_schemes
            if all(scheme in state.schemes for scheme in names)
        ),
    )


# The largest published specification has 13 MB.
_MAX_SPEC_BYTES = 64 * 1024 * 1024
# More than any model reads; the toolbox truncates for the current model.
_MAX_RESPONSE_BYTES = 2 * 1024 * 1024
# More notes would displace the other notes of the server.
_MAX_NOTES = 20
_READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "QUERY"})


class RestApi:
    """Operations of an API, ready to be called."""

    def __init__(self, spec: OpenAPIServer, operations: Sequence[Operation], exchange: HttpClient) -> None:
        self._spec = spec
        self._operations = {operation.name: operation for operation in operations}
        self._exchange = exchange
        self.tools = tuple(map(tool_of, operations))

    async def call(self, tool: str, arguments: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        """Send the request of a call; every response of the API becomes a result."""
        operation = self._operations.get(tool)
        if operation is None:
            return text_result(f"The API has no operation '{tool}'.", is_error=True)
        template = self._spec.headers_template
        secrets = secrets_of(template, context.tokens)
        try:
            # As for other servers, a template with one placeholder accepts the token under the server's name.
            tokens = {**context.tokens, **tokens_for(self._spec.name, template, context.tokens)}
            written = fill(template, tokens)
            credentials = credentials_for(operation, written, context.tokens, self._spec.name)
            request = request_for(operation, arguments, credentials)
            answer = await self._exchange.send(request, _MAX_RESPONSE_BYTES, secrets)
        except (ArgumentError, MissingTokenError, HttpClientError) as error:
            return text_result(redact(str(error), secrets), is_error=True)
        return result_of(operation, answer, secrets, _MAX_RESPONSE_BYTES)


@asynccontextmanager
async def open_openapi(spec: OpenAPIServer, note: Callable[[str], None]) -> AsyncGenerator[RestApi]:
    """Load a specification.

    ``note`` receives a line for each omitted part. A ServerUnavailableError if the specification cannot be loaded or
    read, or names no address of the API.
    """
    await anyio.to_thread.run_sync(importlib.import_module, "rkllm_mcp.openapi.client", abandon_on_cancel=True)
    # A specification that its owner has given as file or text may name any address.
    reach = None
    if not isinstance(spec.openapi_spec, Mapping) and spec.openapi_spec.startswith(("http://", "https://")):
        advice = "set openapi_base_url if it is the right address"
        reach = Reach(spec.openapi_spec, [spec.openapi_base_url], advice)
    async with open_http_client(spec.connect_timeout_s, spec.timeout_s, f"rkllm-mcp/{__version__}", reach) as exchange:
        document, spec_url = await _document(spec, exchange)
        work = partial(_convert, document, spec, spec_url)
        conversion = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        for remark in conversion.notes[:_MAX_NOTES]:
            note(remark)
        if len(conversion.notes) > _MAX_NOTES:
            note(f"(and {len(conversion.notes) - _MAX_NOTES} more remarks of this kind)")
        operations = [
            operation
            for operation in conversion.operations
            if (spec.include is None or _is_named(operation, spec.include)) and not _is_named(operation, spec.exclude)
        ]
        addresses = dict.fromkeys(operation.address for operation in operations)
        if operations and not any(addresses):
            raise ServerUnavailableError("its openapi_spec names no address of the API; set openapi_base_url")
        if reach is not None:
            refusals = [reach.refusal(address) for address in addresses]
            if refusals and refusals[0] and all(refusals):
                raise refusals[0]
        yield RestApi(spec, operations, exchange)


def _convert(document: Mapping[str, Any] | bytes, spec: OpenAPIServer, spec_url: str) -> Conversion:
    try:
        values = parse_document(document) if isinstance(document, bytes) else document
    except DocumentError as error:
        raise ServerUnavailableError(f"its openapi_spec cannot be read: {error}; correct it") from None
    version = str(values.get("openapi") or values.get("swagger") or "")
    if not isinstance(values.get("paths"), Mapping) and not version:
        raise ServerUnavailableError("its openapi_spec is not an OpenAPI document: it has no 'paths'; name another")
    supplied = frozenset(name.lower() for name in spec.headers_template)
    return convert(values, base_url=spec.openapi_base_url or "", spec_url=spec_url, supplied=supplied)


def _is_named(operation: Operation, patterns: Sequence[str]) -> bool:
    names = (operation.name, operation.id, operation.path, f"{operation.method} {operation.path}", *operation.tags)
    return any(matches_any(name, patterns) for name in names if name)


def tool_of(operation: Operation) -> ToolSpec:
    """Return the tool of an operation, without its server."""
    return ToolSpec(
        name=operation.name,
        description=operation.description,
        input_schema=operation.input_schema,
        read_only=operation.method in _READ_METHODS,
        destructive=operation.method == "DELETE",
        keywords=" ".join((*operation.tags, sent_path(operation.path))),
        target=f"{operation.method} {operation.address}",
    )


async def _document(spec: OpenAPIServer, exchange: HttpClient) -> tuple[Mapping[str, Any] | bytes, str]:
    """Return the specification, parsed or as bytes, and its URL."""
    address = spec.openapi_spec
    if isinstance(address, Mapping):
        return address, ""
    if (file := specification_file(address)) is not None:
        try:
            return await anyio.Path(file).read_bytes(), ""
        except OSError as error:
            reason = error.strerror or type(error).__name__
            problem = f"its openapi_spec {address} cannot be read: {reason}; correct the path"
            raise ServerUnavailableError(problem) from None
    if not address.startswith(("http://", "https://")):
        return address.encode("utf-8", "replace"), ""
    headers = {"Accept": "application/json, application/yaml;q=0.9, */*;q=0.5"}
    # The API's own keys are sent only to the configured address of the API.
    if spec.openapi_base_url and origin_of(address) == origin_of(spec.openapi_base_url):
        headers |= {name: text for name, text in spec.headers_template.items() if not placeholders(text)}
    secrets = secrets_of(spec.headers_template, {})
    try:
        answer = await exchange.send(Request("GET", address, headers), _MAX_SPEC_BYTES, secrets, any_type=True)
    except HttpClientError as error:
        raise ServerUnavailableError(f"its openapi_spec could not be fetched. {error}".rstrip(".")) from None
    if answer.status != 200 or answer.is_cut:
        what = f"{answer.status} {answer.reason}" if answer.status != 200 else f"more than {_MAX_SPEC_BYTES} bytes"
        raise ServerUnavailableError(f"its openapi_spec could not be fetched: {what}; correct the address")
    return answer.content, address


def specification_file(address: str) -> Path | None:
    """Return the file that an ``openapi_spec`` names; None for a URL or an inline specification."""
    if address.lstrip().startswith("{") or "\n" in address or address.startswith(("http://", "https://")):
        return None
    return Path(unquote(urlsplit(address).path) if address.startswith("file://") else address)
