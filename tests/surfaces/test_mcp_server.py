"""``rkllm-mcp tools serve``: the board's services as other hosts see them, with the emulated model."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import urllib.error
from collections.abc import AsyncGenerator, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import anyio
import pexpect
import pytest
from mcp import Client

from rkllm_mcp.app.board_services import open_board_services
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.mcp_client.client import MCPClient
from rkllm_mcp.surfaces.invocation import RefusalLog
from rkllm_mcp.surfaces.mcp_server import BoardServer, RequiredKey
from tests.support.demo_app import Demo, descendants, is_alive, make_demo, wait_asleep
from tests.support.feature_demo import make_features

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def board(folder: Path, embedding: str | None = None) -> AsyncGenerator[Client, None]:
    """A client of the services, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in make_demo(folder, []).environment.items():
            patch.setenv(name, value)
        async with (
            open_board_services(load_config(folder / "mcp_config.toml"), embedding) as services,
            Client(BoardServer(services)) as client,
        ):
            yield client


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Client, None]:
    async with board(tmp_path_factory.mktemp("board")) as it:
        yield it


async def test_a_prompt_is_answered_piece_by_piece(client: Client) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    with anyio.fail_after(60):
        arguments = {"prompt": "Hello", "system": "Be brief.", "max_tokens": 5}
        result = await client.call_tool("generate", arguments, progress_callback=hear)
        assert result.structured_content is not None
        assert result.structured_content | {"prompt_tokens": 0} == {
            "text": "This is the emulated",
            "model": "demo",
            "is_cut": True,
            "prompt_tokens": 0,
            "generated_tokens": 5,
        }
        assert heard == [(n, 5, text) for n, text in enumerate(("Th", "is", " is", " the", " emulated"), 1)]


WRONG: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("generate", {}, "generate was called without 'prompt'; give it"),
    ("rerank", {}, "rerank was called without 'query' and 'documents'; give them"),
    ("generate", {"prompt": 3}, "'prompt' of generate: found 3 (a number); a string is allowed"),
    ("embed", {"texts": ["a", 1]}, "'texts.1' of embed: found 1 (a number); a string is allowed"),
)


async def test_arguments_that_do_not_fit_are_named_in_a_sentence(client: Client) -> None:
    with anyio.fail_after(60):
        for tool, arguments, sentence in WRONG:
            result = await client.call_tool(tool, arguments)
            assert (result.is_error, [getattr(part, "text", "") for part in result.content]) == (True, [sentence])


async def test_texts_become_vectors_and_what_fails_is_a_result(client: Client) -> None:
    with anyio.fail_after(60):
        texts = ["a cat and a dog", "the dog and the cat", "weather tomorrow"]
        result = await client.call_tool("embed", {"texts": texts, "dimensions": 64})
        assert result.structured_content is not None
        one, two, three = result.structured_content["vectors"]
        assert [len(vector) for vector in (one, two, three)] == [64, 64, 64]
        assert _product(one, one) == pytest.approx(1, abs=1e-3)
        assert _product(one, two) > _product(one, three)
        refused = await client.call_tool("embed", {"texts": texts, "dimensions": 9999})
        assert (refused.is_error, refused.structured_content) == (True, None)
        unranked = await client.call_tool("rerank", {"query": "x", "documents": ["y"]})
        assert unranked.is_error
        assert "Qwen3-Reranker" in str(unranked.content)


async def test_another_model_embeds_where_one_is_named_and_the_board_says_how_it_is(tmp_path: Path) -> None:
    other = make_features(tmp_path / "other", []).folder / "secretary"
    with anyio.fail_after(60):
        async with board(tmp_path, str(other)) as client:
            result = await client.call_tool("embed", {"texts": ["x"]})
            assert result.structured_content is not None
            assert result.structured_content["model"] == "secretary"
            status = await client.call_tool("board_status", {})
            assert status.structured_content is not None
            assert status.structured_content["embedding model"] == "secretary"
            assert status.structured_content["model"] == "demo"
            assert [resource.uri for resource in (await client.list_resources()).resources] == [
                "board://status",
                "board://model",
            ]
            read = await client.read_resource("board://model")
            assert json.loads(getattr(read.contents[0], "text", ""))["context_tokens"] == 4096


async def test_a_client_that_cancels_stops_its_run_and_the_next_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RKLLM_EMULATOR_SPEED", "prefill 1000 decode 5")
    begun = anyio.Event()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        begun.set()

    async with board(tmp_path) as client:
        monkeypatch.setenv("RKLLM_EMULATOR_SPEED", "flat")
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                await client.call_tool("generate", {"prompt": "Tell me everything"}, progress_callback=hear)

            tasks.start_soon(ask)
            await begun.wait()
            tasks.cancel_scope.cancel()
        result = await client.call_tool("generate", {"prompt": "Hello", "max_tokens": 1})
        assert not result.is_error


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    return make_demo(tmp_path, [])


