"""A server without a process is loaded once, again after a failure, and closed at the end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from rkllm_mcp.config.servers import BuiltinServer, BuiltinTool, OpenAPIServer, ServerConfig
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.mcp_client.connection import Connection
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.tools.tool_servers import LocalToolServer, Opener, source_of
from tests.support.mcp_servers.specs import local_server

pytestmark = pytest.mark.anyio

PATIENCE_S = 60
CLOCK = BuiltinTool(name="clock")
BUILTIN = BuiltinServer(name="b", tools=(CLOCK,))


class Told:
    """Tools that say what they were called with."""

    tools: tuple[ToolSpec, ...] = (ToolSpec("say"), ToolSpec("hide"))

    async def call(self, tool: str, arguments: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"{tool} {dict(arguments)}"}], "isError": False}


def opener(log: list[str], failures: int = 0) -> Opener:
    """Opens ``Told``, after this many failures."""

    @asynccontextmanager
    async def open_told(note: Callable[[str], None]) -> AsyncGenerator[Told]:
        log.append("opened")
        if log.count("opened") <= failures:
            raise ValueError("the disk is full")
        try:
            yield Told()
        finally:
            log.append("closed")

    return open_told


async def test_it_is_loaded_called_and_closed() -> None:
    log: list[str] = []
    states: list[str] = []
    spec = BuiltinServer(name="b", tools=(CLOCK,), excluded_tools=("hide",))
    source = LocalToolServer(spec, opener(log), on_change=lambda changed: states.append(changed.state))
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(source.run)
            assert (await source.call("say", {"a": 1}))["content"][0]["text"] == "say {'a': 1}"
            assert [(tool.server, tool.wire_name) for tool in source.tools] == [("b", "say")]
            assert source.describe().tool_count == 1
            source.stop()
            source.stop()
    assert log == ["opened", "closed"]
    assert states == ["connecting", "ready", "stopped"]
    with pytest.raises(ServerUnavailableError, match="is not available: it was stopped"):
        await source.call("say", {})


async def test_one_that_failed_is_loaded_at_its_next_use_then_only_after_a_pause() -> None:
    log: list[str] = []
    states: list[str] = []
    source = LocalToolServer(
        BUILTIN, opener(log, failures=2), restart_pause_s=3600, on_change=lambda changed: states.append(changed.state)
    )
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(source.run)
            await source.wait_until_settled()
            assert (source.state, source.explanation()) == ("failed", "the disk is full")
            with pytest.raises(ServerUnavailableError, match="'b' is not available: the disk is full"):
                await source.available()
            with pytest.raises(ServerUnavailableError, match=r"can be tried again in \d+ s: the disk is full"):
                await source.available()
            source.stop()
    # The second failure is the first once more, and is told once.
    assert states == ["connecting", "failed", "connecting", "stopped"]


async def test_stopping_ends_a_load_that_does_not_end() -> None:
    @asynccontextmanager
    async def never(note: Callable[[str], None]) -> AsyncGenerator[Told]:
        await anyio.sleep_forever()
        yield Told()

    source = LocalToolServer(BUILTIN, never)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(source.run)
            tasks.start_soon(source.wait_until_settled)
            await anyio.wait_all_tasks_blocked()
            source.stop()
    assert source.state == "stopped"


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (local_server("s"), Connection),
        (BUILTIN, LocalToolServer),
        (OpenAPIServer(name="s", openapi_spec="spec.json"), LocalToolServer),
    ],
)
async def test_every_type_of_server_has_its_source(spec: ServerConfig, kind: type) -> None:
    assert isinstance(source_of(spec), kind)
