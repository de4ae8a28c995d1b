"""HTTP as programs of every age write it, byte by byte, to ``rkllm-mcp serve``."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai
import pytest

from rkllm_mcp.surfaces.http.app import ROUTES
from tests.support.chat_script import RULES
from tests.support.clients import scripted_demo, serving
from tests.support.served import scripted_model

Json = dict[str, Any]
PATIENCE_S = 60.0
HELLO = json.dumps({"messages": [{"role": "user", "content": "hello from oslo"}]}).encode()
JSON_TYPE = {"Content-Type": "application/json"}
STREAMED = HELLO[:-1] + b', "stream": true}'
TOOLS = """
[[servers]]
name = "own"
transport = "builtin"
tools = [{ name = "calculator" }]

[service]
body_mb = 1
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str, None, None]:
    folder = tmp_path_factory.mktemp("wire")
    with serving(scripted_demo(folder / "home", scripted_model(folder / "model", RULES), extra=TOOLS)) as it:
        yield it.url


@pytest.fixture(scope="module")
def web(url: str) -> Generator[httpx2.Client, None, None]:
    client = httpx2.Client(base_url=url, timeout=PATIENCE_S)
    with client:
        yield client


@contextmanager
def connection(url: str) -> Generator[socket.socket, None, None]:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port or 80), PATIENCE_S) as it:
        yield it


def head(line: str, *headers: str) -> bytes:
    """A request's head."""
    return "\r\n".join([line, "Host: 127.0.0.1", *headers, "", ""]).encode()


def post(version: str, body: bytes, *headers: str) -> bytes:
    """The head of a question, for a body of this length."""
    json_type = ("Content-Type: application/json", f"Content-Length: {len(body)}")
    return head(f"POST /v1/chat/completions HTTP/{version}", *json_type, *headers)


def answer(it: socket.socket, method: str = "GET") -> tuple[int, bytes]:
    """The next answer: status and body."""
    response = http.client.HTTPResponse(it, method=method)
    response.begin()
    return response.status, response.read()


def rest(it: socket.socket) -> bytes:
    """Everything until the service closes the connection."""
    heard = b""
    while piece := it.recv(65536):
        heard += piece
    return heard


def text_of(body: bytes) -> str:
    return json.loads(body)["choices"][0]["message"]["content"]


def test_a_client_of_http_1_0_has_the_whole_answer_when_the_connection_ends(url: str) -> None:
    with connection(url) as it:
        it.sendall(post("1.0", HELLO) + HELLO)
        _, _, body = rest(it).partition(b"\r\n\r\n")
        assert text_of(body).startswith("Hello, oslo.")
    with connection(url) as it:
        it.sendall(post("1.0", STREAMED) + STREAMED)
        headers, _, body = rest(it).partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in headers.lower()
        assert body.startswith(b"data: {")
        assert body.endswith(b"data: [DONE]\n\n")


def test_a_client_that_waits_for_a_word_before_its_body_gets_it(url: str) -> None:
    with connection(url) as it:
        it.sendall(post("1.1", HELLO, "Expect: 100-continue"))
        assert it.recv(65536).startswith(b"HTTP/1.1 100 ")
        it.sendall(HELLO)
        status, body = answer(it)
        assert (status, text_of(body)[:12]) == (200, "Hello, oslo.")
    with connection(url) as it:
        it.sendall(post("1.1", bytes(2 * 2**20), "Expect: 100-continue"))
        assert it.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_a_body_comes_in_chunks_or_larger_than_may_be_or_packed(url: str) -> None:
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (HELLO[:5], HELLO[5:6], HELLO[6:])) + b"0\r\n\r\n"
    with connection(url) as it:
        line = "POST /v1/chat/completions HTTP/1.1"
        it.sendall(head(line, "Content-Type: application/json", "Transfer-Encoding: chunked") + chunks)
        assert text_of(answer(it)[1]).startswith("Hello, oslo.")
        packed = gzip.compress(HELLO)
        it.sendall(post("1.1", packed, "Content-Encoding: gzip") + packed)
        assert text_of(answer(it)[1]).startswith("Hello, oslo.")
        large = b'"%s"' % (b"x" * (2 * 2**20))
        it.sendall(post("1.1", large) + large)
        assert answer(it)[0] == 413
        # The same connection goes on.
        it.sendall(post("1.1", HELLO) + HELLO)
        assert answer(it)[0] == 200


