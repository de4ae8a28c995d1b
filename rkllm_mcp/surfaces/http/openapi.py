"""``/openapi.json``, generated from the route table.

Every operation also has the replies that any route may give: 401, 403 and 500, and with a body 400, 408, 413, 415, 422
and 429. The schema of an event stream describes one event; its JSON text is described by ``contentSchema``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rkllm_mcp import __version__
from rkllm_mcp.surfaces.http.errors import ANTHROPIC, OLLAMA, AnthropicError, ErrorBody, OllamaError
from rkllm_mcp.surfaces.http.route import EVENT_STREAM, JSON, Route, RouteResponse
from rkllm_mcp.surfaces.http.state import run_work, service_of

Json: TypeAlias = dict[str, Any]
_Mode: TypeAlias = Literal["validation", "serialization"]
# A model, and whether it comes in or goes out.
_Key: TypeAlias = tuple[Any, _Mode]
_Schemas: TypeAlias = dict[_Key, Json]

# The last record of some streams, which is not JSON.
DONE = "[DONE]"
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_OF_EVERY_ROUTE = (401, 403, 500)
_OF_A_BODY = (400, 408, 413, 415, 422, 429)
_SECURITY_SCHEMES: Json = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    "api-key": {"type": "apiKey", "in": "header", "name": "api-key"},
}
_RETRY_AFTER: Json = {"Retry-After": {"description": "When to ask again, seconds.", "schema": {"type": "integer"}}}


def document(routes: Sequence[Route], *, keys: bool) -> Json:
    """Return the OpenAPI 3.1 description of routes; ``keys`` adds the security scheme."""
    # The schema of every model that routes name, and what those refer to.
    schema_keys: list[_Key] = []
    for route in routes:
        replies = (_error(route), *(answer.model for answer in route.answers))
        schema_keys.extend((model, "serialization") for model in replies)
        schema_keys.extend((model, "validation") for model in (route.body, route.query))
    keys_of_models = [key for key in dict.fromkeys(schema_keys) if key[0] is not None]
    inputs: list[tuple[_Key, _Mode, TypeAdapter[Any]]]
    inputs = [(key, key[1], TypeAdapter[Any](key[0])) for key in keys_of_models]
    by_key, definitions = TypeAdapter[Any].json_schemas(inputs, ref_template="#/components/schemas/{model}")
    schemas: _Schemas = {key: dict(by_key[key, key[1]]) for key in keys_of_models}
    paths: dict[str, Json] = {}
    for route in routes:
        path = _PARAMETER.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, schemas)
    described: Json = {
        "openapi": "3.1.0",
        "info": {"title": "rkllm-mcp", "version": __version__, "description": "An assistant on a Rockchip NPU."},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": dict(definitions.get("$defs", {}))},
    }
    if keys:
        described["components"]["securitySchemes"] = _SECURITY_SCHEMES
        described["security"] = [{name: []} for name in _SECURITY_SCHEMES]
    return described


def _operation(route: Route, schemas: _Schemas) -> Json:
    words = re.sub(r"[^a-z0-9]+", "_", route.path.lower()).strip("_")
    summary = (route.handler.__doc__ or "").partition("\n")[0].removesuffix(".")
    operation: Json = {"summary": summary, "operationId": f"{route.method.lower()}_{words or 'page'}"}
    parameters: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(route.path)
    ]
    # A parameter stands alone, so its schema may refer to nothing of the model around it.
    query = route.query.model_json_schema() if route.query is not None else {}
    for name, schema in query.get("properties", {}).items():
        parameters.append(
            {"name": name, "in": "query", "required": name in query.get("required", ()), "schema": schema}
        )
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        content = {route.body_media: {"schema": schemas[route.body, "validation"]}}
        operation["requestBody"] = {"required": True, "content": content}
    if route.is_open:
        operation["security"] = []
    responses = _answers(route, schemas)
    statuses = {*_OF_EVERY_ROUTE, *route.problems}
    statuses |= {*_OF_A_BODY} if route.body is not None else set()
    statuses |= {422} if route.query is not None else set()
    content = {JSON: {"schema": schemas[_error(route), "serialization"]}}
    for status in sorted(statuses):
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
        if status in (429, 503):
            responses[str(status)]["headers"] = _RETRY_AFTER
    operation["responses"] = responses
    return operation


def _error(route: Route) -> type[ErrorBody | OllamaError | AnthropicError]:
    if route.path.startswith(ANTHROPIC):
        return AnthropicError
    return OllamaError if route.path.startswith(OLLAMA) else ErrorBody


def _answers(route: Route, schemas: _Schemas) -> Json:
    answers: dict[str, Json] = {}
    for answer in route.answers:
        entry = answers.setdefault(str(answer.status), {"description": answer.says})
        if answer.says not in entry["description"]:
            entry["description"] += f" {answer.says}"
        if answer.headers:
            entry["headers"] = {
                name: {"description": says, "schema": {"type": "string"}} for name, says in answer.headers
            }
        if answer.status == HTTPStatus.NO_CONTENT:
            continue
        schema: Json = {} if answer.media == JSON else {"type": "string"}
        if answer.model is not None:
            schema = schemas[answer.model, "serialization"]
            if answer.media != JSON:
                schema = {"type": "string", "contentMediaType": JSON, "contentSchema": schema}
            if answer.media == EVENT_STREAM:
                event = {"anyOf": [schema, {"const": DONE}]} if DONE in answer.says else schema
                schema = {"type": "object", "properties": {"data": event}, "required": ["data"]}
        entry.setdefault("content", {})[answer.media] = {"schema": schema}
    return answers


@Route("GET", "/openapi.json", answers=(RouteResponse(dict[str, Any]),), is_open=True)
async def openapi(request: Request) -> Response:
    """This description."""
    routes: tuple[Route, ...] = request.app.state.routes
    # Writing it takes a second of the board's processor, and no key is needed to ask for it.
    content = await run_work(request, _render, routes, bool(service_of(request).config.key_entries))
    return Response(content, media_type=JSON)


@lru_cache(maxsize=4)
def _render(routes: tuple[Route, ...], keys: bool) -> bytes:  # called in a thread
    return bytes(JSONResponse(document(routes, keys=keys)).body)
