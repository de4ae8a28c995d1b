"""The composition root: open the model, the tools and the assistant that a configuration asks for."""

from __future__ import annotations

import logging
import os
from array import array
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from rkllm_mcp.app.settings import (
    PromptListing,
    chosen_model,
    device_state,
    engine_settings,
    listing,
    model_form,
)
from rkllm_mcp.config.loading import search_order
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import RkllmMcpError, RuntimeUnusableError, UsageError
from rkllm_mcp.mcp_client.lifecycle import open_connection_services
from rkllm_mcp.mcp_client.oauth import BrowserConsent, NoConsent, ShowAddress
from rkllm_mcp.mcp_client.sandbox import SandboxFolders, cache_folder
from rkllm_mcp.models.cards import ModelFolder
from rkllm_mcp.prompt.tokenizer import ModelTokenizer
from rkllm_mcp.protocols import Sampler, StatefulModel
from rkllm_mcp.providers.embedding import embed_texts
from rkllm_mcp.providers.prefill_progress import PrefillProgress
from rkllm_mcp.providers.remote_settings import (
    ASSUMED_CONTEXT_TOKENS,
    Kind,
    RemoteSettings,
    estimated_tool_tokens,
    services_of,
)
from rkllm_mcp.runtime.settings import with_domains
from rkllm_mcp.store import Store, open_store
from rkllm_mcp.store.conversations import HistoryLimits
from rkllm_mcp.store.database import state_file
from rkllm_mcp.store.tool_calls import Retention
from rkllm_mcp.toolcalls.untrusted_text import without_markers
from rkllm_mcp.tools.approvals import Approvals, Switches, language_of
from rkllm_mcp.tools.execution import ExecutionPolicies
from rkllm_mcp.tools.toolbox import Toolbox, open_toolbox

if TYPE_CHECKING:
    from rkllm_mcp.providers.remote import RemoteModel
    from rkllm_mcp.providers.rkllm import ModelForm, RkllmModel
    from rkllm_mcp.runtime.engine import Engine

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


@dataclass(frozen=True)
class AuxiliaryModel:
    """A model that evaluates instead of answering.

    Args:
        name: as it is shown.
        engine: the owner of the model.
        vocabulary: its tokenizer.
    """

    name: str
    engine: Engine
    vocabulary: ModelTokenizer

    async def embed(self, texts: Sequence[str]) -> list[array[float]]:
        """A vector of length 1 for each text.

        Raises:
            RkllmMcpError: the model cannot be loaded, or gives no vectors.
        """
        return await embed_texts(self.engine, self.vocabulary, texts)


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
    from rkllm_mcp.runtime.engine import open_engine

    # The chat model begins in the first domain, where every model does that is alone.
    shared = [engine_settings(config, chosen_model(config))]
    shared += [engine_settings(configs[name], folder) for name, folder in folders.items()]
    settings = dict(zip(folders, with_domains(shared)[1:], strict=True))
    async with AsyncExitStack() as stack:
        specialists: dict[str, AuxiliaryModel] = {}
        for name, folder in folders.items():
            engine = await stack.enter_async_context(open_engine(settings[name]))
            specialists[name] = AuxiliaryModel(folder.name, engine, model_form(configs[name], folder).vocabulary)
        yield specialists


logger = logging.getLogger(__name__)

StatusSink = Callable[[str], None]


@dataclass(frozen=True)
class LocalModel:
    """The board's own model.

    Args:
        model: its folder and card.
        engine: the owner of the NPU.
        form: how it is spoken to and read.
        chat_model: prompt, engine and detector joined.
        readings: the prompts that are being read.
    """

    model: ModelFolder
    engine: Engine
    form: ModelForm
    chat_model: RkllmModel
    readings: PrefillProgress


