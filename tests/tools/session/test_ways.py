"""How a server that did not come up is tried next, and that one that falls over a question is asked none."""

from __future__ import annotations

from typing import Any, Literal

import anyio
import pytest
from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, METHOD_NOT_FOUND

from rkllm_mcp.tools.servers import ServerSpec
from rkllm_mcp.tools.session.connection import Connection
from rkllm_mcp.tools.session.eras import LEGACY, UNKNOWN, Era, Forgetful, Memory
from rkllm_mcp.tools.session.host import Host
from rkllm_mcp.tools.session.ways import another_way
from tests.support.mcp_servers.specs import PATIENCE_S, unruly
from tests.support.mcp_servers.tiny import LEGACY as HANDSHAKE

pytestmark = pytest.mark.anyio

SSE, HANDSHAKE_AT_ONCE = Era(transport="sse"), Era(version=LEGACY)
HUNG_UP, REFUSED = MCPError(CONNECTION_CLOSED, "Connection closed"), MCPError(METHOD_NOT_FOUND, "Not Found")
UNREACHABLE = OSError("All connection attempts failed")


@pytest.mark.parametrize(
    ("transport", "tried", "error", "expected"),
    [
        ("stdio", UNKNOWN, HUNG_UP, HANDSHAKE_AT_ONCE),
        ("stdio", HANDSHAKE_AT_ONCE, HUNG_UP, None),
        ("stdio", UNKNOWN, REFUSED, None),
        ("stdio", UNKNOWN, FileNotFoundError("nothing-here"), None),
        ("stdio", UNKNOWN, None, None),
        ("sse", UNKNOWN, HUNG_UP, HANDSHAKE_AT_ONCE),
        ("sse", UNKNOWN, UNREACHABLE, None),
        ("http", UNKNOWN, REFUSED, SSE),
        ("http", UNKNOWN, UNREACHABLE, None),
        ("http", UNKNOWN, HUNG_UP, None),
        ("http", SSE, HUNG_UP, Era("sse", LEGACY)),
        ("http", SSE, REFUSED, None),
        ("http", Era("sse", LEGACY), HUNG_UP, None),
    ],
)
def test_a_server_is_tried_in_every_way_that_may_help_and_no_other(
    transport: Literal["stdio", "sse", "http"], tried: Era, error: Exception | None, expected: Era | None
) -> None:
    spec = ServerSpec("s", transport, url="http://127.0.0.1/mcp")
    assert another_way(spec, Memory(spec, Forgetful()), tried, error) == expected


def test_what_was_remembered_and_failed_is_forgotten_and_asked_once() -> None:
    spec = ServerSpec("s", "stdio")
    memory = Memory(spec, Forgetful())
    memory.keep(HANDSHAKE_AT_ONCE, ())
    assert another_way(spec, memory, memory.era, UNREACHABLE) == UNKNOWN
    assert memory.era == UNKNOWN
    assert another_way(spec, memory, UNKNOWN, HUNG_UP) == HANDSHAKE_AT_ONCE
    assert another_way(spec, memory, HANDSHAKE_AT_ONCE, HUNG_UP) is None


async def test_a_server_that_ends_at_the_question_is_greeted_instead_and_this_is_remembered() -> None:
    host = Host(Forgetful())
    spec = unruly("dies_at:server/discover")
    with anyio.fail_after(PATIENCE_S):
        for known in (UNKNOWN.version, LEGACY):
            assert Memory(spec, host.remembered).era.version == known
            connection = Connection(spec, host)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(connection.run)
                assert text_of(await connection.call("echo", {"text": "x"})) == "x"
                assert connection.describe().protocol_version == HANDSHAKE
                connection.stop()


def text_of(result: dict[str, Any]) -> str:
    """What a call brought."""
    return result["content"][0]["text"]
