"""A server that wants its caller's token gets that caller's and nobody else's, and the token is found nowhere after."""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest

from rkllm_mcp.config.servers import RemoteServer
from rkllm_mcp.errors import ServerUnavailableError
from rkllm_mcp.events import Status, ToolFinished, ToolProgress, event_to_json
from rkllm_mcp.mcp_client.lifecycle import open_connection_services
from rkllm_mcp.mcp_client.per_request import PerRequestConnection
from rkllm_mcp.messages import ToolCall, ToolResult
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.tools.tool_servers import open_toolbox
from rkllm_mcp.tools.toolbox import Toolbox
from tests.support.mcp_servers.asking import AskingServer
from tests.support.mcp_servers.specs import PATIENCE_S, altered, remote_server
from tests.support.mcp_servers.tiny import LEGACY, MODERN, Arguments, TinyServer
from tests.support.mcp_servers.web import Mcp, Reply, Request, serving

pytestmark = pytest.mark.anyio

TOKEN = "eyJhbGciOiJub25l.secret-of/one+caller=="


def spec(url: str, **settings: Any) -> RemoteServer:
    template = {"Authorization": "Bearer ${servicenow}"}
    return altered(remote_server("tickets", "http", url=url, headers_template=template), **settings)


async def call(toolbox: Toolbox, name: str, tokens: Mapping[str, str], **arguments: Any) -> ToolResult:
    return await toolbox.call(ToolCall("call_1", name, arguments), CallContext(tokens=tokens))


class Whoami(Mcp):
    """Answers with the token it was called with; nothing without one."""

    def __init__(self, eras: tuple[str, ...] = (MODERN, LEGACY)) -> None:
        super().__init__({"whoami": self.whoami}, eras)
        self.wanted: str | None = None
        self.meanwhile = self.check
        self.seen: list[str] = []

    def check(self, request: Request) -> Reply | None:
        token = request.headers.get("authorization", "")
        self.seen.append(token)
        if not token or (self.wanted is not None and token != self.wanted):
            return Reply(401, b"no", {"WWW-Authenticate": 'Bearer error="invalid_token"'})
        return Reply(403, b"no") if token.endswith("guest") else None

    def whoami(self, _: TinyServer, __: Arguments) -> str:
        # What a caller reads has its token hidden, so that the mix-up of two would be seen by the other one's name.
        return self.request.headers["authorization"].removeprefix("Bearer ")[::-1]


async def test_a_server_waits_for_the_first_request_that_brings_its_token_and_says_so() -> None:
    server = Whoami()
    with anyio.fail_after(PATIENCE_S):
        async with serving(server) as url, open_toolbox([spec(url)]) as toolbox:
            await toolbox.wait_until_connected()
            (state,) = toolbox.servers()
            assert (state.state, state.tool_count) == ("waiting", 0)
            assert (
                state.reason
                == "it is connected by each request that brings its token 'servicenow', on a command line with --token"
            )
            assert (server.heard, server.seen) == ([], [])
            async with toolbox.attending({"servicenow": "abc"}):
                assert [tool.name for tool in toolbox.tools()] == ["whoami"]
                assert (await call(toolbox, "whoami", {"servicenow": "abc"})).text == "cba"
                assert [state.state for state in toolbox.servers()] == ["ready"]
            result = await call(toolbox, "whoami", {})
            assert result.is_error
            assert "No token 'servicenow' was given for the header Authorization" in result.text


async def test_a_single_token_may_go_by_the_server_s_name() -> None:
    with anyio.fail_after(PATIENCE_S):
        async with (
            serving(Whoami()) as url,
            open_toolbox([spec(url)]) as toolbox,
            toolbox.attending({"tickets": "abc"}),
        ):
            assert (await call(toolbox, "whoami", {"tickets": "abc"})).text == "cba"


@pytest.mark.parametrize("era", [MODERN, LEGACY])
async def test_parallel_calls_with_different_tokens_never_mix(era: str) -> None:
    answers: dict[int, str] = {}

    async def ask(toolbox: Toolbox, token: str, number: int) -> None:
        answers[number] = (await call(toolbox, "whoami", {"servicenow": token})).text

    server = Whoami((era,))
    with anyio.fail_after(PATIENCE_S):
        async with (
            serving(server) as url,
            open_toolbox([spec(url)]) as toolbox,
            toolbox.attending({"servicenow": "first"}),
            anyio.create_task_group() as callers,
        ):
            for number in range(60):
                # Two callers each: equal tokens share a session, and share it with nobody else.
                callers.start_soon(ask, toolbox, f"token-{number // 2}", number)
    assert answers == {number: f"token-{number // 2}"[::-1] for number in range(60)}


