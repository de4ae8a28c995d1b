"""A service without keys, met with bytes that a web page, a confused client or a smuggler sends."""

from __future__ import annotations

import socket
from collections.abc import Generator

import pytest

from tests.support.demo_app import make_demo
from tests.support.started import started

QUESTION = '{"message":"Hello","stream":false}'


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Generator[int, None, None]:
    """The port of a service without keys on loopback."""
    with started(make_demo(tmp_path_factory.mktemp("keyless"), [])) as it:
        yield it.port


def status_of(port: int, sent: str) -> int:
    """Send bytes, with the service's own name in place of BOARD; return the status of the first answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(sent.replace("BOARD", f"127.0.0.1:{port}").replace("\n", "\r\n").encode())
        with connection.makefile("rb") as answer:
            return int(answer.readline().split()[1])


HEADS = {
    "Host: BOARD": 200,
    "Host: BOARD\nOrigin: http://BOARD": 200,
    "Host: BOARD\nX-Forwarded-Host: evil.example": 200,
    "Host: evil.example": 403,
    "Host: 127.0.0.1.evil.example": 403,
    "Host: localhost.evil.example": 403,
    "Host: 127.0.0.1@evil.example": 403,
    "Host: ": 403,
    "Host: BOARD\nHost: evil.example": 400,
    "Host: BOARD\nOrigin: https://evil.example": 403,
    "Host: BOARD\nOrigin: null": 403,
    "Host: BOARD\nOrigin: http://127.0.0.1:1": 403,
}


@pytest.mark.parametrize("head", HEADS)
def test_without_keys_only_a_name_of_the_board_and_its_own_page_are_answered(port: int, head: str) -> None:
    framing = f"Content-Type: application/json\nContent-Length: {len(QUESTION)}\n\n{QUESTION}"
    assert status_of(port, f"POST /v1/execute HTTP/1.1\n{head}\n{framing}") == HEADS[head]


TARGETS = {
    "GET /healthz HTTP/1.1\nHost: BOARD": 200,
    "GET http://BOARD/healthz HTTP/1.1\nHost: evil.example": 200,
    "GET http://evil.example/healthz HTTP/1.1\nHost: BOARD": 403,
    "GET /healthz HTTP/1.0": 403,
    "GET /healthz HTTP/2.0\nHost: BOARD": 400,
    "CONNECT evil.example:443 HTTP/1.1\nHost: evil.example:443": 400,
    "GET /healthz HTTP/1.1\nHost : BOARD": 400,
    "GET /healthz HTTP/1.1\nHost: BOARD\nX-Folded: a\n b": 400,
    "POST /v1/tokens HTTP/1.1\nHost: BOARD\nContent-Length: 3\nTransfer-Encoding: chunked": 400,
    "POST /v1/tokens HTTP/1.1\nHost: BOARD\nContent-Length: 3\nContent-Length: 4": 400,
    "POST /v1/tokens HTTP/1.1\nHost: BOARD\nTransfer-Encoding: xchunked": 400,
    "POST /v1/tokens HTTP/1.1\nHost: BOARD\nContent-Length: +3": 400,
}


@pytest.mark.parametrize("request_head", TARGETS)
def test_a_head_that_can_be_read_in_two_ways_is_refused(port: int, request_head: str) -> None:
    assert status_of(port, f"{request_head}\n\n") == TARGETS[request_head]
