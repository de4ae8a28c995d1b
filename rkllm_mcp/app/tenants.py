"""One assistant for the owner and one for each tenant, over one loaded model.

    configuration ─▶ open_tenants ─▶ Tenants ─▶ Tenant: an ``Assistant`` with its own servers, tools and store

A tenant's assistant has only the tenant's servers, so it cannot reach others. ``reload`` replaces only the assistants
that a new configuration changes, and the model only if it is another one. Keys and protocols belong to the surfaces.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup, TaskStatus

from rkllm_mcp.app.assistant import Assistant
from rkllm_mcp.app.environment import ModelHost
from rkllm_mcp.app.root import StatusSink, check_model, open_app, open_model
from rkllm_mcp.config.section import Right
from rkllm_mcp.config.sections import RIGHTS, Config, TenantSection
from rkllm_mcp.errors import RkllmMcpError, UsageError
from rkllm_mcp.runtime.scheduler import Scheduler

logger = logging.getLogger(__name__)

OWNER = ""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Tenant:
    """The owner or a tenant, with the assistant."""

    name: str  # empty for the owner
    app: Assistant  # the assistant
    section: TenantSection | None  # configuration of the tenant; None for the owner
    rights: tuple[Right, ...] = RIGHTS  # of the key of a request


@dataclass
class _OpenContext(Generic[_T]):
    """A context that its own task holds open until it is closed."""

    value: _T
    config: Config
    stop: anyio.Event
    gone: anyio.Event

    async def close(self) -> None:
        """End it and wait until it has ended; every part of it has a limit of its own."""
        self.stop.set()
        with anyio.CancelScope(shield=True):
            await self.gone.wait()


async def _open_context(tasks: TaskGroup, context: AbstractAsyncContextManager[_T], config: Config) -> _OpenContext[_T]:
    stop, gone = anyio.Event(), anyio.Event()

    async def hold(*, task_status: TaskStatus[_T]) -> None:
        try:
            async with context as value:
                task_status.started(value)
                await stop.wait()
        finally:
            gone.set()

    return _OpenContext(await tasks.start(hold), config, stop, gone)


class Tenants:
    """All assistants; created by ``open_tenants``. Model and assistants run in ``tasks``."""

    def __init__(self, config: Config, tasks: TaskGroup, status: StatusSink | None) -> None:
        self.config = config
        self._tasks = tasks
        self._status = status
        self._model_host: _OpenContext[ModelHost] | None = None
        self._apps: dict[str, _OpenContext[Assistant]] = {}
        self._tenants: Mapping[str, Tenant] = {}
        self._changing = anyio.Lock()
        # The queue before the NPU; it outlives models and assistants, so a waiting request keeps its place.
        self.scheduler = Scheduler(config.service.parallel, config.service.queue)

    @property
    def model_host(self) -> ModelHost:
        """The model that answers.

        Raises:
            UsageError: it is being exchanged.
        """
        if self._model_host is None:
            raise UsageError("the model is being exchanged; ask again in a moment")
        return self._model_host.value

    @property
    def is_open(self) -> bool:
        """A model is loaded or being loaded; False while it is exchanged."""
        return self._model_host is not None

    @property
    def is_ready(self) -> bool:
        """The model is loaded and assistants exist; False while the model is exchanged."""
        return bool(self._tenants) and self._model_host is not None and self._model_host.value.is_ready

    @property
    def failure(self) -> RkllmMcpError | None:
        """The reason why no answer will come any more from this process; None while the model is being exchanged."""
        return None if self._model_host is None else self._model_host.value.failure

    @property
    def by_name(self) -> Mapping[str, Tenant]:
        """All tenants by name; the owner's name is empty."""
        return self._tenants

    def tenant(self, name: str) -> Tenant:
        """Return the tenant of that name.

        Raises:
            UsageError: no tenant has this name (any more), or the model is being exchanged.
        """
        tenant = self._tenants.get(name)
        if tenant is None:
            what = (
                "the model is being exchanged"
                if self._model_host is None
                else f"there is no tenant {name!r} (any more)"
            )
            raise UsageError(f"{what}; ask again in a moment")
        return tenant

    def start_soon(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run ``work`` apart from its caller, until the service ends; it must not raise."""
        self._tasks.start_soon(work)

    async def ready(self) -> None:
        """Wait until the model is loaded; servers may still be connecting.

        Raises:
            RuntimeUnusableError: it could not be loaded.
        """
        await self.model_host.ready()

    async def reload(self, config: Config, *, drain_s: float = 30.0) -> bool:
        """Apply another configuration; unchanged parts continue to run.

        Running answers of replaced assistants end first, for at most ``drain_s`` seconds. Returns True if the model
        stayed loaded.

        Raises:
            RkllmMcpError: the new model is not usable; the previous configuration stays in force.
        """
        async with self._changing:
            keeps_model = self._model_host is not None and _model_part(self.config) == _model_part(config)
            if not keeps_model:
                check_model(config)
                await self._close(drain_s)
                self._model_host = await _open_context(self._tasks, open_model(config, _auxiliary(config)), config)
            self.config = config
            self.scheduler.resize(config.service.parallel, config.service.queue)
            await self._open_wanted(drain_s)
            return keeps_model

    async def open(self) -> None:
        """Start everything; ``open_tenants`` does this."""
        config = self.config
        self._model_host = await _open_context(self._tasks, open_model(config, _auxiliary(config)), config)
        await self._open_wanted(0)

    async def close(self) -> None:
        """Stop everything; ``open_tenants`` does this."""
        with anyio.CancelScope(shield=True):
            await self._close(0)

    async def _open_wanted(self, drain_s: float) -> None:
        """Open the assistants that the configuration wants, and close those that it does not want any more."""
        sections = {OWNER: None, **{section.name: section for section in self.config.tenants}}
        replaced: list[_OpenContext[Assistant]] = []
        for name, section in sections.items():
            config = self.config.for_tenant(section)
            opened = self._apps.get(name)
            if opened is not None and opened.config == config:
                continue
            # The owner's list of tools is the one that is prefilled in advance; the cache holds one.
            status = _of_tenant(name, self._status) if self._status and name != OWNER else self._status
            app = open_app(config, status=status, one_shot=name != OWNER, model_host=self.model_host, tenant=name)
            self._apps[name] = await _open_context(self._tasks, app, config)
            replaced += [opened] if opened is not None else []
        replaced += [self._apps.pop(name) for name in set(self._apps) - set(sections)]
        self._tenants = {name: Tenant(name, self._apps[name].value, section) for name, section in sections.items()}
        for opened in replaced:
            self._tasks.start_soon(_close_drained, opened, drain_s)

    async def _close(self, drain_s: float) -> None:
        apps, self._apps, self._tenants = list(self._apps.values()), {}, {}
        async with anyio.create_task_group() as closing:
            for opened in apps:
                closing.start_soon(_close_drained, opened, drain_s)
        if self._model_host is not None:
            model_host, self._model_host = self._model_host, None
            await model_host.close()


@asynccontextmanager
async def open_tenants(config: Config, *, status: StatusSink | None = None) -> AsyncGenerator[Tenants, None]:
    """Load the model once and open all assistants; close everything on exit.

    Raises:
        ModelNotFoundError: the model does not exist, or a file is missing.
    """
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        tenants = Tenants(config, tasks, status)
        try:
            await tenants.open()
            yield tenants
        except Exception as error:  # noqa: BLE001  (raised again below: the task group would wrap it in a group)
            failure = error
        finally:
            await tenants.close()
    if failure is not None:
        raise failure


def _of_tenant(name: str, status: StatusSink) -> StatusSink:
    """Prefix status lines with the tenant; server names repeat between tenants."""
    return lambda text: status(f"Tenant '{name}': {text}")


def _model_part(config: Config) -> tuple[object, ...]:
    """Return the part of a configuration that determines the loaded model."""
    agent = config.agent
    model = (config.runtime, config.model, config.provider, agent.embedding_model, agent.tool_listing)
    return (*model, *_auxiliary(config))


def _auxiliary(config: Config) -> tuple[str, ...]:
    """The models that embed and rank for the service."""
    names = (config.service.embedding_model, config.service.ranking_model)
    return tuple(name for name in names if name is not None)


async def _close_drained(opened: _OpenContext[Assistant], drain_s: float) -> None:
    """Close an assistant, after its answers if they end in time."""
    with anyio.move_on_after(drain_s):
        await opened.value.idle()
    await opened.close()
