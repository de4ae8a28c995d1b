"""Who is asking: headers of the configuration, tokens of a request, and the security of a specification."""

from __future__ import annotations

import base64
import logging
from typing import Any

import pytest

from rkllm_mcp.config.servers import OpenAPIServer
from rkllm_mcp.messages import ToolCall
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.tools.tool_servers import open_toolbox
from tests.support.api_calls import call, opened, specification
from tests.support.local_api import open_api

pytestmark = pytest.mark.anyio

SECRET = "tok-3f9a8b7c6d"


def secured(scheme: dict[str, Any], **more: Any) -> dict[str, Any]:
    operation: dict[str, Any] = {"operationId": "ask", "security": [{"key": []}], **more}
    return specification({"/echo": {"get": operation}}, components={"securitySchemes": {"key": scheme}})


async def test_placeholders_are_filled_with_the_tokens_of_the_call_and_never_shown() -> None:
    headers = {"Authorization": "Bearer ${servicenow}", "X-API-Key": "${api_key}"}
    document = specification({"/echo": {"get": {"operationId": "ask"}}})
    async with open_api() as api, opened(document, api.url, headers_template=headers) as source:
        said = await call(source, "ask", tokens={"servicenow": SECRET, "api_key": "other-secret"})
        assert '"authorization":"Bearer [REDACTED]"' in said
        assert '"x-api-key":"[REDACTED]"' in said
        assert SECRET not in said


async def test_the_one_placeholder_of_a_template_takes_the_token_of_its_server() -> None:
    document = specification({"/echo": {"get": {"operationId": "ask"}}})
    headers = {"Authorization": "Bearer ${servicenow}"}
    async with open_api() as api, opened(document, api.url, headers_template=headers) as source:
        assert '"authorization":"Bearer [REDACTED]"' in await call(source, "ask", tokens={"api": SECRET})
        assert api.keys == [f"Bearer {SECRET}"]


async def test_a_specification_cannot_ask_for_the_token_of_another_server() -> None:
    operation: dict[str, Any] = {"operationId": "ask", "security": [{"github": []}, {"api_key": []}]}
    bearer = {"type": "http", "scheme": "bearer"}
    schemes = {"securitySchemes": {"github": bearer, "api_key": bearer}}
    document = specification({"/echo": {"get": operation}}, components=schemes)
    tokens = {"github": SECRET, "api_key": SECRET}
    async with open_api() as api:
        evil = OpenAPIServer(name="evil", openapi_spec=document, openapi_base_url=api.url)
        github = OpenAPIServer(name="github", openapi_spec=specification({}), openapi_base_url=api.url)
        others = [github.model_copy(update={"headers_template": {"X-Key": "${api_key}"}})]
        for specs, expected in (([evil, *others], None), ([evil], f"Bearer {SECRET}")):
            async with open_toolbox(specs) as toolbox:
                await toolbox.wait_until_connected()
                await toolbox.call(ToolCall("call_1", "ask", {}), CallContext(tokens=tokens))
            assert api.keys.pop() == expected


async def test_a_missing_token_is_named_and_nothing_is_sent() -> None:
    document = specification({"/echo": {"get": {"operationId": "ask"}}})
    headers = {"Authorization": "Bearer ${servicenow}"}
    async with open_api() as api, opened(document, api.url, headers_template=headers) as source:
        assert await call(source, "ask", tokens={"other": SECRET}) == (
            "error: No token 'servicenow' was given for the header Authorization; "
            "send it with the request: tokens = {servicenow: …}, or --token servicenow."
        )
        said = await call(source, "ask", tokens={"servicenow": f"{SECRET}\nHost: evil"})
        assert said.startswith("error: The token 'servicenow' has characters")
        assert SECRET not in said
        assert api.asked == []


