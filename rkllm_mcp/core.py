"""The model that answers, shared by every assistant of one process.

    configuration ─▶ open_core ─▶ Core (NPU: engine, form, prompts; or a remote service) ─▶ one ``App`` for each tenant
                                    └─ a second service that takes over by rule, where the owner names one

A board has one NPU and loads one model; who may use it with which tools is the business of the assistants over it. It
knows how a model is opened, and neither servers nor conversations.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import anyio

from rkllm_mcp.assembly import Listing, chosen_model, engine_settings, listing, model_form
from rkllm_mcp.config import Config
from rkllm_mcp.config.models import ModelFolder
from rkllm_mcp.errors import RkllmMcpError, RuntimeUnusableError, UsageError
from rkllm_mcp.providers import LastingModel
from rkllm_mcp.providers.fallback import FallbackModel
from rkllm_mcp.providers.reading import Readings
from rkllm_mcp.providers.remote import check_sdk, open_remote
from rkllm_mcp.providers.remote_model import RemoteModel
from rkllm_mcp.providers.rkllm import ModelForm, RkllmModel
from rkllm_mcp.providers.service import ASSUMED_CONTEXT_TOKENS, Service, estimated_tool_tokens, services_of
from rkllm_mcp.runtime.engine import Engine, open_engine
from rkllm_mcp.specialists import Specialist, open_specialists

logger = logging.getLogger(__name__)

StatusSink = Callable[[str], None]


@dataclass(frozen=True)
class Npu:
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
    readings: Readings


@dataclass(frozen=True)
class Core:
    """The model that answers; ``open_core`` makes one.

    Args:
        name: the model's name.
        chat_model: who answers.
        listing: how it takes a list of tools.
        npu: the board's own model; None where a remote service answers alone.
        embedder: a model that helps to choose tools; None where there is none.
        description: who that is, in a few words.
        has_stand_in: another model answers where the board's own cannot be loaded.
        remote: the service that answers; None where the NPU does.
        specialists: the models beside it that embed or rank, by the name or path that the configuration gives them.
    """

    name: str
    chat_model: LastingModel
    listing: Listing
    npu: Npu | None
    embedder: Specialist | None = None
    description: str = ""
    has_stand_in: bool = False
    remote: RemoteModel | None = None
    specialists: Mapping[str, Specialist] = field(default_factory=dict[str, Specialist])

    @property
    def board(self) -> Npu:
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

    @property
    def syntaxes(self) -> tuple[str, ...]:
        """The tool-call syntaxes that the model may write; none where calls are not read out of text."""
        return self.npu.form.syntaxes if self.npu else ()

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


def check_core(config: Config) -> None:
    """Look whether the model that ``config`` names can be opened; nothing is started.

    Raises:
        RuntimeUnusableError: there is no such model or runtime, or a file is missing.
    """
    services = services_of(config)
    for service in services.values():
        check_sdk(service)
    if "model" not in services:
        model = chosen_model(config)
        engine_settings(config, model)
        model_form(config, model)


@asynccontextmanager
async def open_core(config: Config, beside: Sequence[str] = ()) -> AsyncGenerator[Core, None]:
    """Load the model that ``config`` names, in the background, or make ready to ask a service; on leaving it is gone.

    Args:
        config: the configuration.
        beside: models that embed or rank, name or path, to be loaded beside it; they have no place beside a service.

    Raises:
        ModelNotFoundError: there is no such model, or it lacks a file.
        RuntimeUnusableError: the package that speaks to the service is not installed.
    """
    services, fallback = services_of(config), config.provider.fallback
    async with AsyncExitStack() as stack:
        opened = _open_service(services["model"]) if "model" in services else _open_on_npu(config, beside)
        core = await stack.enter_async_context(opened)
        if "fallback" in services and fallback is not None:
            second = await stack.enter_async_context(open_remote(services["fallback"]))
            core = replace(
                core,
                chat_model=FallbackModel(core.chat_model, second, fallback.when),
                description=f"{core.description}; '{second.name}' at {second.service.host} takes over by rule",
                has_stand_in="failed" in fallback.when,
            )
        yield core


@asynccontextmanager
async def _open_service(service: Service) -> AsyncGenerator[Core, None]:
    """A core without an NPU: nothing is loaded here."""
    async with open_remote(service) as model:
        shown = Listing(service.context_tokens or ASSUMED_CONTEXT_TOKENS, estimated_tool_tokens)
        description = f"a service with {'OpenAI' if service.kind == 'openai' else 'Anthropic'}'s interface at "
        yield Core(model.name, model, shown, npu=None, description=description + service.host, remote=model)


@asynccontextmanager
async def _open_on_npu(config: Config, beside: Sequence[str]) -> AsyncGenerator[Core, None]:
    """A core on the board's own model."""
    model = chosen_model(config)
    settings = engine_settings(config, model)
    named = config.agent.embedding_model if config.active_servers else None
    names = [*([named] if named else []), *beside]
    # The engine comes first: its process loads the model while this one imports what servers need.
    async with open_engine(settings) as engine, open_specialists(config, names) as specialists:
        form = model_form(config, model)
        readings = Readings(settings.profile.prefill_s if settings.profile else None)
        chat_model = RkllmModel(engine, form, readings)
        npu = Npu(model, engine, form, chat_model, readings)
        description = "emulated: answers come from a script" if model.card.emulated else "on the NPU"
        yield Core(
            model.name,
            chat_model,
            listing(config, model, form),
            npu,
            specialists.get(named or ""),
            description,
            specialists=specialists,
        )
