"""How a server that did not come up is tried next, and that one that falls over a question is asked none."""

from __future__ import annotations

from typing import Any, Literal

import anyio
import pytest
from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, METHOD_NOT_FOUND

from rkllm_mcp.mcp_client.connection import Connection
from rkllm_mcp.mcp_client.lifecycle import ConnectionServices
from rkllm_mcp.mcp_client.server_cache import (
    LEGACY,
    UNKNOWN,
    Forgetful,
    ProtocolRevision,
    ServerCache,
    transport_fallback,
)
from tests.support.mcp_servers.specs import PATIENCE_S, local_server, remote_server, unruly
from tests.support.mcp_servers.tiny import LEGACY as HANDSHAKE

pytestmark = pytest.mark.anyio

SSE, HANDSHAKE_AT_ONCE = ProtocolRevision(transport="sse"), ProtocolRevision(version=LEGACY)
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
        ("http", SSE, HUNG_UP, ProtocolRevision("sse", LEGACY)),
        ("http", SSE, REFUSED, None),
        ("http", ProtocolRevision("sse", LEGACY), HUNG_UP, None),
    ],
)
def test_a_server_is_tried_in_every_way_that_may_help_and_no_other(
    transport: Literal["stdio", "sse", "http"],
    tried: ProtocolRevision,
    error: Exception | None,
    expected: ProtocolRevision | None,
) -> None:
    spec = local_server("s") if transport == "stdio" else remote_server("s", transport)
    assert transport_fallback(spec, ServerCache(spec, Forgetful()), tried, error) == expected


def test_a_remembered_transport_that_failed_is_forgotten_and_tried_once() -> None:
    spec = local_server("s")
    memory = ServerCache(spec, Forgetful())
    memory.keep(HANDSHAKE_AT_ONCE, ())
    assert transport_fallback(spec, memory, memory.known.era, UNREACHABLE) == UNKNOWN
    assert memory.known.era == UNKNOWN
    assert transport_fallback(spec, memory, UNKNOWN, HUNG_UP) == HANDSHAKE_AT_ONCE
    assert transport_fallback(spec, memory, HANDSHAKE_AT_ONCE, HUNG_UP) is None


async def test_a_server_that_ends_at_the_question_is_greeted_instead_and_this_is_remembered() -> None:
    host = ConnectionServices(Forgetful())
    spec = unruly("dies_at:server/discover")
    with anyio.fail_after(PATIENCE_S):
        for known in (UNKNOWN.version, LEGACY):
            assert ServerCache(spec, host.remembered).known.era.version == known
            connection = Connection(spec, host)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(connection.run)
                assert text_of(await connection.call("echo", {"text": "x"})) == "x"
                assert connection.describe().protocol_version == HANDSHAKE
                connection.stop()


def text_of(result: dict[str, Any]) -> str:
    """What a call brought."""
    return result["content"][0]["text"]