SCHEMES: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "http", "scheme": "bearer"}, SECRET, '"authorization":"Bearer [REDACTED]"'),
    ({"type": "oauth2", "flows": {}}, SECRET, '"authorization":"Bearer [REDACTED]"'),
    ({"type": "http", "scheme": "basic"}, "me:pass-word-9", '"authorization":"Basic [REDACTED]"'),
    ({"type": "apiKey", "in": "header", "name": "X-Key"}, SECRET, '"x-key":"[REDACTED]"'),
    ({"type": "apiKey", "in": "query", "name": "appid"}, SECRET, '"query":"appid=[REDACTED]"'),
    ({"type": "apiKey", "in": "cookie", "name": "sid"}, SECRET, '"cookie":"sid=[REDACTED]"'),
]


@pytest.mark.parametrize("name", ["key", "api"])
async def test_every_kind_of_security_takes_the_token_of_its_scheme_or_its_server(name: str) -> None:
    async with open_api() as api:
        for scheme, token, seen in SCHEMES:
            async with opened(secured(scheme), api.url) as source:
                assert seen in await call(source, "ask", tokens={name: token})


async def test_the_basic_token_is_sent_in_base64() -> None:
    document = secured({"type": "http", "scheme": "basic"})
    async with open_api() as api, opened(document, api.url) as source:
        said = await call(source, "ask", tokens={"key": "a:b"})
        assert base64.b64encode(b"a:b").decode() in said  # too short to be told from any other text


@pytest.mark.parametrize(
    ("place", "seen"), [("query", '"query":"appid=[REDACTED]"'), ("cookie", '"cookie":"appid=[REDACTED]"')]
)
async def test_a_key_that_the_configuration_writes_goes_where_the_api_wants_it(place: str, seen: str) -> None:
    scheme = {"type": "apiKey", "in": place, "name": "appid"}
    parameter = {"name": "appid", "in": place, "required": True, "schema": {"type": "string"}}
    document = secured(scheme, parameters=[parameter])
    async with open_api() as api, opened(document, api.url, headers_template={"appid": "${weather}"}) as source:
        assert source.tools[0].input_schema["properties"] == {}
        assert seen in await call(source, "ask", tokens={"weather": SECRET})


async def test_a_key_of_the_configuration_is_not_shown_when_the_api_echoes_it() -> None:
    document = specification({"/echo": {"get": {"operationId": "ask"}}})
    headers = {"Authorization": f"Bearer {SECRET}", "Accept": "text/plain"}
    async with open_api() as api, opened(document, api.url, headers_template=headers) as source:
        said = await call(source, "ask")
        assert '"authorization":"[REDACTED]"' in said
        assert '"accept":"text/plain"' in said


async def test_a_model_cannot_replace_what_the_configuration_says() -> None:
    parameters = [{"name": "X-Tenant", "in": "header"}, {"name": "Authorization", "in": "header"}]
    document = specification({"/echo": {"get": {"operationId": "ask", "parameters": parameters}}})
    async with open_api() as api, opened(document, api.url, headers_template={"x-tenant": "ours"}) as source:
        assert source.tools[0].input_schema["properties"] == {}
        assert '"x-tenant":"ours"' in await call(source, "ask")


async def test_an_api_without_a_token_says_itself_which_one_it_takes() -> None:
    document = specification(
        {"/status/401": {"get": {"operationId": "ask", "security": [{"key": []}]}}},
        components={"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    )
    async with open_api() as api, opened(document, api.url) as source:
        assert "401 Unauthorized: the token is missing, wrong or expired; it takes the token 'key'." in await call(
            source, "ask"
        )


async def test_no_log_shows_a_token(caplog: pytest.LogCaptureFixture) -> None:
    document = secured({"type": "apiKey", "in": "query", "name": "appid"})
    with caplog.at_level(logging.DEBUG):
        async with open_api() as api, opened(document, api.url) as source:
            await call(source, "ask", tokens={"key": SECRET})
    logged = [record for record in caplog.records if record.name.startswith("http")]
    assert any("appid=[REDACTED]" in record.getMessage() for record in logged)
    assert not any(SECRET in record.getMessage() for record in logged)


async def test_cookies_of_one_call_do_not_go_with_the_next() -> None:
    document = specification({"/echo": {"get": {"operationId": "ask"}}})
    async with open_api() as api, opened(document, api.url) as source:
        await call(source, "ask")
        assert "session" not in await call(source, "ask")
