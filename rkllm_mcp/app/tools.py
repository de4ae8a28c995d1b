"""Open the tools and the store that a configuration asks for; without servers the MCP client is not imported."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from rkllm_mcp.app.environment import ToolEnvironment
from rkllm_mcp.app.settings import store_limits
from rkllm_mcp.config.loading import search_order
from rkllm_mcp.config.sections import Config
from rkllm_mcp.store import open_store
from rkllm_mcp.store.database import state_file
from rkllm_mcp.toolcalls.untrusted_text import without_markers
from rkllm_mcp.tools.approvals import Approvals, Switches
from rkllm_mcp.tools.execution import ExecutionPolicies
from rkllm_mcp.tools.toolbox import OwnTools, Toolbox

if TYPE_CHECKING:
    from rkllm_mcp.mcp_client.oauth import BrowserConsent, Consent, ShowAddress
    from rkllm_mcp.mcp_client.resources import ResourceHub
    from rkllm_mcp.messages import ToolSpec
    from rkllm_mcp.protocols import Sampler

# Name of the connections' texts in the store; see mcp_client.server_cache.
SERVER_FACTS = "servers"


@asynccontextmanager
async def open_tools(
    config: Config,
    *,
    status: Callable[[str], None] | None = None,
    sampler: Sampler | None = None,
    required: bool = False,
    log_in: ShowAddress | BrowserConsent | None = None,
    tenant: str = "",
) -> AsyncGenerator[ToolEnvironment, None]:
    """Connect the configured servers; on exit all of them are closed and everything is written.

    Args:
        config: the configuration.
        status: takes one line for each server that is connected or failed, and if nothing can be stored.
        sampler: our model, for servers that request sampling.
        required: raise an error if the store cannot be opened.
        log_in: shows a person the address at which to log in to a server; None if no person can be shown it.
        tenant: the tenant whose servers these are, empty for the owner; each tenant has files of their own.

    Raises:
        StoreError: the store is required and cannot be opened.
    """
    limits, configured = store_limits(config)
    tenant = tenant or config.origin.tenant
    path = state_file(os.environ, tenant)
    async with open_store(
        path=path,
        limits=limits,
        given=configured,
        on_problem=status,
        required=required,
        url=config.store.url,
        tenant=tenant,
    ) as store:
        policies = ExecutionPolicies(
            approvals=Approvals(store.grants, config.agent.person_language),
            recorder=store.calls.record,
            switches=Switches(await store.switches.all() or (), store.switches.keep),
            result_chars=config.agent.tool_result_chars,
            escape_description=without_markers,
            language=config.status_language,
        )
        own_tools: list[OwnTools] = []
        if config.agent.memory and config.agent.memory_tools:
            from rkllm_mcp.memory.tools import MemoryTools

            own_tools.append(MemoryTools(store.memories))
        if config.agent.schedule_tool:
            from rkllm_mcp.schedules.tool import ScheduleTool

            own_tools.append(ScheduleTool(store.schedules, tenant, config.service.timezone))
        if not config.active_servers:
            yield ToolEnvironment(Toolbox({}, _no_resources, status, policies, own_tools), store)
            return
        from rkllm_mcp.board.system import device_state
        from rkllm_mcp.mcp_client.lifecycle import open_connection_services
        from rkllm_mcp.mcp_client.oauth import BrowserConsent, NoConsent
        from rkllm_mcp.mcp_client.sandbox import SandboxFolders, cache_folder
        from rkllm_mcp.tools.tool_servers import open_toolbox

        consent: Consent = NoConsent(tenant)
        if log_in is not None:
            consent = log_in if isinstance(log_in, BrowserConsent) else BrowserConsent(log_in)
        # A sandbox hides the configuration files and the state folder of this host, with the data of all tenants.
        local, *common = search_order()
        files = (local, *([config.origin.source] if config.origin.source else []))
        own_places = (*files, *(file.parent for file in common), state_file(os.environ).parent)
        with open_connection_services(
            store.database.path.parent,
            remembered=await store.texts(SERVER_FACTS),
            consent=consent,
            log_wire=config.security.log_wire,
            allowed_commands=config.security.allowed_commands,
            sandbox=SandboxFolders(cache_folder(os.environ), own_places),
        ) as host:
            async with open_toolbox(
                config.resolved_servers(),
                on_status=status,
                host=host,
                sampler=sampler,
                policies=policies,
                read_device=device_state,
                problems={server.name: config.problem_of(server) for server in config.active_servers},
                own=own_tools,
            ) as toolbox:
                yield ToolEnvironment(toolbox, store)


def set_switch(toolbox: Toolbox, config: Config, name: str, *, is_on: bool) -> tuple[str, str | None]:
    """Switch a tool or server, or raise a ToolboxError; return its server, and the tool's name or None for a server."""
    # The name of a server never means another server's tool of the same name.
    if name in {server.name for server in config.servers}:
        toolbox.switches.turn(name, is_on=is_on)
        return name, None
    (tool,) = toolbox.switch(name, is_on=is_on)
    return tool.server, tool.name


async def tools_without_a_start(config: Config, name: str) -> Sequence[ToolSpec]:
    """Return the tools of a server, of which no program is started: those of its last connection, or its functions."""
    from rkllm_mcp.config.servers import BuiltinServer, OpenAPIServer
    from rkllm_mcp.mcp_client.server_cache import Forgetful, ServerCache
    from rkllm_mcp.store import stored_texts

    chosen = config.only_servers([name])
    for server in chosen.resolved_servers():
        if isinstance(server, BuiltinServer):
            async with open_tools(chosen) as environment:
                await environment.toolbox.wait_until_started()
                return environment.toolbox.tools()
        if not isinstance(server, OpenAPIServer):
            texts = stored_texts(state_file(os.environ, config.origin.tenant), SERVER_FACTS)
            return ServerCache(server, Forgetful(texts)).known.tools or ()
    return ()


def _no_resources() -> ResourceHub:
    from rkllm_mcp.mcp_client.callbacks import ResourceUpdates
    from rkllm_mcp.mcp_client.resources import ResourceHub

    return ResourceHub({}, ResourceUpdates())