def test_another_host_starts_it_over_stdio_and_its_silence_does_not_keep_it_from_ending(demo: Demo) -> None:
    who = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}
    call = {"name": "generate", "arguments": {"prompt": "Hello", "max_tokens": 3}}
    sent: tuple[dict[str, Any], ...] = (
        {"id": 1, "method": "initialize", "params": who},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    )
    with subprocess.Popen(
        demo.command("tools", "serve"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=demo.environment, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for message in sent:
                print(json.dumps({"jsonrpc": "2.0", **message}), file=process.stdin, flush=True)
            answers = (json.loads(line) for line in process.stdout)
            result = next(answer for answer in answers if answer.get("id") == 2)["result"]
            assert (result["isError"], result["structuredContent"]["generated_tokens"]) == (False, 3)
            children = descendants(process.pid)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 128 + signal.SIGTERM
        finally:
            process.kill()
        assert [pid for pid in children if is_alive(pid)] == []


def test_typed_at_a_terminal_it_explains_its_purpose(demo: Demo) -> None:
    command, *arguments = demo.command("tools", "serve")
    terminal: pexpect.spawn[str] = pexpect.spawn(
        command, arguments, env=dict(demo.environment), encoding="utf-8", timeout=60
    )
    terminal.expect_exact("This speaks MCP on standard input")
    terminal.sendcontrol("d")
    terminal.expect(pexpect.EOF)


async def test_over_http_a_key_is_required_where_some_are_configured(demo: Demo) -> None:
    demo.config.write_text(f'{demo.config.read_text("utf-8")}[service]\napi_keys = ["hunter2"]\n', "utf-8")
    with anyio.fail_after(60), demo.started("tools", "serve", "--http", "--port", "0") as process:
        assert process.stderr is not None
        line = await anyio.to_thread.run_sync(process.stderr.readline)
        url = line.rpartition(" ")[2].strip()
        for headers in ({}, {"Authorization": "Bearer hunter3"}, {"Authorization": "Basic hunter2"}):
            with pytest.raises(urllib.error.HTTPError, match="401") as refused:
                await anyio.to_thread.run_sync(urlopen, Request(url, b"{}", headers))
            refused.value.close()
        port = url.rpartition(":")[2].partition("/")[0]
        with socket.create_connection(("127.0.0.1", int(port))) as stranger:
            stranger.send(b"NONSENSE\r\n\r\n")
            assert stranger.recv(12) == b"HTTP/1.1 400"
        # One line for both wrong keys, without them; a missing key is none, and so is what is not HTTP.
        line = await anyio.to_thread.run_sync(process.stderr.readline)
        assert line == "refused a request that is not allowed (401) from 127.0.0.1\n"
        async with MCPClient(url=url, headers={"Authorization": "Bearer hunter2"}) as client:
            assert [tool["name"] for tool in await client.list_tools()] == [
                "generate",
                "embed",
                "rerank",
                "board_status",
            ]
        await anyio.to_thread.run_sync(wait_asleep, process.pid)
        children = descendants(process.pid)
        taken = demo.run("tools", "serve", "--http", "--port", port)
        assert taken.returncode == 2
        assert f"Error: cannot listen on 127.0.0.1:{port} (Address already in use by " in taken.stderr
        assert f", process {process.pid}); choose another --host or --port\n" in taken.stderr
        process.send_signal(signal.SIGTERM)
        assert await anyio.to_thread.run_sync(process.wait) == 128 + signal.SIGTERM
        assert process.stderr.read() == ""
        assert [pid for pid in children if is_alive(pid)] == []


async def test_without_keys_nothing_is_checked_and_with_some_a_missing_one_is_not_noted() -> None:
    async def app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        await send(scope)

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def nothing() -> MutableMapping[str, Any]:
        return {}

    # What is no request, as the start of the application, passes. A missing key is refused, but is not a wrong one.
    unguarded, guarded = (RequiredKey(app, keys, RefusalLog(pytest.fail)) for keys in ((), ("k",)))
    await unguarded({"type": "http", "method": "POST", "headers": []}, nothing, send)
    assert sent.pop()["type"] == "http"
    await guarded({"type": "lifespan"}, nothing, send)
    assert sent == [{"type": "lifespan"}]
    await guarded({"type": "http", "method": "POST", "headers": []}, nothing, send)
    assert sent[1]["status"] == 401


def _product(one: list[float], two: list[float]) -> float:
    return sum(a * b for a, b in zip(one, two, strict=True))
