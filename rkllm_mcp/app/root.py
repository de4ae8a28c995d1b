"""The composition root: open the tools and the assistant that a configuration asks for.

``app.models`` opens the model, whose process is started first; the libraries for prompts, tools and the store are
imported while it loads. What a configuration does not use (the MCP client, REST APIs) is not imported.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from rkllm_mcp.app.environment import ModelHost, ToolEnvironment
from rkllm_mcp.app.models import ModelSwitch, open_models
from rkllm_mcp.app.settings import unsupported_settings
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.providers.remote_settings import egress_notices
from rkllm_mcp.tasks import open_task_group

if TYPE_CHECKING:
    from rkllm_mcp.app.assistant import App
    from rkllm_mcp.mcp_client.oauth import BrowserConsent, Consent, ShowAddress
    from rkllm_mcp.mcp_client.resources import ResourceHub
    from rkllm_mcp.protocols import Sampler
    from rkllm_mcp.runtime.engine import Engine
    from rkllm_mcp.tools.toolbox import Toolbox

StatusSink = Callable[[str], None]
# Name of the connections' texts in the store; see mcp_client.server_cache.
SERVER_FACTS = "servers"


def _own_places(config: Config) -> tuple[Path, ...]:
    """Return the configuration files and the state folder of this host, with the data of all tenants."""
    from rkllm_mcp.config.loading import search_order
    from rkllm_mcp.store.database import state_file

    local, *common = search_order()
    files = (local, *([config.origin.source] if config.origin.source else []))
    return (*files, *(path.parent for path in common), state_file(os.environ).parent)


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
    from rkllm_mcp.store import open_store
    from rkllm_mcp.store.conversations import HistoryLimits
    from rkllm_mcp.store.database import state_file
    from rkllm_mcp.store.tool_calls import Retention
    from rkllm_mcp.toolcalls.untrusted_text import without_markers
    from rkllm_mcp.tools.approvals import Approvals, Switches
    from rkllm_mcp.tools.execution import ExecutionPolicies

    retention = Retention(config.security.history_days, config.security.history_calls)
    service = config.service
    limits = HistoryLimits(service.history_days, service.history_conversations, service.keep_results)

    tenant = tenant or config.origin.tenant
    path = state_file(os.environ, tenant)
    async with open_store(
        path=path,
        retention=retention,
        limits=limits,
        on_problem=status,
        required=required,
        url=config.store.url,
        tenant=tenant,
    ) as store:
        policies = ExecutionPolicies(
            approvals=Approvals(store.grants, config.agent.person_language),
            recorder=store.calls,
            switches=Switches(await store.switches.all() or (), store.switches.keep),
            result_chars=config.agent.tool_result_chars,
            escape_description=without_markers,
        )
        if not config.active_servers:
            from rkllm_mcp.tools.toolbox import Toolbox

            yield ToolEnvironment(Toolbox(lambda _: {}, _no_resources, status, policies), store)
            return
        from rkllm_mcp.board.system import device_state
        from rkllm_mcp.mcp_client.lifecycle import open_connection_services
        from rkllm_mcp.mcp_client.sandbox import SandboxFolders, cache_folder
        from rkllm_mcp.tools.tool_servers import open_toolbox

        with open_connection_services(
            store.database.path.parent,
            remembered=await store.texts(SERVER_FACTS),
            consent=_consent(log_in, tenant),
            log_wire=config.security.log_wire,
            allowed_commands=config.security.allowed_commands,
            sandbox=SandboxFolders(cache_folder(os.environ), _own_places(config)),
        ) as host:
            async with open_toolbox(
                config.resolved_servers(),
                on_status=status,
                host=host,
                sampler=sampler,
                policies=policies,
                read_device=device_state,
                problems={server.name: config.problem_of(server) for server in config.active_servers},
            ) as toolbox:
                yield ToolEnvironment(toolbox, store)


def _consent(log_in: ShowAddress | BrowserConsent | None, tenant: str) -> Consent:
    from rkllm_mcp.mcp_client.oauth import BrowserConsent, NoConsent

    if log_in is None:
        return NoConsent(tenant)
    return log_in if isinstance(log_in, BrowserConsent) else BrowserConsent(log_in)


def _no_resources(_toolbox: Toolbox) -> ResourceHub:
    from rkllm_mcp.mcp_client.callbacks import ResourceUpdates
    from rkllm_mcp.mcp_client.resources import ResourceHub

    return ResourceHub({}, ResourceUpdates())


async def _report_warnings(engine: Engine, status: StatusSink) -> None:
    """Show the runtime's warnings about driver and model, once they are loaded."""
    with suppress(RkllmMcpError):
        await engine.ready()
        for warning in engine.warnings:
            status(f"[NPU: {warning}]")


@asynccontextmanager
async def open_app(
    config: Config,
    *,
    status: StatusSink | None = None,
    one_shot: bool = False,
    model_host: ModelHost | None = None,
    tenant: str = "",
) -> AsyncGenerator[App, None]:
    """Start everything that ``config`` names, and stop it at the end.

    The model loads and the servers connect in the background: entering returns at once, ``App.ready`` waits. A
    server that fails is left out with a status line; a model that fails is an error of the first answer.

    Args:
        config: the configuration.
        status: takes a line about each server that is connected or failed.
        one_shot: there will be one question, at once, so nothing is prefilled in advance.
        model_host: the model that answers, which stays open when this assistant ends; one of its own when None.
        tenant: the tenant's name, whose stored data no other tenant sees; empty for the owner.

    Raises:
        ModelNotFoundError: the model does not exist or lacks a file.
    """
    if status is not None and tenant == "":
        for line in (*unsupported_settings(config), *egress_notices(config)):
            status(line)
    models: ModelSwitch | None = None
    async with AsyncExitStack() as stack:
        if model_host is None:
            models = await stack.enter_async_context(open_models(config))
            model_host = models.current
        from rkllm_mcp.agent.sampling import ModelSampler
        from rkllm_mcp.agent.usage import UsageCounter
        from rkllm_mcp.app.assistant import App
        from rkllm_mcp.app.warmup import WarmUp

        usage = UsageCounter()
        sampler = ModelSampler(model_host.chat_model, model_host.name, config.agent.sampling_tokens, usage, tenant)
        opening = open_tools(config, status=status, sampler=sampler, tenant=tenant)
        tools = await stack.enter_async_context(opening)
        tasks = await stack.enter_async_context(open_task_group())
        warm_up = partial(WarmUp, config, say=status, one_shot=one_shot, tenant=tenant)
        app = App(config, model_host, tools, tasks, warm_up, tenant, usage, sampler)
        if models is not None:
            app.models, models.on_change = models, app.use
        tasks.start_soon(app.recorder.tidy)
        if status is not None and model_host.npu is not None and not tenant:
            tasks.start_soon(_report_warnings, model_host.npu.engine, status)
        app.warm_up()
        try:
            yield app
        finally:
            app.close()
            with anyio.CancelScope(shield=True):
                # Answers that run in their caller's task still use the tools and the model.
                await app.idle()
