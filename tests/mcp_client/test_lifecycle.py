"""When servers are started, ended for want of use, found dead, and started again; and what is remembered of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from rkllm_mcp.config.servers import StdioServer
from rkllm_mcp.errors import ServerRefusedError, ServerUnavailableError
from rkllm_mcp.mcp_client.connection import Connection
from rkllm_mcp.mcp_client.lifecycle import Backoff, ConnectionServices, State
from rkllm_mcp.mcp_client.server_cache import Forgetful, ProtocolRevision, ServerCache
from rkllm_mcp.protocols import NO_CONTEXT, CallContext
from rkllm_mcp.tools.tool_servers import open_toolbox
from rkllm_mcp.tools.toolbox import Toolbox
from tests.support.clock import standing_clock, turn
from tests.support.mcp_servers.calling import said
from tests.support.mcp_servers.leftovers import Holdings
from tests.support.mcp_servers.specs import PATIENCE_S, hostile, remote_server, timed, tiny, unruly
from tests.support.mcp_servers.tiny import LEGACY, MODERN
from tests.support.mcp_servers.web import Mcp, Reply, Request, echoed, serving

pytestmark = pytest.mark.anyio


def only(toolbox: Toolbox) -> Connection:
    (connection,) = toolbox.connections
    assert isinstance(connection, Connection)
    return connection


class States:
    """Hears each state that a connection takes, and waits for one."""

    def __init__(self) -> None:
        self.seen: list[State] = []
        self._news = anyio.Event()

    def note(self, connection: Connection) -> None:
        self.seen.append(connection.state)
        self._news.set()

    async def reach(self, state: State, times: int = 1) -> None:
        while self.seen.count(state) < times:
            self._news = anyio.Event()
            await self._news.wait()


# --- lazy and idle ---------------------------------------------------------------------------------------------------


async def test_a_lazy_server_is_started_once_to_list_its_tools_and_then_only_when_it_is_used() -> None:
    host = ConnectionServices(Forgetful())
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([tiny(lazy=True)], host=host) as toolbox:
            before = Holdings()
            await toolbox.wait_until_connected()
            assert len(toolbox.tools()) == 7
            assert Holdings().children != before.children
        async with open_toolbox([tiny(lazy=True)], host=host) as toolbox:
            await toolbox.wait_until_connected()
            assert len(toolbox.tools()) == 7
            assert Holdings().children == before.children
            (state,) = toolbox.servers()
            assert (state.state, state.reason) == ("waiting", "it is started when it is first used")
            assert await said(toolbox, "add", a=1, b=1) == ("2", False)
            assert [state.state for state in toolbox.servers()] == ["ready"]


async def test_the_remembered_tools_of_a_server_do_not_hold_for_another_command() -> None:
    host = ConnectionServices(Forgetful())
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([tiny("one", lazy=True)], host=host) as toolbox:
            await toolbox.wait_until_connected()
        async with open_toolbox([hostile("pages", "one", lazy=True)], host=host) as toolbox:
            assert toolbox.tools() == ()
            await toolbox.wait_until_connected()
            assert len(toolbox.tools()) == 10


@standing_clock
async def test_a_server_that_is_not_used_is_ended_and_started_by_the_next_call() -> None:
    states = States()
    connection = Connection(tiny(idle_stop_s=20.0), on_change=states.note)
    with anyio.fail_after(PATIENCE_S):
        before = Holdings()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            await states.reach("ready")
            await turn(0)
            await turn(20.0)
            await states.reach("waiting")
            assert Holdings().children == before.children
            assert len(connection.tools) == 7
            assert connection.describe().reason.startswith("it was not used for a while and is started again")
            result = await connection.call("add", {"a": 1, "b": 1})
            assert result["content"] == [{"type": "text", "text": "2"}]
            await turn(20.0)
            await states.reach("waiting", times=2)
            connection.stop()
    assert states.seen == ["connecting", "ready", "waiting", "connecting", "ready", "waiting", "stopped"]


@standing_clock
async def test_a_call_that_comes_just_when_its_server_is_ended_for_want_of_use_is_made_all_the_same() -> None:
    with anyio.fail_after(PATIENCE_S):
        for rounds in range(8):
            states = States()
            connection = Connection(tiny(idle_stop_s=5.0), on_change=states.note)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(connection.run)
                await states.reach("ready")
                await turn(0)
                await turn(5.0, rounds)
                result = await connection.call("add", {"a": 1, "b": 1})
                assert result["content"] == [{"type": "text", "text": "2"}], rounds
                connection.stop()


@standing_clock
async def test_a_server_is_not_ended_in_the_middle_of_a_call() -> None:
    states = States()
    connection = Connection(tiny(idle_stop_s=20.0), on_change=states.note)

    async def wait() -> None:
        with pytest.raises(ServerUnavailableError):
            await connection.call("wait", {})

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            tasks.start_soon(wait)
            await states.reach("ready")
            await turn(0)
            await turn(40.0)
            assert connection.state == "ready"
            connection.stop()


# --- health ----------------------------------------------------------------------------------------------------------


@standing_clock
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_that_answers_no_ping_is_found_dead_and_started_again_at_the_next_call(era: str) -> None:
    states = States()
    spec = hostile(f"hanging_{era}", ping_s=5.0)
    connection = Connection(spec, timed(stop_grace_s=0), on_change=states.note, ping_patience_s=10.0)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            await states.reach("ready")
            await turn(0)
            # It answers the first ping, and hangs from then on.
            await turn(5.0)
            assert (await connection.call("echo", {"text": "x"}))["isError"] is False
            await turn(5.0)
            assert connection.state == "ready"
            await turn(10.0)
            await states.reach("died")
            assert connection.describe().reason.startswith("it did not answer a ping within 10 s")
            assert (await connection.call("echo", {"text": "x"}))["isError"] is False
            connection.stop()


@standing_clock
async def test_a_call_that_was_given_up_makes_the_host_ask_whether_the_server_hangs() -> None:
    states, hangs = States(), anyio.Event()
    connection = Connection(
        hostile("stuck", ping_s=0), timed(stop_grace_s=0), on_change=states.note, ping_patience_s=10.0
    )

    async def note(progress: float, total: float | None, message: str | None) -> None:
        hangs.set()

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            async with anyio.create_task_group() as callers:
                callers.start_soon(connection.call, "hang", {"tell": True}, CallContext(on_progress=note))
                await hangs.wait()
                callers.cancel_scope.cancel()
            await turn(0)
            await turn(10.0)
            await states.reach("died")
            assert (await connection.call("echo", {"text": "x"}))["isError"] is False
            connection.stop()


@standing_clock
async def test_an_answer_with_an_error_is_a_sign_of_life() -> None:
    with anyio.fail_after(PATIENCE_S):
        # tiny does not know "ping".
        async with open_toolbox([tiny("t", "legacy", ping_s=10.0)]) as toolbox:
            await toolbox.wait_until_connected()
            for _ in range(4):
                await turn(10.0)
                # Served in order: when this has its answer, so has the ping.
                assert await said(toolbox, "add", a=1, b=1) == ("2", False)
            assert [state.state for state in toolbox.servers()] == ["ready"]


# --- sessions and eras -----------------------------------------------------------------------------------------------


def rpc_error(status: int, code: int, message: str) -> Reply:
    return Reply(status, {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}})


@pytest.mark.parametrize(
    "refusal",
    [
        Reply(404),
        Reply(404, {"error": "Session not found"}),
        rpc_error(404, -32001, "Session not found"),
        rpc_error(404, -32000, "Not Found: Unknown Mcp-Session-Id header"),
        rpc_error(404, -32603, "it is gone"),
        rpc_error(400, -32000, "Bad Request: No valid session ID provided"),
        rpc_error(400, -32600, "Invalid or expired session"),
        Reply(400, b"Session 7f does not exist"),
    ],
    ids=lambda reply: f"{reply.status} {reply.body}",
)
async def test_a_session_that_the_server_forgot_is_opened_anew_and_the_call_made_again(refusal: Reply) -> None:
    server = Mcp({"echo": echoed}, (LEGACY,), session="one")

    def forgotten(request: Request) -> Reply | None:
        return refusal if request.headers.get("mcp-session-id", server.session) != server.session else None

    server.meanwhile = forgotten
    with anyio.fail_after(PATIENCE_S):
        async with serving(server) as url, open_toolbox([remote_server("s", "http", url=url)]) as toolbox:
            await toolbox.wait_until_connected()
            # As after a restart of the server: the old id is unknown, a new one is given.
            server.session = "two"
            assert await said(toolbox, "echo") == ("echoed", False)
            assert server.heard.count("initialize") == 2
            assert server.heard.count("tools/list") == 2


async def test_a_server_that_forgets_every_session_costs_the_call_and_no_endless_loop() -> None:
    server = Mcp({"echo": echoed}, (LEGACY,), session="one")
    server.meanwhile = lambda request: Reply(404) if b"tools/call" in request.body else None
    with anyio.fail_after(PATIENCE_S):
        async with serving(server) as url, open_toolbox([remote_server("s", "http", url=url)]) as toolbox:
            await toolbox.wait_until_connected()
            text, is_error = await said(toolbox, "echo")
            assert is_error
            assert "was lost during the call" in text
            assert server.heard.count("initialize") == 2


async def test_a_known_server_of_the_new_era_is_connected_without_a_handshake() -> None:
    host = ConnectionServices(Forgetful())
    server = Mcp({"echo": echoed}, (MODERN,))
    with anyio.fail_after(PATIENCE_S):
        async with serving(server) as url:
            for expected in (["server/discover", "tools/list"], ["tools/list"]):
                server.heard.clear()
                async with open_toolbox([remote_server("s", "http", url=url)], host=host) as toolbox:
                    await toolbox.wait_until_connected()
                    assert [method for method in server.heard if method != "subscriptions/listen"] == expected
                    assert await said(toolbox, "echo") == ("echoed", False)


@pytest.mark.parametrize(("before", "after"), [(MODERN, LEGACY), (LEGACY, MODERN)])
async def test_a_server_that_has_changed_its_era_is_asked_again(before: str, after: str) -> None:
    host = ConnectionServices(Forgetful())
    server = Mcp({"echo": echoed}, (before,))
    with anyio.fail_after(PATIENCE_S):
        async with serving(server) as url:
            for era in (before, after, after):
                server.inner.eras = (era,)
                async with open_toolbox([remote_server("s", "http", url=url)], host=host) as toolbox:
                    await toolbox.wait_until_connected()
                    assert [state.protocol_version for state in toolbox.servers()] == [era]


async def test_a_server_that_dies_because_of_remembered_values_is_started_once_more_and_stays() -> None:
    host = ConnectionServices(Forgetful())
    with anyio.fail_after(PATIENCE_S):
        for era in (MODERN, LEGACY):
            states = States()
            connection = Connection(unruly("insists", env={"ERA": era}), host, on_change=states.note)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(connection.run)
                assert await connection.call("echo", {"text": era}) == {
                    "content": [{"type": "text", "text": era}],
                    "isError": False,
                }
                connection.stop()
            assert states.seen == ["connecting", "ready", "stopped"]


async def test_a_memory_that_cannot_be_read_is_not_a_memory() -> None:
    class Garbled(dict[str, str]):
        def get(self, key: str, default: Any = None) -> Any:
            return "{" if key in self else json.dumps({"era": {"planet": "mars"}, "tools": 5})

    with anyio.fail_after(PATIENCE_S):
        for _ in range(2):
            async with open_toolbox([tiny(lazy=True)], host=ConnectionServices(Forgetful(Garbled()))) as toolbox:
                await toolbox.wait_until_connected()
                assert await said(toolbox, "add", a=1, b=1) == ("2", False)


async def test_a_server_that_was_not_there_at_the_start_is_tried_again_with_a_later_question(tmp_path: Path) -> None:
    heard: list[str] = []
    marker = tmp_path / "there"
    spec = hostile("late", env={"THERE": str(marker)})
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([spec], on_status=heard.append, host=timed(restart_pause_s=0)) as toolbox:
            connection = only(toolbox)
            for _ in range(3):
                await toolbox.wait_until_connected()
                toolbox.retry()
                await connection.life.settled.wait()
            assert [state.state for state in toolbox.servers()] == ["failed"]
            await anyio.Path(marker).touch()
            toolbox.retry()
            await connection.available()
            assert await said(toolbox, "echo", text="x") == ("x", False)
    # The same failure is told once.
    assert [line.split(":")[1] for line in heard] == [" Server 'late' is left out", " Server 'late' is ready"]


@pytest.mark.parametrize("remembers", [False, True])
async def test_a_program_that_cannot_be_started_is_started_once_and_reported_once(
    tmp_path: Path, *, remembers: bool
) -> None:
    starts, heard = tmp_path / "starts", list[str]()
    script = f"echo started >> {starts}; echo no such database >&2; exit 3"
    spec = StdioServer(name="broken", command="/bin/sh", args=("-c", script))
    stored = Forgetful()
    if remembers:
        ServerCache(spec, stored).keep(ProtocolRevision(version="legacy"), ())
    host = ConnectionServices(stored)
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([spec], on_status=heard.append, host=host) as toolbox:
            # The warm-up, the answer, and everything else that waits for the servers of one answer.
            for _ in range(3):
                toolbox.retry()
                await toolbox.wait_until_connected()
            assert starts.read_text("utf-8") == "started\n"
            # On request it is tried again at once, and is not awaited by others meanwhile.
            with pytest.raises(ServerUnavailableError, match="exited with code 3"):
                await only(toolbox).available()
            assert starts.read_text("utf-8") == "started\n" * 2
            assert await toolbox.wait({}) == ()
    reason = "it exited with code 3 before it was ready; run its command in a terminal to see why"
    assert heard == [f"[MCP: Server 'broken' is left out: {reason}]\n    no such database"]


def test_an_unrequested_start_waits_longer_than_one_on_request() -> None:
    async def waits() -> list[tuple[float, float]]:
        backoff = Backoff(0.0)
        seen = [(backoff.pause.left_s, backoff.unasked.left_s)]
        backoff.on_end()
        seen.append((backoff.pause.left_s, backoff.unasked.left_s))
        backoff = Backoff(1.0)
        backoff.on_end()
        return [*seen, (backoff.pause.left_s, round(backoff.unasked.left_s))]

    assert anyio.run(waits) == [(0.0, 0.0), (0.0, 0.0), (0.0, 10)]


async def test_any_operation_of_the_client_runs_with_the_connection_s_handling_of_errors() -> None:
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([tiny("t", "legacy")]) as toolbox:
            connection = only(toolbox)
            page = await connection.request(lambda client: client.list_tools())
            assert len(page.tools) == 7
            with pytest.raises(ServerRefusedError, match=r"The call failed: Method not found: prompts/list"):
                await connection.request(lambda client: client.list_prompts())
            seen: list[list[Any]] = []

            async def look(_: Any) -> None:
                seen.append([*connection.use.contexts])

            context = CallContext(conversation_id="c")
            await connection.request(look, context)
            assert seen == [[context]]
            assert connection.use.contexts == []
        with pytest.raises(ServerUnavailableError, match="is not available: it was stopped"):
            await connection.request(look, NO_CONTEXT)


def test_pauses_between_restarts_double_up_to_a_minute() -> None:
    async def pauses() -> list[float]:
        backoff = Backoff(2.0)
        waits: list[float] = []
        for _ in range(8):
            backoff.on_end()
            waits.append(round(backoff.pause.left_s))
        backoff.ends_in_a_row = 0
        backoff.on_end()
        return [*waits, backoff.pause.left_s]

    assert anyio.run(pauses) == [0, 2, 4, 8, 16, 32, 60, 60, 0.0]
