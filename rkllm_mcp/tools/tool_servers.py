"""The servers of a toolbox: MCP servers, built-in tools and REST APIs behind one interface, opened together.

``open_toolbox`` owns one task per server: all connect at once, a failing server does not affect the others, and leaving
the block stops every server and its process group.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import anyio

from rkllm_mcp.config.header_templates import placeholders
from rkllm_mcp.config.servers import BuiltinServer, OpenAPIServer, RemoteServer, ServerConfig, is_offered
from rkllm_mcp.errors import ServerUnavailableError, ToolboxError
from rkllm_mcp.mcp_client.callbacks import Answers
from rkllm_mcp.mcp_client.connection import Connection
from rkllm_mcp.mcp_client.lifecycle import AnyToolServer, ConnectionServices, ToolServer
from rkllm_mcp.mcp_client.per_request import PerRequestConnection
from rkllm_mcp.mcp_client.resources import ResourceHub
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.protocols import NO_CONTEXT, CallContext, Deadline, Sampler
from rkllm_mcp.tasks import open_task_group
from rkllm_mcp.tools.approvals import Approvals
from rkllm_mcp.tools.execution import ExecutionPolicies
from rkllm_mcp.tools.toolbox import OwnTools, Toolbox

if TYPE_CHECKING:
    from rkllm_mcp.builtin.server import DeviceReader


class ToolImplementation(Protocol):
    """The tools of a loaded server and the function that calls them."""

    tools: tuple[ToolSpec, ...]  # under the server's own names

    async def call(self, tool: str, arguments: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        """Call a tool and return the JSON of a ``tools/call`` result; a failing tool is a result with ``isError``."""
        ...


# Takes a function for notes about parts that are left out.
Opener: TypeAlias = Callable[[Callable[[str], None]], AbstractAsyncContextManager[ToolImplementation]]


class LocalToolServer(ToolServer[ServerConfig, ToolImplementation]):
    """A tool server that is loaded in this process.

    ``opener`` loads it; an exception it raises becomes the server's failure reason.
    """

    def __init__(
        self,
        spec: ServerConfig,
        opener: Opener,
        *,
        restart_pause_s: float = ConnectionServices.restart_pause_s,
        on_change: Callable[[Any], None] | None = None,
    ) -> None:
        super().__init__(spec, on_change, restart_pause_s)
        self._opener = opener

    async def call(self, tool: str, arguments: Mapping[str, Any], context: CallContext = NO_CONTEXT) -> dict[str, Any]:
        """See ``ToolServer``."""
        loaded = await self.available()
        return await loaded.call(tool, arguments, context)

    async def shares_in_data(self, question: str) -> Mapping[str, float]:
        """See ``ToolServer``."""
        shares = getattr(self._opened, "shares_in_data", None)
        return {} if shares is None else await shares(question)

    async def _live_once(self) -> None:
        deadline = Deadline(self.spec.connect_timeout_s, anyio.current_time)
        error: Exception | None = None
        with deadline.bind(anyio.CancelScope()) as self._scope:
            try:
                async with self._opener(self.notes.add) as loaded:
                    deadline.lift()
                    self.tools = tuple(
                        replace(tool, server=self.spec.name, wire_name=tool.name)
                        for tool in loaded.tools
                        if is_offered(self.spec, tool.name)
                    )
                    self._opened, self._connect_seconds = loaded, deadline.elapsed_s
                    self._become("ready")
                    await self.life.over.wait()
            except Exception as caught:  # noqa: BLE001  (a failure of one server must not end the others)
                error = caught
        self._opened = None
        if not self._stopping:
            self.backoff.on_end()
            limit_s = self.spec.connect_timeout_s
            reason = f"it was not loaded within {limit_s:g} s; raise connect_timeout_s if it only needs longer"
            if error is not None:
                reason = str(error) or type(error).__name__
            self._become("failed", reason)


@asynccontextmanager
async def _open_problem(problem: str, note: Callable[[str], None]) -> AsyncGenerator[ToolImplementation]:
    """Fail with the ``problem`` of a server that cannot be used."""
    del note
    raise ServerUnavailableError(problem)
    yield  # makes this function a generator


def source_of(
    spec: ServerConfig,
    host: ConnectionServices | None = None,
    *,
    problem: str = "",
    read_device: DeviceReader | None = None,
) -> AnyToolServer:
    """Create the tool server for ``spec``.

    ``problem`` is why it cannot be used at all, and the remedy. ``read_device`` gives built-in tools readings of the
    machine.
    """
    host = host or ConnectionServices()
    opener: Opener
    if problem:
        opener = partial(_open_problem, problem)
    elif isinstance(spec, BuiltinServer):
        from rkllm_mcp.builtin.server import open_builtin

        opener = partial(open_builtin, spec, read_device=read_device)
    elif isinstance(spec, OpenAPIServer):
        # Imports an HTTP client, which the others do not need.
        from rkllm_mcp.openapi.source import open_openapi

        opener = partial(open_openapi, spec)
    elif isinstance(spec, RemoteServer) and any(placeholders(value) for value in spec.headers_template.values()):
        # Its headers need tokens of each request.
        return PerRequestConnection(spec, host)
    else:
        return Connection(spec, host)
    return LocalToolServer(spec, opener, restart_pause_s=host.restart_pause_s)


@asynccontextmanager
async def open_toolbox(
    specs: Sequence[ServerConfig],
    *,
    on_status: Callable[[str], None] | None = None,
    host: ConnectionServices | None = None,
    sampler: Sampler | None = None,
    policies: ExecutionPolicies | None = None,
    read_device: DeviceReader | None = None,
    problems: Mapping[str, str] | None = None,
    own: Sequence[OwnTools] = (),
) -> AsyncGenerator[Toolbox]:
    """Start all servers concurrently without waiting for them; stop all of them on exit.

    Args:
        specs: the servers; names must be unique.
        on_status: called with a status line when a server is ready, has new tools, fails or dies; for the last two, the
            server's last output lines follow.
        host: services of the host that connections use.
        sampler: model for sampling requests of servers; None refuses them.
        policies: approvals, recording, switches and the size limit of tool calls; the defaults when None.
        read_device: readings of the machine for the built-in tool ``device_status``.
        problems: why servers cannot be used at all, by name.
        own: further tools of this process.

    Raises:
        ToolboxError: two servers have the same name.
    """
    names = [spec.name for spec in specs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ToolboxError(f"two servers are named {twice!r}; give each a unique name")
    approvals = (policies.approvals if policies else None) or Approvals()
    answers = Answers(sampler, approvals.approve_sampling)
    services, reasons = replace(host or ConnectionServices(), callbacks_for=answers.callbacks_for), problems or {}

    connections = {
        spec.name: source_of(spec, services, problem=reasons.get(spec.name, ""), read_device=read_device)
        for spec in specs
    }
    # Only MCP servers have resources and prompts.
    on_mcp = {
        name: server for name, server in connections.items() if isinstance(server, (Connection, PerRequestConnection))
    }
    open_resources = partial(ResourceHub, on_mcp, answers.updates, on_status)
    toolbox = Toolbox(connections, open_resources, on_status, policies, own)
    async with open_task_group() as tasks:
        for connection in toolbox.connections:
            tasks.start_soon(connection.run, name=f"server {connection.spec.name}")
        try:
            yield toolbox
        finally:
            for connection in toolbox.connections:
                connection.stop()
