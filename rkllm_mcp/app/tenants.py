"""One assistant for the owner and one for each tenant, over one model that stays loaded.

    configuration ─▶ open_house ─▶ House ─▶ Tenant: an ``App`` with its own servers, tools, instructions and memory

Rules: a tenant's assistant is given the tenant's servers and nothing else, so what belongs to others cannot be reached
from it. A new configuration replaces what it changes: assistants that are as before keep their servers, and the model
stays loaded unless it is another one. It knows no keys and no protocol; who asks is the surface's business.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import anyio
from anyio.abc import TaskGroup, TaskStatus

from rkllm_mcp.app.assistant import Assistant, open_app
from rkllm_mcp.app.root import ModelHost, StatusSink, check_model, open_model
from rkllm_mcp.config.sections import Config, TenantSection
from rkllm_mcp.errors import RkllmMcpError, UsageError

logger = logging.getLogger(__name__)

OWNER = ""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Tenant:
    """Somebody who may ask.

    Args:
        name: empty for the owner.
        app: the assistant.
        section: what the configuration says about the tenant; None for the owner.
    """

    name: str
    app: Assistant
    section: TenantSection | None


@dataclass
class _Kept(Generic[_T]):
    """A context that a task of its own holds open until it is told to stop."""

    value: _T
    config: Config
    stop: anyio.Event
    gone: anyio.Event

    async def close(self) -> None:
        """End it and wait until it has ended; every part of it has a limit of its own."""
        self.stop.set()
        with anyio.CancelScope(shield=True):
            await self.gone.wait()


async def _opened(tasks: TaskGroup, context: AbstractAsyncContextManager[_T], config: Config) -> _Kept[_T]:
    stop, gone = anyio.Event(), anyio.Event()

    async def hold(*, task_status: TaskStatus[_T]) -> None:
        try:
            async with context as value:
                task_status.started(value)
                await stop.wait()
        finally:
            gone.set()

    return _Kept(await tasks.start(hold), config, stop, gone)


class Tenants:
    """Everybody's assistants; ``open_house`` makes it.

    Args:
        config: the configuration in force.
        tasks: where the model and the assistants live.
        status: is told, one line each, what is connected and what is not, and for whom where it is a tenant.
    """

    def __init__(self, config: Config, tasks: TaskGroup, status: StatusSink | None) -> None:
        self.config = config
        self._tasks = tasks
        self._status = status
        self._core: _Kept[ModelHost] | None = None
        self._apps: dict[str, _Kept[Assistant]] = {}
        self._tenants: Mapping[str, Tenant] = {}
        self._changing = anyio.Lock()

    @property
    def core(self) -> ModelHost:
        """The model that answers.

        Raises:
            UsageError: it is being exchanged.
        """
        if self._core is None:
            raise UsageError("the model is being exchanged; ask again in a moment")
        return self._core.value

    @property
    def is_open(self) -> bool:
        """There is a model, loaded or being loaded; there is none while it is being exchanged."""
        return self._core is not None

    @property
    def is_ready(self) -> bool:
        """The model is loaded, and somebody is there to ask; nobody is while it is being exchanged."""
        return bool(self._tenants) and self._core is not None and self._core.value.is_ready

    @property
    def failure(self) -> RkllmMcpError | None:
        """The reason why no answer will come any more from this process; None while the model is being exchanged."""
        return None if self._core is None else self._core.value.failure

    @property
    def tenants(self) -> Mapping[str, Tenant]:
        """Everybody by name, the owner under the empty one."""
        return self._tenants

    def tenant(self, name: str) -> Tenant:
        """Somebody by name.

        Raises:
            UsageError: there is nobody of that name (any more), or the model is being exchanged.
        """
        tenant = self._tenants.get(name)
        if tenant is None:
            what = "the model is being exchanged" if self._core is None else f"there is no tenant {name!r} (any more)"
            raise UsageError(f"{what}; ask again in a moment")
        return tenant

    async def ready(self) -> None:
        """Wait until the model is loaded; servers may still be connecting.

        Raises:
            RuntimeUnusableError: it could not be loaded.
        """
        await self.core.ready()

    async def reload(self, config: Config, *, drain_s: float = 30.0) -> bool:
        """Put another configuration in force; what it does not change goes on.

        Answers under way end first, as long as that takes no longer than ``drain_s``.

        Args:
            config: the new configuration.
            drain_s: the longest that answers of assistants which are replaced may still take, seconds.

        Returns:
            Whether the model stayed loaded.

        Raises:
            RkllmMcpError: the new model cannot be used; everything goes on as it was.
        """
        async with self._changing:
            keeps_core = self._core is not None and _core_part(self.config) == _core_part(config)
            if not keeps_core:
                check_model(config)
                await self._close(drain_s)
                self._core = await _opened(self._tasks, open_model(config, _beside(config)), config)
            self.config = config
            await self._settle(drain_s)
            return keeps_core

    async def open(self) -> None:
        """Start everything; ``open_house`` does this."""
        self._core = await _opened(self._tasks, open_model(self.config, _beside(self.config)), self.config)
        await self._settle(0)

    async def close(self) -> None:
        """Stop everything; ``open_house`` does this."""
        with anyio.CancelScope(shield=True):
            await self._close(0)

    async def _settle(self, drain_s: float) -> None:
        """Open the assistants that the configuration wants, and close those that it does not want any more."""
        sections = {OWNER: None, **{section.name: section for section in self.config.tenants}}
        replaced: list[_Kept[Assistant]] = []
        for name, section in sections.items():
            config = self.config.for_tenant(section)
            kept = self._apps.get(name)
            if kept is not None and kept.config == config:
                continue
            # The owner's list of tools is the one that is prefilled in advance; the cache holds one.
            status = _of_tenant(name, self._status) if self._status and name != OWNER else self._status
            app = open_app(config, status=status, one_shot=name != OWNER, core=self.core, tenant=name)
            self._apps[name] = await _opened(self._tasks, app, config)
            replaced += [kept] if kept is not None else []
        replaced += [self._apps.pop(name) for name in set(self._apps) - set(sections)]
        self._tenants = {name: Tenant(name, self._apps[name].value, section) for name, section in sections.items()}
        for kept in replaced:
            self._tasks.start_soon(_drained, kept, drain_s)

    async def _close(self, drain_s: float) -> None:
        apps, self._apps, self._tenants = list(self._apps.values()), {}, {}
        async with anyio.create_task_group() as closing:
            for kept in apps:
                closing.start_soon(_drained, kept, drain_s)
        if self._core is not None:
            core, self._core = self._core, None
            await core.close()


@asynccontextmanager
async def open_tenants(config: Config, *, status: StatusSink | None = None) -> AsyncGenerator[Tenants, None]:
    """Load the model once and open an assistant for everybody; on leaving all of it is gone.

    Args:
        config: the configuration.
        status: is told, one line each, what is connected and what is not.

    Raises:
        ModelNotFoundError: there is no such model, or it lacks a file.
    """
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        house = Tenants(config, tasks, status)
        try:
            await house.open()
            yield house
        except Exception as error:  # noqa: BLE001  (raised again below: the task group would wrap it in a group)
            failure = error
        finally:
            await house.close()
    if failure is not None:
        raise failure


def _of_tenant(name: str, status: StatusSink) -> StatusSink:
    """Tell lines with the tenant they are about: everybody has servers of their own, under the same names."""
    return lambda text: status(f"Tenant '{name}': {text}")


def _core_part(config: Config) -> tuple[object, ...]:
    """What of a configuration decides which model is loaded, and how."""
    agent = config.agent
    model = (config.runtime, config.model, config.provider, agent.embedding_model, agent.tool_listing)
    return (*model, *_beside(config))


def _beside(config: Config) -> tuple[str, ...]:
    """The models that embed and rank for the service."""
    names = (config.service.embedding_model, config.service.ranking_model)
    return tuple(name for name in names if name is not None)


async def _drained(kept: _Kept[Assistant], drain_s: float) -> None:
    """Close an assistant, after its answers if they end in time."""
    with anyio.move_on_after(drain_s):
        await kept.value.idle()
    await kept.close()
