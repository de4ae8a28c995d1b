"""REST API as a tool server: loads its specification, converts operations to tools and calls to requests.

``LoadedSource`` opens ``open_openapi``. The specification comes from a file, a URL or the configuration itself; it is
parsed in a thread, because a large one takes half a second of CPU. Tokens are filled in per call and not stored.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import anyio
import anyio.to_thread

from rkllm_mcp import __version__
from rkllm_mcp.calling import CallContext
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.toolcalls.arguments import ArgumentError
from rkllm_mcp.tools.openapi.addresses import origin_of
from rkllm_mcp.tools.openapi.answers import result_of, text_result
from rkllm_mcp.tools.openapi.conversion import Conversion, convert
from rkllm_mcp.tools.openapi.document import DocumentError, parse_document
from rkllm_mcp.tools.openapi.operation import Operation
from rkllm_mcp.tools.openapi.requests import Request, request_for
from rkllm_mcp.tools.openapi.security import credentials_for
from rkllm_mcp.tools.servers import ServerSpec
from rkllm_mcp.tools.tokens import MissingTokenError, fill, placeholders, redacted, secrets_of, tokens_for
from rkllm_mcp.tools.transports.lines import LastLines

if TYPE_CHECKING:
    from rkllm_mcp.tools.openapi.exchange import Exchange

# The largest published specification has 13 MB.
_MAX_SPEC_BYTES = 64 * 1024 * 1024
# More than any model reads; the toolbox truncates for the current model.
_MAX_RESPONSE_BYTES = 2 * 1024 * 1024
# More notes would displace the other notes of the server.
_MAX_NOTES = 20
_READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "QUERY"})


class RestApi:
    """Operations of an API, ready to be called."""

    def __init__(self, spec: ServerSpec, operations: Sequence[Operation], exchange: Exchange) -> None:
        self._spec = spec
        self._operations = {operation.name: operation for operation in operations}
        self._exchange = exchange
        self.tools = tuple(map(_tool, operations))

    async def call(self, tool: str, arguments: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        """Send the request of a call; every response of the API becomes a result."""
        from rkllm_mcp.tools.openapi.exchange import ExchangeError

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
        except (ArgumentError, MissingTokenError, ExchangeError) as error:
            return text_result(redacted(str(error), secrets), is_error=True)
        return result_of(operation, answer, secrets, _MAX_RESPONSE_BYTES)


@asynccontextmanager
async def open_openapi(spec: ServerSpec, notes: LastLines) -> AsyncGenerator[RestApi]:
    """Load a specification.

    ``notes`` receives a line for each omitted part.

    Raises:
        ServerUnavailableError: the specification cannot be loaded or read, or names no address of the API.
    """
    await anyio.to_thread.run_sync(importlib.import_module, "rkllm_mcp.tools.openapi.exchange", abandon_on_cancel=True)
    from rkllm_mcp.tools.openapi.exchange import open_exchange

    async with open_exchange(spec.connect_timeout_s, spec.timeout_s, f"rkllm-mcp/{__version__}") as exchange:
        document, spec_url = await _document(spec, exchange)
        work = partial(_converted, document, spec, spec_url)
        conversion = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        for note in conversion.notes[:_MAX_NOTES]:
            notes.add(note)
        if len(conversion.notes) > _MAX_NOTES:
            notes.add(f"(and {len(conversion.notes) - _MAX_NOTES} more remarks of this kind)")
        yield RestApi(spec, _chosen(conversion, spec), exchange)


def _converted(document: Mapping[str, Any] | bytes, spec: ServerSpec, spec_url: str) -> Conversion:
    try:
        values = parse_document(document) if isinstance(document, bytes) else document
    except DocumentError as error:
        raise ServerUnavailableError(f"its openapi_spec cannot be read: {error}; correct it") from None
    version = str(values.get("openapi") or values.get("swagger") or "")
    if not isinstance(values.get("paths"), Mapping) and not version:
        raise ServerUnavailableError("its openapi_spec is not an OpenAPI document: it has no 'paths'; name another")
    supplied = frozenset(name.lower() for name in spec.headers_template)
    return convert(values, base_url=spec.openapi_base_url, spec_url=spec_url, supplied=supplied)


def _chosen(conversion: Conversion, spec: ServerSpec) -> list[Operation]:
    operations = [operation for operation in conversion.operations if _is_included(operation, spec)]
    if operations and not any(operation.address for operation in operations):
        raise ServerUnavailableError("its openapi_spec names no address of the API; set openapi_base_url")
    return operations


def _is_included(operation: Operation, spec: ServerSpec) -> bool:
    names = (operation.name, operation.id, operation.path, f"{operation.method} {operation.path}", *operation.tags)

    def has(patterns: Sequence[str]) -> bool:
        return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns for name in names if name)

    return (spec.include is None or has(spec.include)) and not has(spec.exclude)


def _tool(operation: Operation) -> ToolSpec:
    return ToolSpec(
        name=operation.name,
        description=operation.description,
        input_schema=operation.input_schema,
        read_only=operation.method in _READ_METHODS,
        destructive=operation.method == "DELETE" if operation.method not in _READ_METHODS else False,
    )


# --- where a specification is ----------------------------------------------------------------------------------------


async def _document(spec: ServerSpec, exchange: Exchange) -> tuple[Mapping[str, Any] | bytes, str]:
    """Return the specification, parsed or as bytes, and its URL."""
    place = spec.openapi_spec
    if isinstance(place, Mapping):
        return place, ""
    file = specification_file(place)
    if file is None:
        is_text = not place.startswith(("http://", "https://"))
        return (place.encode("utf-8", "replace"), "") if is_text else (await _fetched(place, spec, exchange), place)
    try:
        return await anyio.Path(file).read_bytes(), ""
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ServerUnavailableError(f"its openapi_spec {place} cannot be read: {reason}; correct the path") from None


def specification_file(place: str) -> Path | None:
    """Return the file that an ``openapi_spec`` names; None for a URL or an inline specification."""
    if place.lstrip().startswith("{") or "\n" in place or place.startswith(("http://", "https://")):
        return None
    return Path(unquote(urlsplit(place).path) if place.startswith("file://") else place)


async def _fetched(url: str, spec: ServerSpec, exchange: Exchange) -> bytes:
    from rkllm_mcp.tools.openapi.exchange import ExchangeError

    headers = {"Accept": "application/json, application/yaml;q=0.9, */*;q=0.5"}
    # The API's own keys are sent only to the configured address of the API.
    if spec.openapi_base_url and origin_of(url) == origin_of(spec.openapi_base_url):
        headers |= {name: text for name, text in spec.headers_template.items() if not placeholders(text)}
    secrets = secrets_of(spec.headers_template, {})
    try:
        answer = await exchange.send(Request("GET", url, headers), _MAX_SPEC_BYTES, secrets, any_type=True)
    except ExchangeError as error:
        raise ServerUnavailableError(f"its openapi_spec could not be fetched. {error}".rstrip(".")) from None
    if answer.status != 200 or answer.is_cut:
        what = f"{answer.status} {answer.reason}" if answer.status != 200 else f"more than {_MAX_SPEC_BYTES} bytes"
        raise ServerUnavailableError(f"its openapi_spec could not be fetched: {what}; correct the address")
    return answer.content
