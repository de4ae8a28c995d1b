"""Servers that a person tests or logs in to while the answers go on with theirs.

A test starts its own server and ends it, or pings one that is connected. A login opens its own connection as
well; its tokens are stored for the connections of the same name and address.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import anyio

from rkllm_mcp.errors import RkllmMcpError, ServerUnavailableError, ToolboxError

if TYPE_CHECKING:
    from rkllm_mcp.config.sections import Config
    from rkllm_mcp.mcp_client.errors import FailureKind
    from rkllm_mcp.mcp_client.lifecycle import AnyToolServer, State
    from rkllm_mcp.mcp_client.oauth import BrowserConsent, Redirect
    from rkllm_mcp.messages import ToolSpec
    from rkllm_mcp.tools.toolbox import Toolbox

# A connected server answers a ping in milliseconds, and its user waits for the result.
_PING_S = 10.0

LoginState: TypeAlias = Literal["starting", "waiting", "ready", "failed"]


@dataclass(frozen=True)
class ServerTest:
    """Result of the test of a server."""

    state: State  # ready if it works
    problem: str = ""  # why it does not, and the remedy
    failure: FailureKind = ""
    tools: tuple[ToolSpec, ...] = ()
    seconds: float = 0.0  # from start to the list of tools, or of the ping
    output: tuple[str, ...] = ()  # its last lines if it does not work, else remarks about what was left out


async def start_apart(config: Config, name: str, log_in: BrowserConsent | None = None) -> ServerTest:
    """Start the server ``name``, list its tools and stop it; an RkllmMcpError if the store cannot be opened."""
    from rkllm_mcp.app.tools import open_tools

    async with open_tools(config.only_servers([name]), log_in=log_in) as environment:
        await environment.toolbox.wait_until_started()
        return _outcome(environment.toolbox, name)


async def test_server(config: Config, toolbox: Toolbox, name: str) -> ServerTest:
    """Ping a server of ``toolbox`` if it is connected, else start one of its own and stop it."""
    from rkllm_mcp.mcp_client.connection import Connection
    from rkllm_mcp.mcp_client.lifecycle import answers

    server = _server_of(toolbox, name)
    if server.state == "connecting":
        with suppress(ServerUnavailableError):
            await server.available()
        return _outcome(toolbox, name)
    if server.state != "ready":
        return await start_apart(config, name)
    started = time.monotonic()
    if isinstance(server, Connection):
        try:
            is_there = await server.request(lambda client: answers(client, _PING_S))
        except ToolboxError as error:
            return ServerTest("failed", str(error))
        if not is_there:
            return ServerTest("failed", f"it did not answer a ping within {_PING_S:g} s")
    return replace(_outcome(toolbox, name), seconds=time.monotonic() - started)


def _outcome(toolbox: Toolbox, name: str) -> ServerTest:
    server = _server_of(toolbox, name)
    state = server.describe()
    is_ready = state.state == "ready"
    lines = tuple(line for line in state.last_lines if not is_ready or line.startswith("("))
    tools = (*toolbox.tools(), *toolbox.tools(disabled=True))
    server_tools = tuple(tool for tool in tools if tool.server == name)
    return ServerTest(state.state, state.reason, server.failure, server_tools, state.connect_seconds, lines)


def _server_of(toolbox: Toolbox, name: str) -> AnyToolServer:
    return next(server for server in toolbox.connections if server.spec.name == name)


@dataclass(eq=False)
class Login:
    """A login that a person completes in a browser, on this machine or on another one."""

    server: str
    state: LoginState = "starting"  # waiting while the person is to visit ``address``
    address: str = ""  # of the authorization server
    problem: str = ""  # why it failed, and the remedy
    _redirect: Redirect | None = field(default=None, init=False)
    _news: anyio.Event = field(default_factory=anyio.Event, init=False)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope, init=False)  # ends it, if it is not over

    async def run(self, config: Config, toolbox: Toolbox) -> None:
        """Log in, and have ``toolbox`` connect the server again."""
        from rkllm_mcp.mcp_client.oauth import BrowserConsent

        with self.scope:
            consent = BrowserConsent(self._show_address, expect=self._expect)
            try:
                result = await start_apart(config, self.server, consent)
            except RkllmMcpError as error:
                result = ServerTest("failed", str(error))
            if result.state == "ready":
                server = _server_of(toolbox, self.server)
                if server.state != "ready":
                    server.retry(now=True)
                    # Its problem is shown with its state.
                    with suppress(ServerUnavailableError):
                        await server.available()
            self._become("ready" if result.state == "ready" else "failed", result.problem)
        if self.scope.cancelled_caught:
            self._become("failed", "the login was given up; begin another one")

    def take(self, address: str) -> bool:
        """Take the address that the browser was sent to; return False if this login does not wait for it."""
        return self.state == "waiting" and self._redirect is not None and self._redirect.take(address)

    async def wait_for_change(self, state: LoginState, timeout_s: float) -> None:
        """Wait until the state is another one than ``state``, for at most ``timeout_s`` seconds."""
        with anyio.move_on_after(timeout_s):
            while self.state == state:
                await self._news.wait()

    def _expect(self, redirect: Redirect) -> None:
        self._redirect = redirect

    async def _show_address(self, server: str, url: str) -> None:
        # A login that was not accepted is asked for again with an older protocol; the person begins another one.
        if self.address:
            raise ServerUnavailableError(f"the login to server '{server}' was not accepted; begin another one")
        self.address = url
        self._become("waiting")

    def _become(self, state: LoginState, problem: str = "") -> None:
        self.state, self.problem = state, problem
        self._news.set()
        self._news = anyio.Event()
