"""``/openapi.json`` says what really runs: every route is in it, and everything in it answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, cast

import pytest
from jsonschema import Draft202012Validator
from starlette.requests import Request
from starlette.responses import Response

from rkllm_mcp.surfaces.http.app import ROUTES
from rkllm_mcp.surfaces.http.bodies import RequestBody
from rkllm_mcp.surfaces.http.errors import NOT_OFFERED
from rkllm_mcp.surfaces.http.openapi import document
from rkllm_mcp.surfaces.http.route import EVENT_STREAM, Route, RouteResponse
from tests.support.http_app import config_with, desk

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
PUBLISHED = document(ROUTES, keys=True)
OPERATIONS = [
    (method, path, operation) for path, methods in PUBLISHED["paths"].items() for method, operation in methods.items()
]
NAMES = [f"{method} {path}" for method, path, _ in OPERATIONS]
# What design/interface.md names.
FIXED = [
    "post /v1/chat/completions",
    "post /v1/completions",
    "post /v1/responses",
    "post /v1/messages",
    "post /v1/messages/count_tokens",
    "get /v1/models",
    "post /v1/embeddings",
    "post /v1/rerank",
    "post /v1/execute",
    "post /v1/conversations/{id}/cancel",
    "get /v1/conversations",
    "get /v1/conversations/{id}",
    "delete /v1/conversations/{id}",
    "get /v1/tools",
    "post /v1/tools/{name}:enable",
    "post /v1/tools/{name}:disable",
    "post /v1/tools/{name}:call",
    "get /v1/tools/history",
    "get /v1/servers",
    "post /v1/approvals/{id}",
    "get /healthz",
    "get /readyz",
    "get /metrics",
    "get /",
    "get /openapi.json",
]


def every(value: Any, key: str) -> Iterator[Any]:
    """Whatever stands under ``key``, however deep."""
    if isinstance(value, dict):
        for name, each in cast("Json", value).items():
            if name == key:
                yield each
            yield from every(each, key)
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from every(each, key)


def test_every_route_that_has_a_fixed_name_is_there() -> None:
    assert sorted(set(FIXED) - set(NAMES)) == []


def test_every_reference_leads_somewhere_and_every_schema_is_one() -> None:
    schemas = PUBLISHED["components"]["schemas"]
    references = set(every(PUBLISHED, "$ref"))
    assert {f"#/components/schemas/{name}" for name in schemas} >= references
    # Most routes have the same ones.
    for written in {json.dumps(schema) for schema in [*schemas.values(), *every(PUBLISHED["paths"], "schema")]}:
        Draft202012Validator.check_schema(json.loads(written))


def test_no_two_operations_have_one_name_and_every_one_has_a_summary() -> None:
    assert len({operation["operationId"] for _, _, operation in OPERATIONS}) == len(OPERATIONS) == len(ROUTES)
    assert all(operation["summary"] for _, _, operation in OPERATIONS)


def test_an_operation_names_its_parameters_and_every_way_it_can_be_refused() -> None:
    for method, path, operation in OPERATIONS:
        at = f"{method} {path}"
        inside = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
        assert inside == set(re.findall(r"\{(\w+)\}", path)), at
        responses = operation["responses"]
        assert {"401", "403", "500"} <= responses.keys(), at
        assert any(status.startswith("2") for status in responses), at
        if "requestBody" in operation:
            assert {"400", "408", "413", "415", "422"} <= responses.keys(), at
        own = {"/api/": "OllamaError", "/v1/messages": "AnthropicError"}
        name = next((name for begun, name in own.items() if path.startswith(begun)), "ErrorBody")
        for status, response in responses.items():
            if status in ("429", "503"):
                assert "Retry-After" in response["headers"], at
            if not status.startswith("2"):
                schema = response["content"]["application/json"]["schema"]
                assert schema == {"$ref": f"#/components/schemas/{name}"}, at


async def test_published_operations_answer_and_unpublished_ones_do_not() -> None:
    async with desk() as it:
        for path, methods in PUBLISHED["paths"].items():
            for method in ("get", "post", "patch", "put", "delete"):
                answer = await it.send(method.upper(), re.sub(r"\{\w+\}", "x", path))
                # Where OpenAI's API creates something at an address of ours, a sentence says that it is not offered.
                refused = 404 if f"{path}$" in NOT_OFFERED and method == "post" else 405
                assert (answer.status_code != refused) is (method in methods), f"{method} {path}"


async def test_keys_are_required_where_some_are_configured() -> None:
    async with desk() as it:
        published = (await it.send("GET", "/openapi.json")).json()
        assert published == document(ROUTES, keys=False)
        assert "security" not in published
    async with desk(config_with(service={"api_keys": ["k"]})) as it:
        published = (await it.send("GET", "/openapi.json")).json()
        assert published["security"] == [{"bearer": []}, {"x-api-key": []}, {"api-key": []}]
        for path, methods in published["paths"].items():
            for method, operation in methods.items():
                address = re.sub(r"\{\w+\}", "x", path)
                status = (await it.send(method.upper(), address)).status_code
                assert (status == 401) is ("security" not in operation), f"{method} {path}"


class Wish(RequestBody):
    """A wish."""

    text: str
    """Words."""


async def nothing(request: Request) -> Response:
    return Response()


def test_a_route_of_every_kind_is_described() -> None:
    answers = (
        RouteResponse(Wish, says="Whole.", headers=(("X-Conversation-Id", "Which."),)),
        RouteResponse(Wish, media=EVENT_STREAM, says="In pieces."),
        RouteResponse(status=204, says="Gone."),
    )
    route = Route("POST", "/a/{b:path}", Wish, query=Wish, answers=answers, problems=(429,), handler=nothing)
    operation = document([route], keys=False)["paths"]["/a/{b}"]["post"]
    reference = {"$ref": "#/components/schemas/Wish"}
    assert operation["requestBody"] == {"required": True, "content": {"application/json": {"schema": reference}}}
    assert operation["parameters"] == [
        {"name": "b", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}},
        {
            "name": "text",
            "in": "query",
            "required": True,
            "schema": {"type": "string", "title": "Text", "description": "Words."},
        },
    ]
    assert operation["responses"]["200"] == {
        "description": "Whole. In pieces.",
        "headers": {"X-Conversation-Id": {"description": "Which.", "schema": {"type": "string"}}},
        "content": {
            "application/json": {"schema": reference},
            "text/event-stream": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "data": {
                            "type": "string",
                            "contentMediaType": "application/json",
                            "contentSchema": reference,
                        }
                    },
                    "required": ["data"],
                }
            },
        },
    }
    assert operation["responses"]["204"] == {"description": "Gone."}
    assert operation["responses"]["429"]["headers"]["Retry-After"]["schema"] == {"type": "integer"}
