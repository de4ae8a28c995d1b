"""Who comes in, what every answer carries, and what the log says of it."""

from __future__ import annotations

import base64
import logging
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rkllm_mcp.config.secrets import hash_key
from rkllm_mcp.errors import (
    GenerationError,
    InputRefusedError,
    PromptTooLongError,
    RuntimeUnusableError,
    ServiceError,
    StoreError,
    ToolTimeoutError,
    UsageError,
    WorkerDiedError,
)
from rkllm_mcp.surfaces.http.errors import REQUEST_ID, ClientGoneError, HTTPError, name_request, response_to
from rkllm_mcp.surfaces.http.route import Route
from tests.support.http_app import BASE_URL, config_with, desk

pytestmark = pytest.mark.anyio

LAPTOP, TENANT, PLAIN = "sk-rkllm-laptop", "sk-rkllm-tenant", "hunter2"
KEYS = config_with(
    service={"api_keys": [hash_key(LAPTOP), PLAIN]}, tenants=[{"name": "kitchen", "api_key": hash_key(TENANT)}]
)
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOT_STORED = "what is stored cannot be read or changed: full; make room"
PAGE = "https://chat.example.org"
CORS = config_with(service={"cors": [PAGE]})
ANY_PAGE = config_with(service={"cors": ["*"], "api_keys": [PLAIN]})


async def whoami(request: Request) -> Response:
    return JSONResponse([request.state.tenant, request.state.key])


async def broken(request: Request) -> Response:
    raise ZeroDivisionError("secret-of-the-machine")


async def said(request: Request) -> Response:
    return JSONResponse(REQUEST_ID.get())


ROUTES = (
    Route("GET", "/who", handler=whoami),
    Route("POST", "/who", handler=whoami),
    Route("GET", "/open", is_open=True, handler=whoami),
    Route("GET", "/broken", handler=broken),
    Route("GET", "/said", handler=said),
    Route("POST", "/things/{name}:call", handler=whoami),
    Route("GET", "/things/{name}", handler=whoami),
    Route("GET", "/things/list", handler=said),
)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def basic(words: str) -> dict[str, str]:
    """What a client makes of an address with a name and a password in it."""
    return {"Authorization": f"Basic {base64.b64encode(words.encode()).decode()}"}


@pytest.mark.parametrize(
    ("headers", "caller"),
    [
        (bearer(LAPTOP), ["", "owner 0"]),
        (bearer(PLAIN), ["", "owner 1"]),
        (bearer(TENANT), ["kitchen", "tenant kitchen"]),
        ({"Authorization": f"bearer   {TENANT}  "}, ["kitchen", "tenant kitchen"]),
        ({"X-Api-Key": LAPTOP}, ["", "owner 0"]),
        ({"api-key": LAPTOP}, ["", "owner 0"]),
        ({**basic("user"), "x-api-key": LAPTOP}, ["", "owner 0"]),
        ({**basic("user:wrong"), "x-api-key": LAPTOP}, ["", "owner 0"]),
        (basic(f"anybody:{TENANT}"), ["kitchen", "tenant kitchen"]),
    ],
)
async def test_a_key_says_whose_request_it_is(headers: dict[str, str], caller: list[str]) -> None:
    async with desk(KEYS, ROUTES) as it:
        assert (await it.send("GET", "/who", headers)).json() == caller


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer(""),
        bearer("wrong"),
        bearer(LAPTOP + "x"),
        bearer(LAPTOP[:-1]),
        bearer(hash_key(LAPTOP)),
        bearer(KEYS.service.api_keys[0]),
        {"Authorization": f"Basic {LAPTOP}"},
        basic(LAPTOP),
        basic(f"{LAPTOP}:"),
        basic(f"me:{LAPTOP}x"),
        {"Authorization": "Basic w6k6/w=="},
        {"Authorization": LAPTOP},
        {"Cookie": f"key={LAPTOP}"},
    ],
)
async def test_without_a_key_or_with_another_one_nothing_is_answered(headers: dict[str, str]) -> None:
    async with desk(KEYS, ROUTES) as it:
        for path in ("/who", f"/who?key={LAPTOP}", "/nothing", "/things/a"):
            answer = await it.send("GET", path, headers)
            assert answer.status_code == 401
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert answer.json()["error"]["code"] == "invalid_api_key"
        assert (await it.send("GET", "/open", headers)).json() == ["", ""]


