"""The models of a process: opened, and exchanged for one another.

    load(name) ─▶ memory? ─▶ the loaded one unloaded ─▶ the other loaded ─▶ assistants use it
                                                     └▶ it fails: the first one is loaded again, and the error says so

One chat model is loaded at a time. One that was loaded before stays open without its process: its tokenizer and the
token ids of its conversations are there when it comes back. Who may exchange models, and when, is for the callers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import anyio
from anyio import to_thread

from rkllm_base.installation import install_command
from rkllm_mcp.app.environment import AuxiliaryModel, LocalModel, ModelHost
from rkllm_mcp.app.settings import blindness, chosen_model, engine_settings
from rkllm_mcp.config.sections import Config
from rkllm_mcp.errors import (
    MemoryShortError,
    ModelLoadError,
    ModelNotFoundError,
    RuntimeUnusableError,
    UsageError,
)
from rkllm_mcp.generation import HeldLimits
from rkllm_mcp.models.cards import CATALOGUES, ModelFolder, list_models, model_directories
from rkllm_mcp.providers.prefill_progress import PrefillProgress
from rkllm_mcp.providers.remote_settings import (
    ASSUMED_CONTEXT_TOKENS,
    Kind,
    RemoteSettings,
    estimated_tool_tokens,
    services_of,
)

if TYPE_CHECKING:
    from rkllm_mcp.providers.remote import RemoteModel
    from rkllm_mcp.runtime.profile import RuntimeProfile

logger = logging.getLogger(__name__)

# Longest wait for the start of the model's process before other parts are imported, seconds.
WORKER_START_S = 1.0

# Vendor of each kind, which is the name of its package and of our extra.
_VENDORS: Mapping[Kind, str] = {"openai": "OpenAI", "anthropic": "Anthropic"}


def check_sdk(service: RemoteSettings) -> None:
    """Raise a RuntimeUnusableError if the SDK for a service is not installed."""
    if find_spec(service.kind) is None:
        package = f"{_VENDORS[service.kind]}'s package"
        problem = f"'{service.model}' at {service.host} needs {package}, which is not installed."
        raise RuntimeUnusableError(problem, f"Install it: {install_command(service.kind)}")


@asynccontextmanager
async def open_remote(service: RemoteSettings) -> AsyncGenerator[RemoteModel, None]:
    """Open a remote model and check its SDK; nothing is loaded or sent before the first request."""
    check_sdk(service)
    model: RemoteModel
    # Only the classes of the service that is used are loaded.
    if service.kind == "openai":
        from rkllm_mcp.providers.openai import OpenAIModel

        model = OpenAIModel(service)
    else:
        from rkllm_mcp.providers.anthropic import AnthropicModel

        model = AnthropicModel(service)
    try:
        yield model
    finally:
        await model.close()


@asynccontextmanager
async def open_auxiliary_models(
    config: Config, names: Iterable[str]
) -> AsyncGenerator[Mapping[str, AuxiliaryModel], None]:
    """Load the embedding and reranking models of these names or paths; close them on exit.

    It is a ModelLoadError if the NPU has no address space left for this many models.
    """
    configs = {name: config.with_options(model=name) for name in dict.fromkeys(names)}
    folders = {name: chosen_model(model_config) for name, model_config in configs.items()}
    if not folders:
        yield {}
        return
    from rkllm_mcp.app.model_form import model_form
    from rkllm_mcp.runtime.engine import open_engine
    from rkllm_mcp.runtime.settings import with_domains

    # The chat model begins in the first domain, where every model does that is alone; each of them has room.
    installed = installed_models(config) if config.model.switching != "off" else {}
    files = (folder.file for folder in installed.values() if folder.card.task == "chat")
    largest = max(files, key=_file_bytes, default=None)
    chat = engine_settings(config, chosen_model(config))
    shared = [replace(chat, model_path=largest or chat.model_path)]
    shared += [engine_settings(configs[name], folder) for name, folder in folders.items()]
    settings = dict(zip(folders, with_domains(shared)[1:], strict=True))
    async with AsyncExitStack() as stack:
        auxiliary_models: dict[str, AuxiliaryModel] = {}
        for name, folder in folders.items():
            engine = await stack.enter_async_context(open_engine(settings[name]))
            auxiliary_models[name] = AuxiliaryModel(folder.name, engine, model_form(configs[name], folder).tokenizer)
        yield auxiliary_models


def check_model(config: Config) -> None:
    """Raise a RuntimeUnusableError if the configured model, runtime or SDK is missing; start nothing."""
    services = services_of(config)
    for service in services.values():
        check_sdk(service)
    if "model" not in services:
        from rkllm_mcp.app.model_form import model_form

        model = chosen_model(config)
        engine_settings(config, model)
        model_form(config, model)


@asynccontextmanager
async def open_model(
    config: Config, auxiliary: Sequence[str] = (), open_host: ModelHost | None = None
) -> AsyncGenerator[ModelHost, None]:
    """Load the configured model in the background, or prepare the remote service; close it on exit.

    ``auxiliary`` are names or paths of embedding and reranking models to load as well, without a remote service;
    those of ``open_host``, an open model, are used instead. ``check_model`` has the errors.
    """
    services, fallback = services_of(config), config.provider.fallback
    async with AsyncExitStack() as stack:
        if "model" not in services:
            model_host = await stack.enter_async_context(_open_on_npu(config, auxiliary, open_host))
        else:
            service = services["model"]
            model = await stack.enter_async_context(open_remote(service))
            from rkllm_mcp.app.model_form import PromptListing

            prompt_listing = PromptListing(service.context_tokens or ASSUMED_CONTEXT_TOKENS, estimated_tool_tokens)
            about = f"a service with {_VENDORS[service.kind]}'s interface at {service.host}"
            model_host = ModelHost(model.name, model, prompt_listing, npu=None, description=about, remote=model)
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
async def _open_on_npu(
    config: Config, auxiliary: Sequence[str], open_host: ModelHost | None
) -> AsyncGenerator[ModelHost, None]:
    from rkllm_mcp.runtime.engine import open_engine

    model = chosen_model(config)
    settings = engine_settings(config, model)
    embedding_name = config.agent.embedding_model if config.active_servers else None
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(open_engine(settings))
        if open_host is None:
            names = [*([embedding_name] if embedding_name else []), *auxiliary]
            auxiliary_models = await stack.enter_async_context(open_auxiliary_models(config, names))
        else:
            auxiliary_models = open_host.auxiliary_models
        # The imports below hold the event loop, which has to start the process that loads the model meanwhile.
        with anyio.move_on_after(WORKER_START_S):
            await engine.supervisor.started.wait()
        from rkllm_mcp.app.model_form import listing, model_form
        from rkllm_mcp.providers.rkllm import RkllmModel
        from rkllm_mcp.runtime.prompt_cache import PrefixExchange, PromptFiles, prompts_folder

        # Others' answers go on while a tokenizer is read for a second model.
        form = model_form(config, model) if open_host is None else await to_thread.run_sync(model_form, config, model)
        prefill_progress = PrefillProgress(settings.profile.prefill_s if settings.profile else None)
        vision = None
        if model.encoder is not None:
            from rkllm_mcp.app.vision import open_vision

            vision = await stack.enter_async_context(open_vision(engine, model, model.encoder))
        keeps_prefixes = model.keeps_prompts and config.model.prompt_cache is not False
        files = PromptFiles(prompts_folder(), config.model.prompt_cache_mb)
        exchange_prefix = PrefixExchange(engine, model.file, files).exchange if keeps_prefixes else None
        quoted_name = f"'{model.name}'"
        chat_model = RkllmModel(
            engine,
            form,
            prefill_progress,
            vision,
            lambda: f"[Image: {blindness(quoted_name, emulated=model.card.emulated)}]",
            exchange_prefix,
            held_limits(model, settings.profile),
        )
        npu = LocalModel(model, engine, form, chat_model, prefill_progress, vision)
        emulated = "on the CPU, NPU emulated" if model.has_weights else "emulated: answers come from a script"
        description = emulated if model.card.emulated else "on the NPU"
        embedder, prompt_listing = auxiliary_models.get(embedding_name or ""), listing(config, model, form)
        yield ModelHost(
            model.name,
            chat_model,
            prompt_listing,
            npu,
            embedder,
            description,
            takes_pictures=model.encoder is not None,
            is_emulated=model.card.emulated,
            answers_from=model.card.answers_from,
            auxiliary_models=auxiliary_models,
        )


def held_limits(model: ModelFolder, profile: RuntimeProfile | None) -> HeldLimits | None:
    """Return the limits for corrections of held answers and calls; None if nothing is held."""
    if not model.is_held or (profile is not None and profile.against_corrections):
        return None
    from rkllm_mcp.toolcalls.constraint import is_installed

    return HeldLimits() if is_installed() else None


def installed_models(config: Config) -> dict[str, ModelFolder]:
    """Return the models on this machine that the configured runtime can load, by name; the configured one is first."""
    home = chosen_model(config)
    models = {home.name: home}
    for folder in list_models():
        # A script is not offered with a real model, nor a real model with the emulator.
        if not folder.missing and folder.card.emulated == home.card.emulated:
            models.setdefault(folder.name, folder)
    return models


def _file_bytes(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


Capability: TypeAlias = Literal["chat", "tools", "thinking", "vision", "embed", "rerank"]


@dataclass(frozen=True)
class ListedModel:
    """A model that a request may name."""

    name: str
    capabilities: tuple[Capability, ...]
    context_tokens: int
    family: str  # template of a chat model; remote for a service
    is_loaded: bool = False
    size_bytes: int = 0
    modified_unix: float = 0.0  # last change of its file, Unix time
    is_shown: bool = True  # False for the demonstration models of rkllm-mcp, unless one is in use


# A model that could not be loaded is not tried again for that long, since each attempt unloads the other one, seconds.
RETRY_AFTER_S = 30.0


@dataclass(eq=False)
class ModelSwitch:
    """The chat models of a process; ``open_models`` opens the configured one.

    ``auxiliary`` are embedding and reranking models to load as well; ``on_change`` is called with the model that
    answers from now on.
    """

    config: Config
    auxiliary: Sequence[str] = ()
    on_change: Callable[[ModelHost], None] = field(default=lambda _: None, init=False)
    _open: dict[str, tuple[ModelHost, AsyncExitStack]] = field(
        default_factory=dict[str, "tuple[ModelHost, AsyncExitStack]"], init=False
    )
    home: ModelHost = field(init=False)  # the configured model
    current: ModelHost = field(init=False)  # the model that answers, which may be unloaded
    _changed: anyio.Event = field(default_factory=anyio.Event, init=False)
    _lock: anyio.Lock = field(default_factory=anyio.Lock, init=False)
    _failures: dict[str, tuple[float, RuntimeUnusableError]] = field(
        default_factory=dict[str, "tuple[float, RuntimeUnusableError]"], init=False
    )

    async def open(self) -> None:
        """Open the configured model; ``open_models`` does this."""
        self.home = self.current = await self._open_host(self.config, self.auxiliary)

    async def close(self) -> None:
        """Close all models; ``open_models`` does this."""
        async with self._lock:
            # The configured model comes last: it holds the embedding and reranking models.
            for name in reversed(self._open):
                await self._open[name][1].aclose()
            self._open.clear()

    @property
    def is_unloaded(self) -> bool:
        """True if no chat model is loaded, until one is asked for."""
        npu = self.current.npu
        return npu is not None and npu.engine.supervisor.is_unloaded

    @property
    def is_changing(self) -> bool:
        """True while a model is being loaded in place of another."""
        return self._lock.locked()

    def list_models(self, *, with_installed: bool) -> dict[str, ListedModel]:
        """Return the loaded chat model and those that embed and rank; ``with_installed`` adds the installed ones."""
        host, section = self.current, self.config.service
        if host.npu is None:
            return {host.name: ListedModel(host.name, ("chat", "tools"), host.listing.context_tokens, "remote", True)}
        folders = installed_models(self.config) if with_installed else {host.name: host.npu.model}
        roles: dict[Capability, str | None] = {"embed": section.embedding_model, "rerank": section.ranking_model}
        embeds = section.embedding_model is None
        models = {name: _describe_folder(folder, embeds=embeds) for name, folder in folders.items()}
        for name in {host.name, self.home.name} & models.keys():
            models[name] = replace(models[name], is_shown=True)
        if host.name in models:
            tokens, is_loaded = host.listing.context_tokens, not host.npu.engine.supervisor.is_unloaded
            models[host.name] = replace(models[host.name], context_tokens=tokens, is_loaded=is_loaded)
        for configured, auxiliary in host.auxiliary_models.items():
            roles_of: tuple[Capability, ...] = tuple(role for role, name in roles.items() if name == configured)
            if auxiliary.name != host.name and roles_of:
                folder = folders.get(auxiliary.name)
                about = _describe_folder(folder) if folder else ListedModel(auxiliary.name, roles_of, 0, "embedding")
                tokens, is_ready = auxiliary.engine.context_tokens, auxiliary.engine.is_ready
                models[auxiliary.name] = replace(
                    about, capabilities=roles_of, context_tokens=tokens, is_loaded=is_ready
                )
        return models

    def find(self, name: str) -> ModelFolder:
        """Return the installed chat model of a name, or raise a ModelNotFoundError."""
        models = installed_models(self.config) if self.home.npu is not None else {}
        installed = {folder_name: folder for folder_name, folder in models.items() if folder.card.task == "chat"}
        if name not in installed:
            remedy = f"Choose one of {', '.join(installed)}." if installed else f"{self.home.name} is a remote service."
            raise ModelNotFoundError(f"There is no model {name!r} here.", remedy)
        return installed[name]

    async def load(self, name: str) -> ModelHost:
        """Load a model in place of the loaded one, and return it; nothing may use the loaded one.

        Raises:
            ModelNotFoundError: it is not installed.
            MemoryShortError: it does not fit into memory; the loaded one was not touched.
            RuntimeUnusableError: it could not be loaded; the one before is loaded again.
        """
        async with self._lock:
            if name == self.current.name and not self.is_unloaded:
                return self.current
            failed_at, failure = self._failures.get(name, (-RETRY_AFTER_S, None))
            if failure is not None and time.monotonic() < failed_at + RETRY_AFTER_S:
                raise failure
            folder = await to_thread.run_sync(self.find, name)
            config = self.config
            if folder.name != self.home.name:
                # A context window larger than its own is not asked for.
                config, limit = config.with_options(model=str(folder.folder)), config.model.context_tokens
                tokens = None if limit is None else min(limit, folder.card.context_tokens)
                section = config.model.model_copy(update={"context_tokens": tokens})
                config = config.model_copy(update={"model": section})
            await to_thread.run_sync(check_model, config)
            before, was_unloaded = self.current, self.is_unloaded
            from rkllm_base.memory import available_bytes
            from rkllm_mcp.runtime.worker import needed_bytes

            # It has to fit once the loaded one is gone.
            available = available_bytes() if config.runtime.check_memory else None
            if available is not None:
                loaded = before.board
                loaded_bytes = needed_bytes(_file_bytes(loaded.model.file), loaded.engine.context_tokens)
                available += 0 if was_unloaded else loaded_bytes
                tokens = config.model.context_tokens or folder.card.context_tokens
                needed = needed_bytes(_file_bytes(folder.file), tokens)
                if needed > available:
                    there = f"{available // 10**6} MB would be available without '{loaded.model.name}'"
                    least = f"The model '{folder.name}' needs at least {needed // 10**6} MB"
                    remedy = "End other programs, or choose a smaller model or context_tokens."
                    raise MemoryShortError(f"{least}, and {there}, which stays loaded.", remedy)
            try:
                await before.board.engine.unload()
                if name in self._open:
                    host = self._open[name][0]
                    host.board.engine.supervisor.load()
                else:
                    host = await self._open_host(config, (), self.home)
                await host.board.engine.ready()
            except BaseException as error:
                with anyio.CancelScope(shield=True):
                    failure = await self._restore(before, name, error, is_wanted=not was_unloaded)
                if failure is None:
                    raise
                self._failures[name] = (time.monotonic(), failure)
                raise failure from error
            self._use(host)
            return host

    async def unload(self) -> None:
        """Free the memory of the loaded chat model, which nothing may use; ``load`` loads one again."""
        async with self._lock:
            if self.current.npu is not None:
                await self.current.npu.engine.unload()

    async def remove(self, folder: Path, remove: Callable[[], object]) -> None:
        """Remove a model's folder with ``remove``, in a thread; a UsageError if it is loaded or configured."""
        async with self._lock:
            directory = await to_thread.run_sync(folder.resolve)
            used = [host.npu.model for host in (self.home, self.current) if host.npu is not None]
            used += [chosen_model(self.config.with_options(model=name)) for name in self.home.auxiliary_models]
            if any(model.file.resolve().is_relative_to(directory) for model in used):
                raise UsageError(f"the model in {folder} is loaded or configured; use another one first")
            unloaded = [
                name
                for name, (host, _) in self._open.items()
                if host.npu is not None and host.npu.model.file.resolve().is_relative_to(directory)
            ]
            for name in unloaded:
                await self._close(name)
            await to_thread.run_sync(remove)

    async def given_up(self) -> None:
        """Wait until no answer will come any more, and ``current.failure`` is the reason.

        When another model than the configured one is lost, the configured one is loaded in its place.
        """
        while True:
            host, changed = self.current, self._changed
            async with anyio.create_task_group() as tasks:
                for wait in (host.given_up, changed.wait):
                    tasks.start_soon(_end_with, wait, tasks.cancel_scope)
            if host is not self.current or host.failure is None:
                continue
            if host is self.home:
                return
            logger.error("model '%s' is lost, and '%s' takes its place: %s", host.name, self.home.name, host.failure)
            async with self._lock:
                await self._close(host.name)
                self.home.board.engine.supervisor.load()
                self._use(self.home)

    def _use(self, host: ModelHost) -> None:
        self.current = host
        self._changed.set()
        self._changed = anyio.Event()
        self.on_change(host)

    async def _open_host(
        self, config: Config, auxiliary: Sequence[str], open_host: ModelHost | None = None
    ) -> ModelHost:
        stack = AsyncExitStack()
        try:
            host = await stack.enter_async_context(open_model(config, auxiliary, open_host))
        except BaseException:
            await stack.aclose()
            raise
        self._open[host.name] = (host, stack)
        return host

    async def _close(self, name: str) -> None:
        _, stack = self._open.pop(name, (None, None))
        if stack is not None:
            await stack.aclose()

    async def _restore(
        self, before: ModelHost, name: str, error: BaseException, *, is_wanted: bool
    ) -> RuntimeUnusableError | None:
        """Load the former model again after ``name`` failed, and return the error; None if loading was cancelled."""
        if name != self.home.name:
            await self._close(name)
        elif before is not self.home:
            await self.home.board.engine.unload()
        if is_wanted:
            before.board.engine.supervisor.load()
        if not isinstance(error, RuntimeUnusableError):
            return None
        what = f"The model '{name}' could not be loaded: {error.message}"
        if before.name == name or not is_wanted:
            return ModelLoadError(what, error.remedy)
        try:
            await before.board.engine.ready()
        except RuntimeUnusableError as lost:
            what = f"{what} '{before.name}' could not be loaded again either: {lost.message}"
            return ModelLoadError(what, lost.remedy)
        return ModelLoadError(f"{what} '{before.name}' is loaded again.", error.remedy)