@dataclass(frozen=True)
class ModelHost:
    """The chat model; ``open_model`` opens one.

    Args:
        name: the model's name.
        chat_model: answers conversations.
        listing: how the model takes a list of tools.
        npu: the local model; None if only a remote service answers.
        embedder: a model that helps to choose tools, if any.
        description: the model in a few words.
        has_stand_in: True if a fallback answers while the local model cannot be loaded.
        remote: the remote service; None if the NPU answers.
        specialists: the embedding and reranking models, by the name or path in the configuration.
    """

    name: str
    chat_model: StatefulModel
    listing: PromptListing
    npu: LocalModel | None
    embedder: AuxiliaryModel | None = None
    description: str = ""
    has_stand_in: bool = False
    remote: RemoteModel | None = None
    specialists: Mapping[str, AuxiliaryModel] = field(default_factory=dict[str, AuxiliaryModel])

    @property
    def board(self) -> LocalModel:
        """The board's own model.

        Raises:
            UsageError: a remote service answers, and no model is loaded here.
        """
        if self.npu is None:
            raise UsageError(f"{self.name} is a remote service; what was asked needs a model on the NPU")
        return self.npu

    @property
    def is_emulated(self) -> bool:
        """The answers come from a script."""
        return self.npu is not None and self.npu.model.card.emulated

    @property
    def is_ready(self) -> bool:
        """Nothing has to be loaded before the next answer."""
        if self.npu is None:
            return self.remote is not None and self.remote.is_ready
        return self.npu.engine.is_ready or (self.has_stand_in and self.npu.engine.failure is not None)

    @property
    def failure(self) -> RkllmMcpError | None:
        """The reason why no answer will come any more; None where one still can, be it from the fallback.

        The specialists have no part in it: without one, its own requests fail with its reason.
        """
        return None if self.npu is None or self.has_stand_in else self.npu.engine.failure

    async def ready(self) -> None:
        """Wait until the model is loaded.

        Raises:
            RuntimeUnusableError: it could not be.
        """
        if self.npu is not None:
            with suppress(*((RuntimeUnusableError,) if self.has_stand_in else ())):
                await self.npu.engine.ready()
        if self.remote is not None:
            await self.remote.ready()

    async def given_up(self) -> None:
        """Wait until no answer will come any more, and ``failure`` is the reason.

        A model that will not be loaded again, and without which answers go on, is logged meanwhile.
        """
        async with anyio.create_task_group() as tasks:
            for specialist in self.specialists.values():
                tasks.start_soon(_log_loss, specialist.name, specialist.engine, "its requests are refused")
            if self.npu is None or self.has_stand_in:
                if self.npu is not None:
                    await _log_loss(self.name, self.npu.engine, "the fallback answers")
                await anyio.sleep_forever()
            else:
                await self.npu.engine.given_up()
            tasks.cancel_scope.cancel()


async def _log_loss(name: str, engine: Engine, effect: str) -> None:
    await engine.given_up()
    logger.error("model '%s' is not loaded until the service is restarted, %s: %s", name, effect, engine.failure)


def check_model(config: Config) -> None:
    """Check if the configured model can be opened; start nothing.

    Raises:
        RuntimeUnusableError: the model or the runtime does not exist, or a file is missing.
    """
    services = services_of(config)
    for service in services.values():
        check_sdk(service)
    if "model" not in services:
        model = chosen_model(config)
        engine_settings(config, model)
        model_form(config, model)