async def test_refused_keys_are_logged_once_without_the_key_and_missing_ones_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with desk(KEYS) as it:
        for headers in ({}, {"Authorization": "Bearer hunter3"}, {"x-api-key": "hunter4"}, {"Host": "other.example"}):
            assert (await it.send("GET", "/v1/models?key=hunter5", headers)).status_code == 401
    async with desk() as it:
        assert (await it.send("GET", "/v1/models", {"Origin": PAGE})).status_code == 403
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    refused = "refused a request that is not allowed"
    assert lines == [f"{refused} (401 at /v1/models) from 127.0.0.1", f"{refused} (403 at /v1/models) from 127.0.0.1"]
    assert "hunter" not in "".join(lines)


async def test_without_a_configured_key_no_request_needs_one() -> None:
    async with desk(routes=ROUTES) as it:
        assert (await it.send("GET", "/who")).json() == ["", ""]
        assert (await it.send("GET", "/who", bearer("whatever"))).json() == ["", ""]


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "LOCALHOST:1", "[::1]:8080", "127.9.9.9", "::1"])
async def test_this_machine_is_reached_under_its_own_names(host: str) -> None:
    async with desk(routes=ROUTES) as it:
        status = (await it.send("GET", "/who", {"Host": host})).status_code
    # An IPv6 address without brackets is no Host.
    assert status == (403 if host == "::1" else 200)


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "evil.example:8080", "", "[", "127.evil.example", "10.0.0.7"]
)
async def test_another_name_for_this_machine_is_refused_because_a_page_may_have_made_it(host: str) -> None:
    async with desk(routes=ROUTES) as it:
        answer = await it.send("GET", "/open", {"Host": host})
        assert answer.status_code == 403
    async with desk(config_with(service={"allowed_hosts": ["Evil.example"]}), ROUTES) as it:
        assert ((await it.send("GET", "/who", {"Host": host})).status_code == 200) is (
            host in {"evil.example", "evil.example:8080"}
        )
    async with desk(KEYS, ROUTES) as it:
        # Behind a key a page like that reaches nothing, and a board has names that are not known here.
        assert (await it.send("GET", "/who", {"Host": host, **bearer(LAPTOP)})).status_code == 200


@pytest.mark.parametrize(
    ("origin", "is_allowed"),
    [
        (BASE_URL, True),
        ("http://localhost:8080", False),
        ("http://127.0.0.1", False),
        ("https://evil.example", False),
        ("null", False),
        ("", False),
        ("http://[", False),
        (PAGE, False),
    ],
)
async def test_a_page_may_use_the_board_it_came_from_and_no_other(origin: str, is_allowed: bool) -> None:
    async with desk(routes=ROUTES) as it:
        for method in ("GET", "POST"):
            answer = await it.send(method, "/who", {"Origin": origin})
            assert answer.status_code == (200 if is_allowed else 403)
            assert answer.headers.get("Access-Control-Allow-Origin") == (origin if is_allowed else None)
        assert "Origin" in answer.headers["Vary"]


async def test_the_pages_of_cors_may_use_it_and_read_the_necessary_headers() -> None:
    async with desk(CORS, ROUTES) as it:
        answer = await it.send("GET", "/who", {"Origin": PAGE})
        assert answer.status_code == 200
        assert answer.headers["Access-Control-Allow-Origin"] == PAGE
        readable = "X-Conversation-Id, X-Request-Id, X-Model, X-Board, Idempotent-Replayed, Retry-After"
        assert answer.headers["Access-Control-Expose-Headers"] == readable
        assert "Access-Control-Allow-Credentials" not in answer.headers
        missing = await it.send("GET", "/nothing", {"Origin": PAGE})
        assert (missing.status_code, missing.headers["Access-Control-Allow-Origin"]) == (404, PAGE)
        assert (await it.send("GET", "/who", {"Origin": f"{PAGE}.evil.example"})).status_code == 403
    async with desk(ANY_PAGE, ROUTES) as it:
        answer = await it.send("GET", "/who", {"Origin": "https://any.example", **bearer(PLAIN)})
        assert answer.headers["Access-Control-Allow-Origin"] == "https://any.example"


