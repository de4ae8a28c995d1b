"""Servers behind HTTP: Streamable HTTP and SSE, with headers, and what happens when they are not there."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx2
import mcp_types
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from mcp.server import MCPServer
from mcp.shared.message import SessionMessage

from rkllm_base.json_values import LONG_BYTES
from rkllm_mcp.mcp_client.client import MCPClient
from rkllm_mcp.mcp_client.lifecycle import ConnectionServices
from rkllm_mcp.mcp_client.server_cache import Forgetful, ServerCache
from rkllm_mcp.mcp_client.transports.long_messages import LongMessages
from rkllm_mcp.messages import ToolCall
from rkllm_mcp.tools.tool_servers import open_toolbox
from rkllm_mcp.tools.toolbox import Toolbox
from tests.support.mcp_servers.leftovers import Holdings
from tests.support.mcp_servers.specs import PATIENCE_S, altered, local_server, remote_server, timed
from tests.support.mcp_servers.tiny import LEGACY, TinyServer, tool
from tests.support.mcp_servers.web import Mcp, Reply, Request, echoed, serving
from tests.support.shared import REPOSITORY

pytestmark = pytest.mark.anyio

HTTP: Literal["http"] = "http"
SSE: Literal["sse"] = "sse"
PATHS = {HTTP: "mcp", SSE: "sse"}


@contextmanager
def remote(transport: Literal["http", "sse"], port: int = 0) -> Generator[str]:
    """The address of a server behind HTTP that lives as long as the block."""
    command = [sys.executable, "-m", "tests.support.mcp_servers.remote", transport, str(port)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/{PATHS[transport]}"
        finally:
            process.kill()


@pytest.mark.parametrize("transport", [HTTP, SSE])
async def test_a_server_over_http_is_called_with_its_headers(transport: Literal["http", "sse"]) -> None:
    with remote(transport) as url, anyio.fail_after(PATIENCE_S):
        spec = remote_server("remote", transport, url=url, headers_template={"X-Token": "t0k3n"})
        async with open_toolbox([spec]) as toolbox:
            await toolbox.wait_until_connected()
            result = await toolbox.call(ToolCall("call_1", "header", {"name": "x-token"}))
            assert (result.text, result.is_error) == ("t0k3n", False)


async def test_a_key_that_the_configuration_spells_out_does_not_come_back() -> None:
    with remote(HTTP) as url, anyio.fail_after(PATIENCE_S):
        spec = remote_server(
            "remote", HTTP, url=url, headers_template={"X-API-Key": "k3y-of-the-owner", "X-Token": "short"}
        )
        async with open_toolbox([spec]) as toolbox:
            await toolbox.wait_until_connected()
            for header, text in (("x-api-key", "[REDACTED]"), ("x-token", "short")):
                assert (await toolbox.call(ToolCall("call_1", "header", {"name": header}))).text == text


@pytest.mark.parametrize("transport", [HTTP, SSE])
async def test_a_server_over_http_that_dies_costs_a_call_and_is_connected_again(
    transport: Literal["http", "sse"],
) -> None:
    with anyio.fail_after(PATIENCE_S), remote(transport) as url:
        spec = remote_server("remote", transport, url=url)
        async with open_toolbox([spec]) as toolbox:
            await toolbox.wait_until_connected()
            result = await toolbox.call(ToolCall("call_1", "die", {}))
            assert result.is_error
            with remote(transport, int(url.rsplit(":", 1)[1].split("/")[0])):
                result = await toolbox.call(ToolCall("call_2", "header", {"name": "host"}))
                assert result.is_error is False


async def test_an_address_without_a_server_is_a_connection_error() -> None:
    with anyio.fail_after(PATIENCE_S), pytest.raises(ConnectionError, match=r"http://127.0.0.1:1/mcp cannot be used"):
        async with MCPClient(url="http://127.0.0.1:1/mcp"):
            pass


async def test_the_client_speaks_to_a_url() -> None:
    with remote(HTTP) as url, anyio.fail_after(PATIENCE_S):
        async with MCPClient(url=url) as session:
            assert [tool["name"] for tool in await session.list_tools()] == ["header", "die"]


# --- servers that are older than the configuration thinks, or in this process ----------------------------------------


async def test_a_server_that_only_knows_sse_is_found_over_http_and_remembered() -> None:
    host = ConnectionServices(Forgetful())
    with remote(SSE) as url, anyio.fail_after(PATIENCE_S):
        for _ in range(2):
            async with open_toolbox([remote_server("old", "http", url=url)], host=host) as toolbox:
                await toolbox.wait_until_connected()
                result = await toolbox.call(ToolCall("call_1", "header", {"name": "host"}))
                assert result.text.startswith("127.0.0.1:")
        assert ServerCache(remote_server("old", "http", url=url), host.remembered).known.era.transport == "sse"


class Sse:
    """A server of HTTP with SSE: answers come on the one long response, unless a POST is refused with ``status``."""

    def __init__(self) -> None:
        self.status = 202
        self.inner = TinyServer([tool("echo")], {"echo": echoed})
        self.send, self.receive = anyio.create_memory_object_stream[bytes](10)

    def __call__(self, request: Request) -> Reply:
        if request.method == "GET":
            return Reply(200, b"", {"Content-Type": "text/event-stream"}, events=self.events())
        message = request.json
        if message["method"] == "tools/call" and self.status != 202:
            return Reply(self.status, b"no")
        if "id" in message:
            outcome = self.inner.outcome(message["method"], message.get("params") or {})
            answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome})
            self.send.send_nowait(f"event: message\ndata: {answer}\n\n".encode())
        return Reply(202)

    async def events(self) -> AsyncIterator[bytes]:
        yield b"event: endpoint\ndata: /messages?session_id=1\n\n"
        async for event in self.receive:
            yield event


@pytest.mark.parametrize(
    ("status", "said"), [(401, "(HTTP 401): the key is missing"), (500, "HTTP 500 Internal Server")]
)
async def test_a_call_that_is_refused_over_sse_is_a_result_and_the_session_goes_on(status: int, said: str) -> None:
    server = Sse()
    with server.send, server.receive, anyio.fail_after(PATIENCE_S):
        async with serving(server) as url, open_toolbox([remote_server("s", "sse", url=f"{url}/sse")]) as toolbox:
            await toolbox.wait_until_connected()
            server.status = status
            result = await toolbox.call(ToolCall("call_1", "echo", {}))
            assert result.is_error
            assert said in result.text
            server.status = 202
            assert (await toolbox.call(ToolCall("call_2", "echo", {}))).text == "echoed"


def greeter() -> MCPServer:
    """A server in this process."""
    server = MCPServer("greeter")

    @server.tool()
    def greet(name: str) -> str:  # pyright: ignore[reportUnusedFunction]
        """Greets."""
        return f"Hello {name}"

    return server


@pytest.mark.parametrize("served", [greeter(), greeter, f"{__name__}:greeter"], ids=["server", "function", "name"])
async def test_a_server_in_this_process_is_called_like_any_other(served: object) -> None:
    with anyio.fail_after(PATIENCE_S):
        before = Holdings()
        async with open_toolbox([local_server("own")], host=ConnectionServices(in_process={"own": served})) as toolbox:
            await toolbox.wait_until_connected()
            assert Holdings() == before
            result = await toolbox.call(ToolCall("call_1", "greet", {"name": "Ada"}))
            assert (result.text, result.is_error) == ("Hello Ada", False)


@pytest.mark.parametrize(
    ("served", "reason"),
    [
        (7, "7 is not an MCP server; name an MCPServer or a function that makes one"),
        ("no.such.module:server", "'no.such.module:server' cannot be loaded: No module named 'no'; write it as"),
        ("json", "'json' cannot be loaded: "),
    ],
)
async def test_an_object_that_is_not_a_server_in_this_process_is_reported(served: object, reason: str) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([local_server("own")], host=ConnectionServices(in_process={"own": served})) as toolbox:
            await toolbox.wait_until_connected()
            assert reason in toolbox.servers()[0].reason


# --- what HTTP servers answer instead --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(401, b"no"), "The server refused the call (HTTP 401): the key is missing or not valid"),
        (Reply(403, b"no"), "The server refused the call (HTTP 403): the key does not allow this"),
        (Reply(500, b"x" * 100_000), "The call failed: HTTP 500 Internal Server Error (code -32603)."),
        (Reply(503, {"error": {"code": -32011, "message": "come back later"}}), "come back later (code -32011)"),
        (Reply(429, {"error": "busy"}), "HTTP 429 Too Many Requests"),
        (Reply(200, b"<html>"), "Unexpected content type: text/html"),
        (Reply(200, b"{", {"Content-Type": "application/json"}), "Failed to parse JSON response"),
        (Reply(202), "answered a request with 202 Accepted"),
        (Reply(204), "answered a request with 204 No Content"),
        (Reply(302, b"", {"Location": "http://127.0.0.1:1/"}), "Redirect to http://127.0.0.1:1/ not followed"),
        (None, "was lost during the call"),
    ],
)
async def test_an_http_answer_that_is_not_one_costs_one_call(reply: Reply | None, said: str) -> None:
    server = Mcp({"echo": echoed})
    spec = remote_server("s", "http", headers_template={"Authorization": "k"})

    def answer(request: Request) -> Reply | None:
        return reply if b"tools/call" in request.body and b"spoil" in request.body else server(request)

    with anyio.fail_after(PATIENCE_S):
        async with (
            serving(answer) as url,
            open_toolbox([altered(spec, url=url)], host=timed(restart_pause_s=0)) as toolbox,
        ):
            await toolbox.wait_until_connected()
            result = await toolbox.call(ToolCall("call_1", "echo", {"spoil": 1}))
            assert result.is_error
            assert said in result.text
            assert (await toolbox.call(ToolCall("call_2", "echo", {}))).text == "echoed"


def as_list(reply: Reply) -> Reply:
    return Reply(reply.status, [reply.body], reply.headers)


def with_text_id(reply: Reply) -> Reply:
    return Reply(reply.status, {**reply.body, "id": str(reply.body["id"])}, reply.headers)


def without_type(reply: Reply) -> Reply:
    return Reply(reply.status, reply.body, {**reply.headers, "Content-Type": ""})


def as_event_without_type(reply: Reply) -> Reply:
    return Reply(reply.status, f"event: message\ndata: {json.dumps(reply.body)}\n\n".encode(), {"Content-Type": ""})


@pytest.mark.parametrize("changed", [as_list, with_text_id, without_type, as_event_without_type])
async def test_an_answer_of_odd_shape_is_read(changed: Callable[[Reply], Reply]) -> None:
    server = Mcp({"echo": echoed})

    def answer(request: Request) -> Reply:
        reply = server(request)
        return changed(reply) if b"tools/call" in request.body else reply

    with anyio.fail_after(PATIENCE_S):
        async with serving(answer) as url, open_toolbox([remote_server("s", "http", url=url)]) as toolbox:
            await toolbox.wait_until_connected()
            result = await toolbox.call(ToolCall("call_1", "echo", {}))
            assert (result.text, result.is_error) == ("echoed", False)


async def test_a_request_that_comes_too_soon_is_sent_again_when_the_server_says_so() -> None:
    server = Mcp({"echo": echoed})
    refusals = [
        Reply(429, b"", {"Retry-After": "0"}),
        Reply(429, {"error": "busy"}, {"Retry-After": "Thu, 26 Nov 2026 10:00:00 GMT"}),
    ]

    def answer(request: Request) -> Reply:
        is_call = b"tools/call" in request.body
        return refusals.pop() if is_call and refusals else server(request)

    with anyio.fail_after(PATIENCE_S):
        async with serving(answer) as url, open_toolbox([remote_server("s", "http", url=url)]) as toolbox:
            await toolbox.wait_until_connected()
            assert (await toolbox.call(ToolCall("call_1", "echo", {}))).text == "echoed"
            assert server.heard.count("tools/call") == 1
            refusals += [Reply(429, b"", {"Retry-After": "86400"})]
            text = (await toolbox.call(ToolCall("call_2", "echo", {}))).text
            assert "HTTP 429 Too Many Requests; it may be tried again in 86400 s" in text
            refusals += [Reply(429, b"", {"Retry-After": "0"})] * 9
            assert "HTTP 429" in (await toolbox.call(ToolCall("call_3", "echo", {}))).text


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_within_the_server_is_followed_whatever_its_type(status: int) -> None:
    server = Mcp({"echo": echoed})

    def answer(request: Request) -> Reply:
        # As Starlette answers where a path lacks its slash, but with the type of an answer.
        moved = {"Location": "/mcp/", "Content-Type": "application/json"}
        return server(request) if request.path == "/mcp/" else Reply(status, b"", moved)

    with anyio.fail_after(PATIENCE_S):
        async with serving(answer) as url, open_toolbox([remote_server("s", "http", url=f"{url}/mcp")]) as toolbox:
            await toolbox.wait_until_connected()
            assert (await toolbox.call(ToolCall("call_1", "echo", {}))).text == "echoed"


async def test_a_redirect_of_a_server_behind_a_tls_proxy_keeps_its_https(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = own_certificate(tmp_path)
    context.load_cert_chain(certificate, tmp_path / "key.pem")
    server = Mcp({"echo": echoed})

    def answer(request: Request) -> Reply:
        moved = {"Location": f"http://{request.headers['host']}/mcp/"}
        return server(request) if request.path == "/mcp/" else Reply(307, b"", moved)

    with anyio.fail_after(PATIENCE_S):
        async with serving(answer, context) as url:
            spec = remote_server("s", "http", url=f"{url}/mcp", ca_file=str(certificate))
            async with open_toolbox([spec]) as toolbox:
                await toolbox.wait_until_connected()
                assert (await toolbox.call(ToolCall("call_1", "echo", {}))).text == "echoed"


async def test_one_request_that_does_not_arrive_does_not_disturb_parallel_ones() -> None:
    hold = anyio.Event()

    async def answer(request: Request) -> Reply | None:
        if b"spoil" in request.body:
            return Reply(500)
        if b"tools/call" in request.body:
            await hold.wait()
        return server(request)

    server = Mcp({"echo": echoed})
    texts: list[str] = []

    async def call(toolbox: Toolbox) -> None:
        texts.append((await toolbox.call(ToolCall("call_1", "echo", {}))).text)

    with anyio.fail_after(PATIENCE_S):
        async with serving(answer) as url, open_toolbox([remote_server("s", "http", url=url)]) as toolbox:
            await toolbox.wait_until_connected()
            async with anyio.create_task_group() as callers:
                callers.start_soon(call, toolbox)
                assert (await toolbox.call(ToolCall("call_2", "echo", {"spoil": 1}))).is_error
                hold.set()
    assert texts == ["echoed"]


async def test_an_answer_beyond_all_measure_is_not_read_to_its_end() -> None:
    async def forever() -> AsyncIterator[bytes]:
        yield b'{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"'
        while True:
            yield b"x" * 1_000_000

    def answer(request: Request) -> Reply:
        if b"tools/call" in request.body:
            return Reply(200, b"", {"Content-Type": "application/json"}, events=forever())
        return server(request)

    server = Mcp({"echo": echoed})
    with anyio.fail_after(PATIENCE_S):
        async with serving(answer) as url, open_toolbox([remote_server("s", "http", url=url)]) as toolbox:
            await toolbox.wait_until_connected()
            result = await toolbox.call(ToolCall("call_1", "echo", {}))
            assert "the response has more than 32 MB" in result.text


def as_event(reply: Reply) -> Reply:
    # Servers write the fields of an event in any order, and end lines in three ways.
    written = json.dumps(reply.body)
    return Reply(200, f"data: {written}\r\nevent: message\r\n\r\n".encode(), {"Content-Type": "text/event-stream"})


@pytest.mark.parametrize("changed", [as_list, as_event, with_text_id])
async def test_a_long_answer_is_read_in_a_thread_and_one_of_too_many_values_fails(
    changed: Callable[[Reply], Reply], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Mcp({"echo": echoed})
    values = [0] * 150_000
    read: list[tuple[int, int]] = []
    reading = mcp_types.jsonrpc_message_adapter.validate_json

    def noted(data: str | bytes, **settings: Any) -> Any:
        read.append((len(data), threading.get_ident()))
        return reading(data, **settings)

    def answer(request: Request) -> Reply:
        reply = server(request)
        if b"tools/call" not in request.body:
            return reply
        return changed(Reply(200, {**reply.body, "result": {**reply.body["result"], "_meta": {"x": values}}}))

    monkeypatch.setattr(mcp_types.jsonrpc_message_adapter, "validate_json", noted)
    with anyio.fail_after(PATIENCE_S):
        async with serving(answer) as url, open_toolbox([remote_server("s", "http", url=url)]) as toolbox:
            await toolbox.wait_until_connected()
            result = await toolbox.call(ToolCall("call_1", "echo", {}))
            assert (result.text, result.is_error) == ("echoed", False)
            long = {thread for size, thread in read if size > LONG_BYTES}
            assert len(long) == 1
            assert threading.get_ident() not in long
            values += [0] * 100_000
            result = await toolbox.call(ToolCall("call_2", "echo", {}))
            assert (result.is_error, "the response cannot be read" in result.text) == (True, True)
            values.clear()
            assert (await toolbox.call(ToolCall("call_3", "echo", {}))).text == "echoed"


@pytest.mark.parametrize("ending", [b"\n", b"\r", b"\r\n"])
async def test_events_are_found_however_their_bytes_arrive(ending: bytes) -> None:
    """A long event becomes a short one, and what is before and after it stays as it is."""
    result = {"content": [{"type": "text", "text": "x" * LONG_BYTES}], "kind": "short"}
    long = json.dumps({"jsonrpc": "2.0", "id": 7, "result": result}, indent=1).encode()
    lines = [b"id: 4", *(b"data: " + line for line in long.split(b"\n"))]
    before, after = ending.join([b": ping", b"", b""]), ending.join([b"data: {}", b"", b""])
    whole = before + ending.join([*lines, b"", b""]) + after
    cuts = [0, 3, len(before) - 1, len(before) + 9, *(len(whole) - back for back in range(20, 0, -1)), len(whole)]

    async def pieces() -> AsyncIterator[bytes]:
        for start, end in pairwise(cuts):
            yield whole[start:end]

    messages = LongMessages()
    headers, request = {"content-type": "text/event-stream"}, httpx2.Request("GET", "http://127.0.0.1/mcp")
    response = httpx2.Response(200, headers=headers, content=pieces(), request=request)
    content = b"".join([piece async for piece in messages.shorten_events(response).aiter_bytes()])
    before, after, content = (b"\n".join(part.splitlines()) + b"\n" for part in (before, after, content))
    assert content.startswith(before + b"id: 4\ndata: {")
    assert content.endswith(after)
    short = json.loads(content.removesuffix(after).partition(b"data: ")[2])
    assert short["result"].pop("kind") == "short"
    assert len(content) < 1000
    item = SessionMessage(mcp_types.JSONRPCResponse.model_validate({**short, "id": 9}))
    restored = await messages.restore(item)
    assert isinstance(restored, SessionMessage)
    assert isinstance(restored.message, mcp_types.JSONRPCResponse)
    assert (restored.message.id, restored.message.result) == (9, result)


async def test_a_server_that_does_not_release_its_session_does_not_delay_the_end() -> None:
    async def answer(request: Request) -> Reply | None:
        if request.method == "DELETE":
            await anyio.sleep_forever()
        return server(request)

    server = Mcp({"echo": echoed}, (LEGACY,), session="one")
    with anyio.fail_after(PATIENCE_S):
        async with serving(answer) as url:
            spec = remote_server("s", "http", url=url)
            with anyio.fail_after(60):
                async with open_toolbox([spec], host=timed(stop_grace_s=0.1)) as toolbox:
                    await toolbox.wait_until_connected()


async def test_a_server_with_a_certificate_of_one_s_own_is_trusted_when_its_authority_is_named(tmp_path: Path) -> None:
    server = Mcp({"echo": echoed})
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = own_certificate(tmp_path)
    context.load_cert_chain(certificate, tmp_path / "key.pem")
    with anyio.fail_after(PATIENCE_S):
        async with serving(server, context) as url:
            known = remote_server("known", "http", url=url, ca_file=str(certificate))
            unknown = remote_server("unknown", "http", url=url)
            missing = remote_server("missing", "http", url=url, ca_file=str(tmp_path / "none.pem"))
            async with open_toolbox([known, unknown, missing]) as toolbox:
                await toolbox.wait_until_connected()
                states = {state.name: state for state in toolbox.servers()}
    assert states["known"].state == "ready"
    assert "certificate verify failed" in states["unknown"].reason.lower()
    assert states["missing"].reason.endswith("No such file or directory; name a file in PEM format")


def own_certificate(folder: Path) -> Path:
    """A certificate for localhost that signs itself, and its key next to it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    path.write_bytes(certificate.public_bytes(Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return path