@asynccontextmanager
async def open_model(config: Config, beside: Sequence[str] = ()) -> AsyncGenerator[ModelHost, None]:
    """Load the configured model in the background, or prepare the remote service; close it on exit.

    Args:
        config: the configuration.
        beside: embedding and reranking models to load as well, name or path; not possible with a remote service.

    Raises:
        ModelNotFoundError: a model does not exist or lacks a file.
        RuntimeUnusableError: the package for the remote service is not installed.
    """
    services, fallback = services_of(config), config.provider.fallback
    async with AsyncExitStack() as stack:
        opened = _open_service(services["model"]) if "model" in services else _open_on_npu(config, beside)
        core = await stack.enter_async_context(opened)
        if "fallback" in services and fallback is not None:
            from rkllm_mcp.providers.fallback import FallbackModel

            second = await stack.enter_async_context(open_remote(services["fallback"]))
            core = replace(
                core,
                chat_model=FallbackModel(core.chat_model, second, fallback.when),
                description=f"{core.description}; '{second.name}' at {second.service.host} takes over by rule",
                has_stand_in="failed" in fallback.when,
            )
        yield core


@asynccontextmanager
async def _open_service(service: RemoteSettings) -> AsyncGenerator[ModelHost, None]:
    """A core without an NPU: nothing is loaded here."""
    async with open_remote(service) as model:
        shown = PromptListing(service.context_tokens or ASSUMED_CONTEXT_TOKENS, estimated_tool_tokens)
        description = f"a service with {'OpenAI' if service.kind == 'openai' else 'Anthropic'}'s interface at "
        yield ModelHost(model.name, model, shown, npu=None, description=description + service.host, remote=model)


@asynccontextmanager
async def _open_on_npu(config: Config, beside: Sequence[str]) -> AsyncGenerator[ModelHost, None]:
    """A core on the board's own model."""
    from rkllm_mcp.providers.rkllm import RkllmModel
    from rkllm_mcp.runtime.engine import open_engine

    model = chosen_model(config)
    settings = engine_settings(config, model)
    named = config.agent.embedding_model if config.active_servers else None
    names = [*([named] if named else []), *beside]
    # The engine comes first: its process loads the model while this one imports what servers need.
    async with open_engine(settings) as engine, open_auxiliary_models(config, names) as specialists:
        form = model_form(config, model)
        readings = PrefillProgress(settings.profile.prefill_s if settings.profile else None)
        chat_model = RkllmModel(engine, form, readings)
        npu = LocalModel(model, engine, form, chat_model, readings)
        description = "emulated: answers come from a script" if model.card.emulated else "on the NPU"
        yield ModelHost(
            model.name,
            chat_model,
            listing(config, model, form),
            npu,
            specialists.get(named or ""),
            description,
            specialists=specialists,
        )


SERVER_FACTS = "servers"  # kind of the texts in which a ``ServerCache`` is stored


@dataclass(frozen=True)
class ToolEnvironment:
    """An open toolbox and the store of its calls, approvals and switches."""

    toolbox: Toolbox
    memory: Store

    async def refresh(self) -> None:
        """Take over what other processes have switched off or on since."""
        switches = await self.memory.switches.all()
        # What cannot be read or kept changes nothing here: a tool that is off must not come on by that.
        if switches is not None:
            self.toolbox.switches.replace(switches)


def _own_places(config: Config) -> tuple[Path, ...]:
    """Return the configuration files and the state folder of this host, with the data of all tenants."""
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
    retention = Retention(config.security.history_days, config.security.history_calls)
    limits = HistoryLimits(config.service.history_days, config.service.history_conversations)

    tenant = tenant or config.tenant
    path = state_file(os.environ, tenant)
    memories = open_store(path=path, retention=retention, limits=limits, on_problem=status, required=required)
    async with memories as memory:
        policies = ExecutionPolicies(
            approvals=Approvals(memory.grants, language_of(config.agent.language)),
            recorder=memory.calls,
            switches=Switches(await memory.switches.all() or (), memory.switches.keep),
            result_chars=config.agent.tool_result_chars,
            escape_description=without_markers,
        )
        folder = memory.database.path.parent
        remembered = await memory.texts(SERVER_FACTS)
        consent = NoConsent(tenant) if log_in is None else BrowserConsent(log_in)
        with open_connection_services(
            folder,
            remembered=remembered,
            consent=consent,
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
                yield ToolEnvironment(toolbox, memory)