@pytest.mark.parametrize(
    "nonsense",
    [
        head("GET /healthz HTTP/1.1", f"X-Long: {'a' * 200_000}"),
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        post("1.1", HELLO, "Content-Length: 7") + HELLO,
    ],
    ids=["a very long header", "no host", "two hosts", "TLS", "two lengths"],
)
def test_bytes_that_are_not_request_are_refused_and_disturb_no_other_client(
    url: str, web: httpx2.Client, nonsense: bytes
) -> None:
    with connection(url) as it:
        it.sendall(nonsense)
        assert it.recv(65536).startswith(b"HTTP/1.1 400 ")
    assert web.get("/healthz").status_code == 200


def test_a_hundred_idle_connections_shut_no_client_out(url: str, web: httpx2.Client) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(connection(url)) for _ in range(100)]
        for it in idle:
            it.sendall(head("GET /healthz HTTP/1.1"))
        assert [answer(it)[0] for it in idle] == [200] * 100
        assert web.post("/v1/chat/completions", content=HELLO, headers=JSON_TYPE).status_code == 200
        for it in idle:
            it.sendall(head("GET /v1/models HTTP/1.1"))
        assert {answer(it)[0] for it in idle} == {200}


def test_requests_that_do_not_wait_for_answers_have_them_in_order(url: str) -> None:
    with connection(url) as it:
        last = post("1.1", HELLO, "Connection: close")
        it.sendall(post("1.1", STREAMED) + STREAMED + head("GET /v1/me HTTP/1.1") + last + HELLO)
        heard = rest(it)
    assert heard.count(b"HTTP/1.1 200 ") == 3
    places = [heard.find(mark) for mark in (b"[DONE]", b'"tenant":""', b'"object":"chat.completion",')]
    assert -1 not in places
    assert places == sorted(places)


@pytest.mark.parametrize("path", [route.path for route in ROUTES if route.method == "GET"])
def test_head_is_get_without_a_body(web: httpx2.Client, path: str) -> None:
    address = re.sub(r"\{\w+(:\w+)?\}", "x", path)
    got, asked = web.get(address), web.head(address)
    assert (asked.status_code, asked.content) == (got.status_code, b"")
    # How a body is sent may be left out of the answer that has none.
    changing = {
        "date",
        "x-request-id",
        "transfer-encoding",
        "content-length" if path in {"/metrics", "/v1/board", "/v1/schedules/runs"} else "",
    }
    assert {name: value for name, value in asked.headers.items() if name not in changing} == {
        name: value for name, value in got.headers.items() if name not in changing
    }


def test_slashes_too_many_and_percent_signs_make_no_other_address(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}//v1//", api_key="none", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["parrot"]
    with connection(url) as it:
        for path in ("/v1/models/%70arrot", "//v1//models", "/v1/models/", "/%76%31/models"):
            it.sendall(head(f"GET {path} HTTP/1.1"))
            assert answer(it)[0] == 200, path
        for path in ("/v1/conversations/a%2Fb", "/v1/conversations/%ff", "/v1/models/%00", "/static/%2e%2e/page.py"):
            it.sendall(head(f"GET {path} HTTP/1.1"))
            assert answer(it)[0] == 404, path
        it.sendall(head("POST /v1/tools/calculator%3Adisable HTTP/1.1", "Content-Length: 0"))
        assert json.loads(answer(it)[1]) == {"name": "calculator", "enabled": False}


@pytest.mark.parametrize("header", ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"])
def test_no_header_makes_another_method_of_it(web: httpx2.Client, header: str) -> None:
    begun = web.post("/v1/execute", json={"message": "hello from rome", "stream": False}).json()
    address = f"/v1/conversations/{begun['conversation']}"
    assert web.post(f"{address}?_method=DELETE", headers={header: "DELETE"}).status_code == 405
    assert web.get(address, headers={header: "DELETE"}).json()["id"] == begun["conversation"]


@pytest.mark.parametrize("name", ["gpt-4o", "", "parrot:7b", "../parrot", "モデル", "x" * 5000])
def test_an_unknown_model_is_named_in_the_words_of_each_api(web: httpx2.Client, name: str) -> None:
    asked = {"model": name, "messages": [{"role": "user", "content": "x"}]}
    refused = web.post("/v1/chat/completions", json=asked)
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
    assert "ask for 'parrot'" in refused.json()["error"]["message"]
    for path, body in (("chat", asked), ("generate", {"model": name, "prompt": "x"}), ("show", {"model": name})):
        refused = web.post(f"/api/{path}", json=body)
        assert refused.status_code == 404 or (refused.status_code == 422 and not name)
        assert isinstance(refused.json()["error"], str)