async def test_a_preflight_needs_no_key_and_allows_what_the_page_asks_for() -> None:
    asks = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
    config = config_with(service={"cors": [PAGE], "api_keys": [PLAIN]})
    async with desk(config, ROUTES) as it:
        answer = await it.send(
            "OPTIONS", "/who", {**asks, "Access-Control-Request-Headers": "authorization, x-stainless-os"}
        )
        assert (answer.status_code, answer.content) == (204, b"")
        assert answer.headers["Access-Control-Allow-Origin"] == PAGE
        assert answer.headers["Access-Control-Allow-Headers"] == "authorization, x-stainless-os"
        assert "PATCH" in answer.headers["Access-Control-Allow-Methods"]
        assert "Access-Control-Allow-Private-Network" not in answer.headers
        private = await it.send("OPTIONS", "/who", {**asks, "Access-Control-Request-Private-Network": "true"})
        assert private.headers["Access-Control-Allow-Private-Network"] == "true"
        assert "Authorization" in private.headers["Access-Control-Allow-Headers"]
        refused = await it.send("OPTIONS", "/who", {**asks, "Origin": "https://evil.example"})
        assert refused.status_code == 403
        assert "Access-Control-Allow-Origin" not in refused.headers
        assert (await it.send("OPTIONS", "/who", {"Origin": PAGE})).status_code == 401


async def test_every_answer_carries_what_keeps_a_browser_safe() -> None:
    async with desk(routes=ROUTES) as it:
        for path in ("/who", "/nothing", "/broken"):
            headers = (await it.send("GET", path)).headers
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Cache-Control"] == "no-store"
            assert "unsafe" not in headers["Content-Security-Policy"]
            assert "default-src 'none'" in headers["Content-Security-Policy"]
            assert "server" not in headers


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/nothing", 404, None),
        ("GET", "/things", 404, None),
        ("POST", "/things/a:stop", 405, "GET, HEAD"),
        ("DELETE", "/who", 405, "GET, HEAD, POST"),
        ("BREW", "/who", 405, "GET, HEAD, POST"),
        ("OPTIONS", "/who", 405, "GET, HEAD, POST"),
    ],
)
async def test_an_unknown_address_gets_an_error_of_the_same_shape(
    method: str, path: str, status: int, allow: str | None
) -> None:
    async with desk(routes=ROUTES) as it:
        answer = await it.send(method, path)
        assert (answer.status_code, answer.headers.get("Allow")) == (status, allow)
        assert answer.json()["error"]["code"] == {404: "not_found", 405: "method_not_allowed"}[status]


async def test_a_fixed_path_comes_before_one_with_a_name_in_it_and_head_is_get_without_a_body() -> None:
    async with desk(routes=ROUTES) as it:
        request_id = {"X-Request-Id": "r-1"}
        assert (await it.send("GET", "/things/list", request_id)).json() == "r-1"
        assert (await it.send("GET", "/things/a")).json() == ["", ""]
        assert (await it.send("POST", "/things/a:b:call")).json() == ["", ""]
        assert (await it.send("HEAD", "/who")).status_code == 200


@pytest.mark.parametrize("path", ["/who/", "/who//"])
async def test_a_slash_too_many_is_not_another_address_and_no_way_round_a_key(path: str) -> None:
    async with desk(KEYS, ROUTES) as it:
        assert (await it.send("POST", path, bearer(LAPTOP))).json() == ["", "owner 0"]
        assert (await it.send("GET", path)).status_code == 401
        assert (await it.send("GET", "/static//x")).status_code == 404
        assert (await it.send("GET", "/open/")).json() == ["", ""]


@pytest.mark.parametrize("offered", ["", "with blank", "a" * 65, "x\ty", "a;b", "é".encode("latin-1")])
async def test_a_request_has_an_id_its_own_where_that_is_sane(offered: str | bytes) -> None:
    async with desk(routes=ROUTES) as it:
        answer = await it.send("GET", "/said", {"X-Request-Id": "trace-0.1_A"})
        assert answer.json() == answer.headers["X-Request-Id"] == "trace-0.1_A"
        traced = await it.send("GET", "/said", {"X-Request-Id": offered, "traceparent": TRACEPARENT})
        assert traced.headers["X-Request-Id"] == TRACEPARENT.split("-")[1]
        made = await it.send("GET", "/said", {"X-Request-Id": offered, "traceparent": TRACEPARENT.replace("4", "x")})
        assert made.json() == made.headers["X-Request-Id"] != offered
        assert len(made.json()) == 32


