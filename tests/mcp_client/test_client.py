"""``MCPClient`` as a program uses it that knows nothing else of this package."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Any

import anyio
import pytest

from rkllm_mcp.mcp_client.client import MCPClient
from tests.support.clock import standing_clock, turn
from tests.support.mcp_servers.leftovers import Holdings
from tests.support.mcp_servers.specs import PATIENCE_S
from tests.support.mcp_servers.web import Mcp, echoed, serving
from tests.support.shared import REPOSITORY

pytestmark = pytest.mark.anyio


def client(module: str, *words: str, **settings: Any) -> MCPClient:
    args = ["-S", "-m", f"tests.support.mcp_servers.{module}", *words]
    return MCPClient(sys.executable, args, cwd=str(REPOSITORY), **settings)


async def test_tools_are_listed_and_called_as_plain_json() -> None:
    with anyio.fail_after(PATIENCE_S):
        async with client("tiny") as session:
            (add,) = [tool for tool in await session.list_tools() if tool["name"] == "add"]
            number = {"type": "number"}
            assert add == {
                "name": "add",
                "description": "Add two numbers.",
                "inputSchema": {"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]},
            }
            assert await session.call_tool("add", {"a": 20, "b": 5}) == {
                "content": [{"type": "text", "text": "25"}],
                "isError": False,
            }
            failed = await session.call_tool("fail", {"why": "no"})
            assert failed == {"content": [{"type": "text", "text": "no"}], "isError": True}
            assert (await session.call_tool("unheard_of"))["isError"] is True


def test_it_works_under_a_plain_asyncio_run() -> None:
    async def main() -> str:
        async with client("tiny", "legacy") as session:
            return (await session.call_tool("add", {"a": 1, "b": 1}))["content"][0]["text"]

    assert asyncio.run(main()) == "2"


# --- the errors of the mission's client, section 4, each under its name ----------------------------------------------


async def test_connection_error_when_the_server_process_cannot_be_started() -> None:
    with anyio.fail_after(PATIENCE_S), pytest.raises(ConnectionError, match="'no-such-program' was not found"):
        async with MCPClient("no-such-program"):
            pass
    with (
        anyio.fail_after(PATIENCE_S),
        pytest.raises(ConnectionError, match=r"exited with code 3(.|\n)*fatal: no API key"),
    ):
        async with client("hostile", "exits"):
            pass


async def test_a_connection_and_timeout_error_when_initialisation_times_out() -> None:
    with anyio.fail_after(PATIENCE_S), pytest.raises(ConnectionError, match=r"not ready within 0.3 s") as caught:
        async with client("hostile", "silent", timeout_s=0.3):
            pass
    assert isinstance(caught.value, TimeoutError)


async def test_connection_error_when_a_method_is_called_before_a_session_is_open() -> None:
    session = client("tiny")
    for attempt in (session.list_tools, lambda: session.call_tool("add")):
        with pytest.raises(ConnectionError, match="is not open; use 'async with"):
            await attempt()
    with anyio.fail_after(PATIENCE_S):
        async with session:
            pass
        with pytest.raises(ConnectionError, match="is not open"):
            await session.call_tool("add", {"a": 1, "b": 1})


@standing_clock
async def test_timeout_error_when_a_tool_outlasts_the_timeout_and_the_session_stays_open() -> None:
    async def wait(session: MCPClient) -> None:
        with pytest.raises(TimeoutError, match=r"'wait' .* did not answer within 30 s"):
            await session.call_tool("wait")

    with anyio.fail_after(PATIENCE_S):
        async with client("tiny", timeout_s=30.0) as session:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait, session)
                # Served in order: when this has its answer, the server has the other call.
                await turn(0)
                await session.call_tool("add", {"a": 1, "b": 1})
                await turn(30.0)
            assert (await session.call_tool("cancellations"))["content"][0]["text"] == "wait"


# --- what goes wrong later, and how it is used ------------------------------------------------------------------------


async def test_a_server_that_dies_is_a_connection_error() -> None:
    with anyio.fail_after(PATIENCE_S):
        async with client("hostile", "dying") as session:
            with pytest.raises(ConnectionError, match="killed by SIGKILL"):
                await session.call_tool("die")
            with pytest.raises(ConnectionError, match="killed by SIGKILL"):
                await session.call_tool("echo", {"text": "x"})


async def test_clients_are_closed_in_any_order_and_in_any_task() -> None:
    with anyio.fail_after(PATIENCE_S):
        first, second = client("tiny"), client("tiny")
        await first.__aenter__()
        await second.__aenter__()
        before = Holdings()
        await first.__aexit__(None, None, None)
        assert (await second.call_tool("add", {"a": 1, "b": 1}))["isError"] is False
        await asyncio.create_task(second.aclose())
        assert len(Holdings().children) == len(before.children) - 2


async def test_a_client_can_be_opened_again_after_it_was_closed() -> None:
    session = client("tiny")
    with anyio.fail_after(PATIENCE_S):
        for _ in range(2):
            async with session:
                assert len(await session.list_tools()) == 7


def test_a_command_or_a_url_is_needed() -> None:
    with pytest.raises(ValueError, match="either a command or a url"):
        MCPClient()
    with pytest.raises(ValueError, match="either a command or a url"):
        MCPClient("x", url="http://127.0.0.1:1/mcp")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "ftp://h/mcp"}, "'ftp://h/mcp'; http needs an address that begins with http:// or https://"),
        ({"url": "http://h/mcp", "timeout_s": 0}, "cannot use timeout_s: "),
        ({"command": ""}, "cannot use name: "),
    ],
)
def test_a_value_that_cannot_be_used_is_a_value_error_without_the_headers(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        MCPClient(**settings, headers={"Authorization": "hush"})
    assert "hush" not in str(caught.value)


async def test_headers_are_sent_as_they_are() -> None:
    server = Mcp({"echo": echoed})
    with anyio.fail_after(PATIENCE_S):
        async with serving(server) as url, MCPClient(url=url, headers={"X-Key": "${k}", "X-Team": "one"}) as session:
            assert (await session.call_tool("echo"))["isError"] is False
    assert (server.request.headers["x-key"], server.request.headers["x-team"]) == ("${k}", "one")
