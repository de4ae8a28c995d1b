"""The composition root: open the model, the tools and the assistant that a configuration asks for.

The model's process is started first; the libraries for prompts, tools and the store are imported while it loads. What a
configuration does not use (a service's SDK, the MCP client, REST APIs) is not imported.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from rkllm_mcp.app.environment import AuxiliaryModel, LocalModel, ModelHost, ToolEnvironment
from rkllm_mcp.app.settings import chosen_model, engine_settings, unsupported_settings
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import RuntimeUnusableError
from rkllm_mcp.providers.prefill_progress import PrefillProgress
from rkllm_mcp.providers.remote_settings import (
    ASSUMED_CONTEXT_TOKENS,
    Kind,
    RemoteSettings,
    egress_notices,
    estimated_tool_tokens,
    services_of,
)

if TYPE_CHECKING:
    from rkllm_mcp.app.assistant import Assistant
    from rkllm_mcp.mcp_client.oauth import ShowAddress
    from rkllm_mcp.mcp_client.resources import ResourceHub
    from rkllm_mcp.protocols import Sampler
    from rkllm_mcp.providers.remote import RemoteModel
    from rkllm_mcp.runtime.engine import Engine
    from rkllm_mcp.tools.toolbox import Toolbox

StatusSink = Callable[[str], None]
# Longest wait for the start of the model's process before other parts are imported, seconds.
WORKER_START_S = 1.0

# Package of each kind, equal to the name of the extra, and its vendor.
_PACKAGES: Mapping[Kind, tuple[str, str]] = {"openai": ("openai", "OpenAI"), "anthropic": ("anthropic", "Anthropic")}


def check_sdk(service: RemoteSettings) -> None:
    """Check that the SDK for a service is installed.

    Raises:
        RuntimeUnusableError: it is not installed.
    """
    package, vendor = _PACKAGES[service.kind]
    if find_spec(package) is None:
        raise RuntimeUnusableError(
            f"'{service.model}' at {service.host} needs {vendor}'s package, which is not installed.",
            f"Install it: pip install 'rkllm-mcp[{package}]'",
        )


@asynccontextmanager
async def open_remote(service: RemoteSettings) -> AsyncGenerator[RemoteModel, None]:
    """Open a remote model; close its connections on exit. Nothing is loaded or sent before the first request.

    Raises:
        RuntimeUnusableError: the SDK for this kind is not installed.
    """
    check_sdk(service)
    model = _remote_model(service)
    try:
        yield model
    finally:
        await model.close()


def _remote_model(service: RemoteSettings) -> RemoteModel:
    # Only the classes of the service that is used are loaded.
    if service.kind == "openai":
        from rkllm_mcp.providers.openai import OpenAIModel

        return OpenAIModel(service)
    from rkllm_mcp.providers.anthropic import AnthropicModel

    return AnthropicModel(service)


@asynccontextmanager
async def open_auxiliary_models(
    config: Config, names: Iterable[str]
) -> AsyncGenerator[Mapping[str, AuxiliaryModel], None]:
    """Load the embedding and reranking models; close them on exit.

    Args:
        config: the configuration; its runtime runs them as well.
        names: their names or paths.

    Raises:
        ModelNotFoundError: a model does not exist or lacks a file.
        ModelLoadError: the NPU has no address space left for so many models.
    """
    configs = {name: config.overridden(model=name) for name in dict.fromkeys(names)}
    folders = {name: chosen_model(each) for name, each in configs.items()}
    if not folders:
        yield {}
        return
    from rkllm_mcp.app.model_form import model_form
    from rkllm_mcp.runtime.engine import open_engine
    from rkllm_mcp.runtime.settings import with_domains

    # The chat model begins in the first domain, where every model does that is alone.
    shared = [engine_settings(config, chosen_model(config))]
    shared += [engine_settings(configs[name], folder) for name, folder in folders.items()]
    settings = dict(zip(folders, with_domains(shared)[1:], strict=True))
    async with AsyncExitStack() as stack:
        auxiliary_models: dict[str, AuxiliaryModel] = {}
        for name, folder in folders.items():
            engine = await stack.enter_async_context(open_engine(settings[name]))
            auxiliary_models[name] = AuxiliaryModel(folder.name, engine, model_form(configs[name], folder).tokenizer)
        yield auxiliary_models


def check_model(config: Config) -> None:
    """Check if the configured model can be opened; start nothing.

    Raises:
        RuntimeUnusableError: the model or the runtime does not exist, or a file is missing.
    """
    services = services_of(config)
    for service in services.values():
        check_sdk(service)
    if "model" not in services:
        from rkllm_mcp.app.model_form import model_form

        model = chosen_model(config)
        engine_settings(config, model)
        model_form(config, model)


@asynccontextmanager
async def open_model(config: Config, auxiliary: Sequence[str] = ()) -> AsyncGenerator[ModelHost, None]:
    """Load the configured model in the background, or prepare the remote service; close it on exit.

    Args:
        config: the configuration.
        auxiliary: embedding and reranking models to load as well, name or path; not possible with a remote service.

    Raises:
        ModelNotFoundError: a model does not exist or lacks a file.
        RuntimeUnusableError: the package for the remote service is not installed.
    """
    services, fallback = services_of(config), config.provider.fallback
    async with AsyncExitStack() as stack:
        opened = _open_service(services["model"]) if "model" in services else _open_on_npu(config, auxiliary)
        model_host = await stack.enter_async_context(opened)
        if "fallback" in services and fallback is not None:
            from rkllm_mcp.providers.fallback import FallbackModel

            second = await stack.enter_async_context(open_remote(services["fallback"]))
            model_host = replace(
                model_host,
                chat_model=FallbackModel(model_host.chat_model, second, fallback.when),
                description=f"{model_host.description}; '{second.name}' at {second.service.host} takes over by rule",
                has_stand_in="failed" in fallback.when,
            )
        yield model_host


@asynccontextmanager
async def _open_service(service: RemoteSettings) -> AsyncGenerator[ModelHost, None]:
    """A model host without an NPU: nothing is loaded here."""
    async with open_remote(service) as model:
        from rkllm_mcp.app.model_form import PromptListing

        shown = PromptListing(service.context_tokens or ASSUMED_CONTEXT_TOKENS, estimated_tool_tokens)
        description = f"a service with {'OpenAI' if service.kind == 'openai' else 'Anthropic'}'s interface at "
        yield ModelHost(model.name, model, shown, npu=None, description=description + service.host, remote=model)


@asynccontextmanager
async def _open_on_npu(config: Config, auxiliary: Sequence[str]) -> AsyncGenerator[ModelHost, None]:
    """A model host on the board's own model."""
    from rkllm_mcp.runtime.engine import open_engine

    model = chosen_model(config)
    settings = engine_settings(config, model)
    named = config.agent.embedding_model if config.active_servers else None
    names = [*([named] if named else []), *auxiliary]
    async with open_engine(settings) as engine, open_auxiliary_models(config, names) as auxiliary_models:
        # The imports below hold the event loop, which has to start the process that loads the model meanwhile.
        with anyio.move_on_after(WORKER_START_S):
            await engine.started()
        from rkllm_mcp.app.model_form import listing, model_form
        from rkllm_mcp.providers.rkllm import RkllmModel

        form = model_form(config, model)
        prefill_progress = PrefillProgress(settings.profile.prefill_s if settings.profile else None)
        chat_model = RkllmModel(engine, form, prefill_progress)
        npu = LocalModel(model, engine, form, chat_model, prefill_progress)
        description = "emulated: answers come from a script" if model.card.emulated else "on the NPU"
        yield ModelHost(
            model.name,
            chat_model,
            listing(config, model, form),
            npu,
            auxiliary_models.get(named or ""),
            description,
            auxiliary_models=auxiliary_models,
        )