async def test_an_unforeseen_error_is_a_500_without_details_of_the_machine(caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(name_request)
    async with desk(routes=ROUTES) as it:
        answer = await it.send("GET", "/broken", {"X-Request-Id": "r-500"})
    assert answer.status_code == 500
    assert answer.json()["error"] == {
        "message": "something went wrong inside the service; the log has more under request r-500",
        "type": "server_error",
        "param": None,
        "code": "internal_error",
    }
    assert "ZeroDivisionError: secret-of-the-machine" in caplog.text
    assert {getattr(record, "request_id", "") for record in caplog.records if record.name.startswith("rkllm_mcp")} == {
        "r-500"
    }


async def test_the_log_has_the_path_and_the_status_and_never_a_key_or_a_query(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with desk(KEYS, ROUTES) as it:
        await it.send("GET", f"/who?key={LAPTOP}", {**bearer(LAPTOP), "x-api-key": LAPTOP})
        await it.send("GET", "/line%0Abreak", bearer("mistyped"))
    lines = [record.getMessage() for record in caplog.records if record.name == "rkllm_mcp.access"]
    assert [line.rsplit(" ", 2)[0] for line in lines] == ["GET /who 200", "GET /line\\nbreak 401"]
    own = " ".join(record.getMessage() for record in caplog.records if record.name.startswith("rkllm_mcp"))
    assert LAPTOP not in own
    assert "mistyped" not in own


TOO_LONG = PromptTooLongError(5000, 4096)
PROBLEMS: list[tuple[Exception, int, dict[str, Any]]] = [
    (HTTPError(422, "x", param="p"), 422, {"type": "invalid_request_error", "param": "p"}),
    (HTTPError(429, "x", retry_after_s=1.2), 429, {"type": "rate_limit_error", "code": "rate_limit_exceeded"}),
    (HTTPError(403, "x"), 403, {"type": "permission_error"}),
    (HTTPError(409, "x", "conflict", code="busy"), 409, {"type": "conflict", "code": "busy"}),
    (
        TOO_LONG,
        400,
        {
            "message": f"this model's maximum context length is exceeded: {TOO_LONG}",
            "code": "context_length_exceeded",
            "param": "messages",
        },
    ),
    (InputRefusedError("no"), 400, {"message": "no", "type": "invalid_request_error"}),
    (UsageError("no"), 400, {"message": "no"}),
    (RuntimeUnusableError("gone", "mend it"), 503, {"message": "gone mend it", "type": "server_error"}),
    (ServiceError("h", "refused", "wait", 429, 7.5), 429, {"message": "h refused; wait"}),
    (ServiceError("h", "broke", "wait", 500), 502, {"type": "server_error"}),
    (ToolTimeoutError("late"), 502, {"code": "tool_server"}),
    (StoreError("f", "full", "make room"), 500, {"message": NOT_STORED, "code": "storage"}),
    (GenerationError("failed"), 500, {"message": "failed", "type": "server_error"}),
    (WorkerDiedError(-11, "a run"), 503, {}),
]


@pytest.mark.parametrize(("error", "status", "detail"), PROBLEMS, ids=[type(error).__name__ for error, *_ in PROBLEMS])
async def test_every_error_has_its_status(error: Exception, status: int, detail: dict[str, Any]) -> None:
    async def fail(request: Request) -> Response:
        raise error

    async with desk(routes=(Route("GET", "/", handler=fail),)) as it:
        answer = await it.send("GET", "/")
    assert answer.status_code == status
    assert answer.json()["error"].items() >= detail.items()
    wait = {1.2: "2", 7.5: "8"}.get(getattr(error, "retry_after_s", None) or 0, "5" if status == 503 else None)
    assert answer.headers.get("Retry-After") == wait


async def test_an_error_alone_in_a_task_group_is_that_error() -> None:
    async def fail() -> None:
        raise UsageError("inner")

    async def work(request: Request) -> Response:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)
        return Response()

    async with desk(routes=(Route("GET", "/", handler=work),)) as it:
        answer = await it.send("GET", "/")
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "inner")


def test_a_client_that_has_left_is_its_own_status() -> None:
    assert response_to(ClientGoneError()).status_code == 499


@pytest.mark.parametrize(
    ("sent", "meant", "base"),
    [
        ("/v1/v1/messages", "/v1/messages", "is the address of this service without a path"),
        ("/api/v1/messages/count_tokens", "/v1/messages/count_tokens", "is the address of this service without a path"),
        ("/v1/api/chat", "/api/chat", "is the address of this service without a path"),
        ("/chat/completions", "/v1/chat/completions", "ends in /v1, once"),
        ("/v1/v1/chat/completions", "/v1/chat/completions", "ends in /v1, once"),
        ("/v1/v1/responses", "/v1/responses", "ends in /v1, once"),
    ],
)
async def test_a_program_with_another_base_url_gets_the_right_one(sent: str, meant: str, base: str) -> None:
    async with desk() as client:
        refused = await client.send("POST", sent, {"content-type": "application/json"}, b"{}")
    assert refused.status_code == 404
    expected = f"there is nothing at this address; the API is at {meant}, so the base URL in the program {base}"
    error = refused.json()["error"]
    assert (error if isinstance(error, str) else error["message"]) == expected