@pytest.mark.parametrize("era", [MODERN, LEGACY])
async def test_resources_and_prompts_are_for_the_caller_with_the_token(era: str) -> None:
    server, heard = Whoami((era,)), list[str]()
    server.inner = AskingServer((era,))
    mine = CallContext(tokens={"servicenow": "abc", "other": "def"})
    with anyio.fail_after(PATIENCE_S):
        async with serving(server) as url, open_toolbox([spec(url)], on_status=heard.append) as toolbox:
            offerings = toolbox.offerings
            assert (await offerings.read_resource("memo://tuesday", context=mine)).text == "Call the plumber."
            assert [each.uri_template for each in await offerings.templates(context=mine)] == ["memo://day/{date}"]
            filled = await offerings.fill_prompt("code_review", {"language": "rust"}, mine)
            assert filled.template in await offerings.prompts("tickets", mine)
            ideas = await offerings.complete_prompt("code_review", "language", "p", context=mine)
            assert ideas == ("python", "pascal")
            days = await offerings.complete_resource("tickets", "memo://day/{date}", "date", "2026", context=mine)
            assert days[0].startswith("2026-")
            assert set(server.seen) == {"Bearer abc"}
            server.seen.clear()
            assert await offerings.resources() == ()
            assert await offerings.complete_prompt("code_review", "language", "p") == ()
            with pytest.raises(ServerUnavailableError, match="No token 'servicenow' was given"):
                await offerings.prompts("tickets")
            assert server.seen == []
    assert "No token 'servicenow' was given" in next(line for line in heard if "could not be listed" in line)


async def test_a_subscription_keeps_the_session_of_its_token() -> None:
    async def ignore(_: str) -> None:
        pass

    server, mine = Whoami((LEGACY,)), CallContext(tokens={"servicenow": "abc"})
    server.inner = AskingServer((LEGACY,))
    with anyio.fail_after(PATIENCE_S):
        async with (
            serving(server) as url,
            open_toolbox([spec(url)]) as toolbox,
            anyio.create_task_group() as listening,
        ):
            await listening.start(toolbox.offerings.subscribe, "tickets:memo://monday", ignore, mine)
            await toolbox.offerings.read_resource("tickets:memo://monday", context=mine)
            listening.cancel_scope.cancel()
    assert server.heard.count("initialize") == 1
    asked = [method for method in server.heard if method.startswith("resources/")]
    assert asked == ["resources/subscribe", "resources/read", "resources/unsubscribe"]


async def test_a_session_is_shared_by_equal_tokens_and_ends_with_its_last_user() -> None:
    server = Whoami((LEGACY,))
    with anyio.fail_after(PATIENCE_S):
        async with serving(server) as url, open_toolbox([spec(url)]) as toolbox:
            tokens = {"servicenow": "abc"}
            async with toolbox.attending(tokens):
                for _ in range(3):
                    await call(toolbox, "whoami", tokens)
            assert server.heard.count("initialize") == 1
            await call(toolbox, "whoami", tokens)
            assert server.heard.count("initialize") == 2


async def test_nothing_of_a_token_is_left_when_its_request_is_over() -> None:
    token = "".join(["unrepeatable", "-", "text"])
    with anyio.fail_after(PATIENCE_S):
        async with serving(Whoami()) as url, open_toolbox([spec(url)]) as toolbox:
            await call(toolbox, "whoami", {"servicenow": token})
            (connection,) = toolbox.connections
            assert isinstance(connection, PerRequestConnection)
            assert not [held for held in vars(connection).values() if token in repr(held)]


async def test_a_token_that_is_refused_is_a_result_that_says_which_and_what_to_do() -> None:
    server = Whoami()
    with anyio.fail_after(PATIENCE_S):
        async with serving(server) as url, open_toolbox([spec(url)]) as toolbox:
            async with toolbox.attending({"servicenow": "good"}):
                pass
            server.wanted = "Bearer other"
            expired = await call(toolbox, "whoami", {"servicenow": "good"})
            assert expired.is_error
            assert "HTTP 401" in expired.text
            assert "the token 'servicenow' is missing, wrong or has expired; send a valid one" in expired.text
            server.wanted = None
            guest = await call(toolbox, "whoami", {"servicenow": "guest"})
            assert guest.is_error
            assert "HTTP 403" in guest.text
            assert "the token 'servicenow' does not allow this" in guest.text
            assert (await call(toolbox, "whoami", {"servicenow": "good"})).text == "doog"