# Name of the connections' texts in the store; see mcp_client.server_cache.
SERVER_FACTS = "servers"


def _own_places(config: Config) -> tuple[Path, ...]:
    """Return the configuration files and the state folder of this host, with the data of all tenants."""
    from rkllm_mcp.config.loading import search_order
    from rkllm_mcp.store.database import state_file

    local, *common = search_order()
    files = (local, *([config.source] if config.source else []))
    return (*files, *(path.parent for path in common), state_file(os.environ).parent)


@asynccontextmanager
async def open_tools(
    config: Config,
    *,
    status: Callable[[str], None] | None = None,
    sampler: Sampler | None = None,
    required: bool = False,
    log_in: ShowAddress | None = None,
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
    limits = HistoryLimits(config.service.history_days, config.service.history_conversations)

    tenant = tenant or config.tenant
    path = state_file(os.environ, tenant)
    opening = open_store(path=path, retention=retention, limits=limits, on_problem=status, required=required)
    async with opening as store:
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
        from rkllm_mcp.mcp_client.oauth import BrowserConsent, NoConsent
        from rkllm_mcp.mcp_client.sandbox import SandboxFolders, cache_folder
        from rkllm_mcp.tools.tool_servers import open_toolbox

        with open_connection_services(
            store.database.path.parent,
            remembered=await store.texts(SERVER_FACTS),
            consent=NoConsent(tenant) if log_in is None else BrowserConsent(log_in),
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


def _no_resources(_toolbox: Toolbox) -> ResourceHub:
    from rkllm_mcp.mcp_client.callbacks import ResourceUpdates
    from rkllm_mcp.mcp_client.resources import ResourceHub

    return ResourceHub({}, ResourceUpdates())


async def _report_warnings(engine: Engine, status: StatusSink) -> None:
    """Show the runtime's warnings about driver and model, once they are loaded."""
    with suppress(RuntimeUnusableError):
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
) -> AsyncGenerator[Assistant, None]:
    """Start everything that ``config`` names, and stop it at the end.

    The model loads and the servers connect in the background: entering returns at once, ``Assistant.ready`` waits. A
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
    failure: Exception | None = None
    async with AsyncExitStack() as stack:
        if model_host is None:
            model_host = await stack.enter_async_context(open_model(config))
        from rkllm_mcp.agent.sampling import ModelSampler
        from rkllm_mcp.agent.usage import UsageCounter
        from rkllm_mcp.app.assistant import Assistant
        from rkllm_mcp.app.warmup import WarmUp
        from rkllm_mcp.tools.toolbox import report_slow_servers

        model, usage = model_host.chat_model, UsageCounter()
        sampler = ModelSampler(model, model_host.name, config.agent.sampling_tokens, model.forget, usage, tenant)
        opening = open_tools(config, status=status, sampler=sampler, tenant=tenant)
        tools = await stack.enter_async_context(opening)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        npu = model_host.npu
        warm_up = WarmUp(config, npu.model, npu.engine, status, one_shot=one_shot, tenant=tenant) if npu else None
        app = Assistant(config, model_host, tools, tasks, warm_up, tenant, usage)
        tasks.start_soon(app.recorder.tidy)
        if status is not None:
            tasks.start_soon(report_slow_servers, app.toolbox.connections, status)
            if npu is not None and not tenant:
                tasks.start_soon(_report_warnings, npu.engine, status)
        if warm_up is not None:
            tasks.start_soon(warm_up.run, app.ready, app.prompt_prefix)
        try:
            yield app
        except Exception as error:  # noqa: BLE001  (raised again below: the task group would wrap it in a group)
            failure = error
        finally:
            app.close()
            with anyio.CancelScope(shield=True):
                # Answers that run in their caller's task still use the tools and the model.
                await app.idle()
    if failure is not None:
        raise failure
