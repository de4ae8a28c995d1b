"""What an API answers becomes a result that a model can read, whatever it is."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import pytest

from rkllm_mcp.openapi.client import HttpResult, result_of
from rkllm_mcp.openapi.operations import Operation
from tests.support.api_calls import call, opened, specification
from tests.support.local_api import open_api
from tests.support.outside import hostile_server

pytestmark = pytest.mark.anyio


def getting(path: str, **more: Any) -> dict[str, Any]:
    return specification({path: {"get": {"operationId": "get_it", **more}}})


ANSWERS = [
    ("/status/200", '{"message":"status 200"}'),
    ("/status/201", "Done (201 Created). Location: /things/5"),
    ("/status/204", "Done (204 No Content)."),
    (
        "/status/401",
        (
            "error: The API answered 401 Unauthorized: the token is missing, wrong or expired. "
            'It says: {"message":"status 401"}'
        ),
    ),
    (
        "/status/403",
        (
            "error: The API answered 403 Forbidden: the token is known, but may not do this. "
            'It says: {"message":"status 403"}'
        ),
    ),
    (
        "/status/404",
        'error: The API answered 404 Not Found: no such name or id. It says: {"message":"status 404"}',
    ),
    # Which Python 3.13 calls by another name.
    ("/status/422", f'error: The API answered 422 {HTTPStatus(422).phrase}. It says: {{"message":"status 422"}}'),
    (
        "/status/429",
        (
            "error: The API answered 429 Too Many Requests: too many requests; wait before the next (after 7 s). "
            'It says: {"message":"status 429"}'
        ),
    ),
    (
        "/status/500",
        (
            "error: The API answered 500 Internal Server Error: the API itself has failed; try again later. "
            "It says: It broke"
        ),
    ),
    ("/content/image", "[image/png, 2.0 kB, not shown]"),
    ("/content/bytes", "[data of unknown type, 10 bytes, not shown]"),
    ("/content/japanese", "気温は二十度"),
    ("/content/strange", "plain"),
    ("/redirect/circle", "error: The API redirects in a loop; report this to its operator."),
]


async def test_every_kind_of_answer_has_its_words() -> None:
    paths = {path: {"get": {"operationId": f"case_{number}"}} for number, (path, _) in enumerate(ANSWERS)}
    async with open_api() as api, opened(specification(paths), api.url) as source:
        said = [await call(source, f"case_{number}") for number in range(len(ANSWERS))]
    assert said == [words for _, words in ANSWERS]


async def test_an_endless_answer_is_cut_while_it_comes() -> None:
    async with open_api() as api, opened(getting("/content/endless"), api.url) as source:
        said = await call(source, "get_it")
    assert len(said) < 2_200_000
    assert said.endswith("… the answer has unknown size; only its beginning was read")


async def test_an_answer_that_drips_is_given_up_after_a_total_time() -> None:
    with hostile_server() as outside:
        outside.way = "dripping"
        async with opened(getting("/slow"), outside.url, timeout_s=0.3) as source:
            assert await call(source, "get_it") == "error: The API's answer was not complete after 0.6 s."


async def test_an_api_that_says_nothing_is_given_up() -> None:
    async with open_api() as api, opened(getting("/silence"), api.url, timeout_s=0.1) as source:
        assert await call(source, "get_it") == f"error: The API at {api.url} did not answer in time."


async def test_a_missing_api_is_a_result_too() -> None:
    async with opened(getting("/x"), "http://127.0.0.1:1") as source:
        said = await call(source, "get_it")
    assert said.startswith("error: The API at http://127.0.0.1:1 cannot be reached: ")


async def test_redirects_are_followed_within_the_origin_only() -> None:
    document = specification({"/redirect/{where}": {"get": {"operationId": "go"}}})
    async with open_api() as api, open_api() as other, opened(document, api.url) as source:
        api.elsewhere = other.url
        assert '"path":"/echo/landed"' in (await call(source, "go", where="here"))
        assert await call(source, "go", where="away") == (
            f"error: The API redirects to {other.url}, which is not followed; "
            "set openapi_base_url to the right address."
        )
        assert other.asked == []


@pytest.mark.parametrize(
    ("status", "method", "body"), [("307", "POST", '{"a":"x"}'), ("303", "GET", ""), ("302", "GET", "")]
)
async def test_a_redirected_post_keeps_or_loses_its_body_as_http_says(status: str, method: str, body: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    operation = {
        "operationId": "send",
        "parameters": [{"name": "status", "in": "query"}],
        "requestBody": {"content": {"application/json": {"schema": schema}}},
    }
    document = specification({"/redirect/here": {"post": operation}})
    async with open_api() as api, opened(document, api.url) as source:
        said = await call(source, "send", status=status, a="x")
    assert f'"method":"{method}"' in said
    assert (f'"body":"{body}"' if not body else '{\\"a\\":\\"x\\"}') in said


def test_what_an_api_echoes_of_a_token_is_not_shown_even_where_the_text_was_cut() -> None:
    operation = Operation("f", "", "GET", "/", "")
    whole = HttpResult(200, "OK", "text/plain", b"you sent sk-secret-1, sk-secret-1!")
    assert result_of(operation, whole, ["sk-secret-1"], 100)["content"][0]["text"] == (
        "you sent [REDACTED], [REDACTED]!"
    )
    cut = HttpResult(200, "OK", "text/plain", b"0123456789" * 5 + b"sk-secr", is_cut=True)
    assert "sk" not in result_of(operation, cut, ["sk-secret-1"], 100)["content"][0]["text"]
