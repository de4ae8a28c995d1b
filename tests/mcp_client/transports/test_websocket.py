"""Servers behind a WebSocket, in both eras, and what happens when one goes."""

from __future__ import annotations

import anyio
import pytest

from bench.tally import descriptors
from rkllm_mcp.messages import ToolCall
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.tools.tool_servers import open_toolbox
from tests.support.mcp_servers.calling import said
from tests.support.mcp_servers.sockets import Sockets, sockets
from tests.support.mcp_servers.specs import PATIENCE_S, remote_server, timed
from tests.support.mcp_servers.tiny import LEGACY, MODERN

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("era", [MODERN, LEGACY])
async def test_a_server_over_a_websocket_is_called_with_its_headers(era: str) -> None:
    server = Sockets(era)
    reports: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        del total, message
        reports.append(progress)

    with anyio.fail_after(PATIENCE_S):
        async with sockets(server) as url:
            spec = remote_server("ws", "websocket", url=url, headers_template={"Authorization": "Bearer k"})
            async with open_toolbox([spec]) as toolbox:
                await toolbox.wait_until_connected()
                assert await said(toolbox, "add", a=2, b=3) == ("5", False)
                await toolbox.call(ToolCall("call_1", "steps", {"count": 2}), CallContext(on_progress=note))
                (state,) = toolbox.servers()
    assert (server.headers, server.subprotocols) == (["Bearer k"], ["mcp"])
    assert reports == [1, 2]
    assert state.protocol_version == era
    assert state.last_lines == ("invalid message: not a message", 'invalid message: {"jsonrpc":')


async def test_a_socket_that_closes_costs_a_call_and_is_opened_again_at_the_next() -> None:
    with anyio.fail_after(PATIENCE_S):
        async with sockets(Sockets()) as url, open_toolbox([remote_server("ws", "websocket", url=url)]) as toolbox:
            await toolbox.wait_until_connected()
            text, is_error = await said(toolbox, "leave")
            assert is_error
            assert "it closed the connection (1011: overloaded); it is started again" in text
            assert await said(toolbox, "add", a=1, b=1) == ("2", False)


async def test_a_socket_whose_server_is_stuck_is_closed_by_a_cancellation_as_well() -> None:
    server = Sockets()
    with anyio.fail_after(PATIENCE_S):
        async with sockets(server) as url:
            before = set(descriptors().values())
            with anyio.CancelScope() as scope:
                spec = remote_server("ws", "websocket", url=url)
                async with open_toolbox([spec], host=timed(stop_grace_s=0.1)) as toolbox:
                    await toolbox.wait_until_connected()
                    server.clients[0].transport.pause_reading()
                    scope.cancel()
            # The server's end alone is left. Files are not compared: another thread may be importing a module.
            end = server.clients[0].transport.get_extra_info("socket").fileno()
            left = {name for name in set(descriptors().values()) - before if not name.startswith("/")}
            assert left == {descriptors()[str(end)]}
            server.clients[0].transport.resume_reading()


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "the server refused the connection (HTTP 401): the key is missing or not valid; correct"),
        (403, "the server refused the connection (HTTP 403): the key does not allow this; correct"),
        (404, "cannot be used: the server answered HTTP 404; check the URL"),
        (302, "cannot be used: the server answered HTTP 302; check the URL"),
    ],
)
async def test_a_handshake_that_is_refused_says_how(status: int, reason: str) -> None:
    server = Sockets()
    server.status = status
    with anyio.fail_after(PATIENCE_S):
        async with sockets(server) as url, open_toolbox([remote_server("ws", "websocket", url=url)]) as toolbox:
            await toolbox.wait_until_connected()
            assert reason in toolbox.servers()[0].reason