def _describe_folder(folder: ModelFolder, *, embeds: bool = False) -> ListedModel:
    """Describe an installed model; a chat model also embeds while it is loaded and no other is configured for that."""
    from rkllm_mcp.prompt.families import TEMPLATES

    template = TEMPLATES[folder.card.template]
    has: dict[Capability, object] = {
        "chat": True,
        "tools": folder.card.syntaxes or template.tool_form.syntaxes,
        "thinking": template.can_think,
        "vision": folder.encoder is not None,
        "embed": embeds,
    }
    task = folder.card.task
    can: tuple[Capability, ...] = (
        tuple(capability for capability, value in has.items() if value) if task == "chat" else (task,)
    )
    status = folder.file.stat()
    tokens, family = folder.card.context_tokens, folder.card.template
    is_shown = not (folder.card.emulated and folder.folder.parent in model_directories()[-CATALOGUES:])
    return ListedModel(folder.name, can, tokens, family, False, status.st_size, status.st_mtime, is_shown)


async def _end_with(wait: Callable[[], Awaitable[object]], scope: anyio.CancelScope) -> None:
    await wait()
    scope.cancel()


@asynccontextmanager
async def open_models(config: Config) -> AsyncGenerator[ModelSwitch, None]:
    """Open the configured model, and others when they are asked for; close all of them on exit. See ``open_model``."""
    models = ModelSwitch(config)
    try:
        await models.open()
        yield models
    finally:
        with anyio.CancelScope(shield=True):
            await models.close()