async def test_a_token_that_is_refused_in_the_middle_costs_that_call_and_not_the_session() -> None:
    server = Whoami()
    tokens = {"servicenow": "good"}
    with anyio.fail_after(PATIENCE_S):
        async with serving(server) as url, open_toolbox([spec(url)]) as toolbox, toolbox.attending(tokens):
            server.wanted = "Bearer newer"
            result = await call(toolbox, "whoami", tokens)
            assert result.text.startswith("The server refused the call (HTTP 401): the token 'servicenow' is missing")
            server.wanted = None
            assert (await call(toolbox, "whoami", tokens)).text == "doog"


class Echoing(Mcp):
    """Repeats its token wherever a server can say something."""

    def __init__(self) -> None:
        super().__init__({"leak": self.leak, "fail": self.fail, "refuse": self.refuse}, (MODERN,))
        self.inner.tools[0]["description"] = f"Leaks {TOKEN}."

    @property
    def token(self) -> str:
        return self.request.headers["authorization"].removeprefix("Bearer ")

    def leak(self, _: TinyServer, __: Arguments) -> dict[str, Any]:
        coded = base64.b64encode(self.token.encode()).decode()
        text = {"type": "text", "text": f"{self.token} {coded} {quote(self.token, safe='')}"}
        return {"content": [text], "structuredContent": {"token": self.token, self.token: [self.token]}}

    def fail(self, _: TinyServer, __: Arguments) -> dict[str, Any]:
        return {"content": [{"type": "hologram", "data": self.token}], "isError": True}

    def refuse(self, _: TinyServer, __: Arguments) -> str:
        raise LookupError(-32010, f"bad token {self.token}")


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.rglob("*") if path.is_file()}


async def test_a_token_appears_in_no_file_log_or_output(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    heard: list[str] = []
    tokens = {"servicenow": TOKEN}
    written: list[str] = []
    server = Echoing()

    async def report(progress: float, total: float | None, message: str | None) -> None:
        written.append(event_to_json(ToolProgress("call_1", progress, total, message)))

    with anyio.fail_after(PATIENCE_S), open_connection_services(tmp_path / "state", log_wire=True) as host:
        async with serving(server) as url, open_toolbox([spec(url)], host=host, on_status=heard.append) as toolbox:
            async with toolbox.attending(tokens):
                for name in ("leak", "fail", "refuse", "unheard_of"):
                    context = CallContext(tokens=tokens, on_progress=report)
                    result = await toolbox.call(ToolCall("call_1", name, {}), context)
                    event = ToolFinished(result.call_id, result.name, result.is_error, result.text, result.seconds)
                    written += [result.text, event_to_json(event), repr(result), repr(context)]
                written += [repr(toolbox.tools()), repr(toolbox.servers()), repr(toolbox.connections)]
            # A page that repeats the token, and garbage that does.
            server.meanwhile = lambda request: Reply(500, f"<p>{request.headers['authorization']}".encode())
            written.append((await call(toolbox, "leak", tokens)).text)
            server.meanwhile = lambda request: Reply(200, {"jsonrpc": "2.0", "token": request.headers["authorization"]})
            written.append((await call(toolbox, "leak", tokens)).text)
            written += [repr(toolbox.servers())]
    written += [event_to_json(Status(line)) for line in heard]
    written += [record.getMessage() for record in caplog.records] + [caplog.text, *capfd.readouterr()]
    files = contents(tmp_path)
    assert [*files] == ["wire.log"]
    written += files.values()
    everything = "\n".join(written)
    assert "[REDACTED]" in written[0]
    assert len(everything) > 5000
    for spelling in (TOKEN[:20], TOKEN[-12:], quote(TOKEN, safe="")[-12:], "ZXlKaGJHY2lPaUp1"):
        assert spelling not in everything, everything[everything.index(spelling) - 300 :][:400]


async def test_other_headers_are_sent_with_it_and_servers_without_placeholders_are_connected_at_once() -> None:
    server = Whoami()
    with anyio.fail_after(PATIENCE_S):
        fixed = remote_server("fixed", "http", headers_template={"Authorization": "Bearer always", "X-Team": "one"})
        async with serving(server) as url, open_toolbox([altered(fixed, url=url)]) as toolbox:
            await toolbox.wait_until_connected()
            assert (await call(toolbox, "whoami", {})).text == "syawla"
            assert server.request.headers["x-team"] == "one"
