"""One assistant for the owner and one for each tenant, over one loaded model.

    configuration ─▶ open_tenants ─▶ Tenants ─▶ Tenant: an ``App`` with its own servers, tools and store

A tenant's assistant has only the tenant's servers, so it cannot reach others. ``reload`` replaces only the assistants
that a new configuration changes, and the model only if it is another one. A request may have another model loaded
(``[model] switching``), which is a job of the queue before the NPU. Keys and protocols belong to the surfaces.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial

import anyio
from anyio.abc import TaskGroup, TaskStatus

from rkllm_mcp.app.assistant import App
from rkllm_mcp.app.environment import ModelHost
from rkllm_mcp.app.models import ListedModel, ModelSwitch, check_model
from rkllm_mcp.app.root import StatusSink, open_app
from rkllm_mcp.app.servers import Login
from rkllm_mcp.config.section import Right, keep_alive_s
from rkllm_mcp.config.sections import RIGHTS, Config, TenantSection
from rkllm_mcp.errors import ModelExchangeError, RkllmMcpError, UsageError
from rkllm_mcp.models.downloads import Downloads
from rkllm_mcp.runtime.scheduler import Scheduler
from rkllm_mcp.tasks import open_task_group

logger = logging.getLogger(__name__)

OWNER = ""


@dataclass(frozen=True)
class Tenant:
    """The owner or a tenant, with the assistant."""

    name: str  # empty for the owner
    app: App  # the assistant
    section: TenantSection | None  # configuration of the tenant; None for the owner
    rights: tuple[Right, ...] = RIGHTS  # of the key of a request


@dataclass(eq=False)
class _OpenApp:
    """An assistant that its own task holds open until it is closed."""

    config: Config
    app: App = field(init=False)
    stop: anyio.Event = field(default_factory=anyio.Event)
    gone: anyio.Event = field(default_factory=anyio.Event)

    async def hold(self, context: AbstractAsyncContextManager[App], *, task_status: TaskStatus[None]) -> None:
        """Hold the assistant open, from ``started`` until ``stop``."""
        try:
            async with context as self.app:
                task_status.started()
                await self.stop.wait()
        finally:
            self.gone.set()


class Tenants:
    """All assistants; created by ``open_tenants``. Model and assistants run in ``tasks``."""

    def __init__(self, config: Config, tasks: TaskGroup, status: StatusSink | None) -> None:
        self.config = config
        self.tasks = tasks  # work that goes on apart from its caller, until the service ends; it must not raise
        self._status = status
        self._models: ModelSwitch | None = None
        self._apps: dict[str, _OpenApp] = {}
        self.by_name: Mapping[str, Tenant] = {}  # the owner's name is empty
        self._changing = anyio.Lock()
        # The queue before the NPU; it outlives models and assistants, so a waiting request keeps its place.
        self.scheduler = Scheduler(config.service.parallel, config.service.queue)
        # Requests that use the loaded model, and when it is unloaded after the last one.
        self._users = 0
        self._keep_alive_s = math.inf
        self._expiry: asyncio.TimerHandle | None = None
        self._exchange = anyio.CancelScope()
        # The latest login of the owner to each server.
        self.logins: dict[str, Login] = {}
        self.downloads = Downloads()
        # Set when an assistant was opened or closed; then there is another one.
        self.next_change = anyio.Event()

    @property
    def models(self) -> ModelSwitch:
        """The chat models, of which one is loaded; a ModelExchangeError while they are being replaced."""
        if self._models is None:
            raise ModelExchangeError
        return self._models

    @property
    def model_host(self) -> ModelHost:
        """The model that answers, which may be unloaded until the next request; see ``models``."""
        return self.models.current

    @property
    def is_open(self) -> bool:
        """A model is loaded or being loaded; False while another configuration's takes its place."""
        return self._models is not None

    @property
    def is_changing(self) -> bool:
        """True while a model is being loaded in place of another."""
        return self._models is None or self._models.is_changing

    @property
    def is_ready(self) -> bool:
        """Requests are taken: assistants exist, and the model is loaded, or will be with the next request."""
        models = self._models
        if models is None or not self.by_name:
            return False
        return models.is_changing or models.is_unloaded or models.current.is_ready

    @property
    def failure(self) -> RkllmMcpError | None:
        """The reason why no answer will come any more from this process; None while the model is being exchanged."""
        return None if self._models is None or self._models.is_changing else self._models.current.failure

    @property
    def unloads_in_s(self) -> float:
        """Seconds until the loaded model is unloaded if no request comes; infinite if it stays."""
        if self._expiry is None:
            return self._keep_alive_s
        return max(0.0, self._expiry.when() - asyncio.get_running_loop().time())

    def unload(self, model: str, tenant: str) -> None:
        """Unload a model, by default the loaded one, when no request needs it, if the tenant may decide that."""
        if self.may_switch(tenant) and model in {"", self.model_host.name}:
            with self.using(0.0):
                pass

    def tenant(self, name: str) -> Tenant:
        """Return the tenant of that name; a ModelExchangeError if none exists (any more)."""
        if name in self.by_name:
            return self.by_name[name]
        if self._models is None:
            raise ModelExchangeError
        raise ModelExchangeError(f"there is no tenant {name!r} (any more); ask again in a moment")

    def log_in(self, server: str) -> Login:
        """Begin a login of the owner to a server, in place of one that is not over."""
        if (before := self.logins.get(server)) is not None:
            before.scope.cancel()
        login = self.logins[server] = Login(server)
        owner = self.tenant(OWNER).app
        self.tasks.start_soon(login.run, owner.config, owner.toolbox)
        return login

    def may_switch(self, tenant: str) -> bool:
        """Return True if a request of this tenant may have another model loaded."""
        switching = self.config.model.switching
        return switching == "request" or (switching == "owner" and tenant == OWNER)

    def list_models(self, tenant: str) -> dict[str, ListedModel]:
        """Return the models that a tenant's requests may name, by name; reads files. See ``models`` for the error."""
        return self.models.list_models(with_installed=self.may_switch(tenant))

    @contextmanager
    def using(self, keep_alive: float | None = None) -> Generator[None, None, None]:
        """Keep the loaded model inside the block, and for ``keep_alive`` seconds after it; None changes nothing."""
        self._users += 1
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if keep_alive is not None:
            self._keep_alive_s = keep_alive
        try:
            yield
        finally:
            self._users -= 1
            if not self._users and math.isfinite(self._keep_alive_s) and self._models is not None:
                loop = asyncio.get_running_loop()
                self._expiry = loop.call_later(self._keep_alive_s, self._expire)

    def _expire(self) -> None:
        """Unload the model, unless a request for it waits."""
        self._expiry = None
        if self._models is not None and self._models.current.npu is not None and self.scheduler.hold():
            self.tasks.start_soon(self._unload, self._models)

    async def _unload(self, models: ModelSwitch) -> None:
        with anyio.CancelScope() as self._exchange:
            await models.unload()
            if self._status is not None:
                self._status(f"[NPU: Model '{models.current.name}' is unloaded until the next question]")
            self.scheduler.on_load("")

    async def _load(self, name: str) -> None:
        """Load a model for the requests that wait for it; the queue has let no other begin."""
        models, failure = self._models, None
        if models is None:
            return
        with anyio.CancelScope() as self._exchange:
            try:
                await models.load(name)
            except RkllmMcpError as error:
                failure = error
            except Exception as error:  # a defect costs these requests, not the service
                logger.exception("loading %s failed", name)
                failure = UsageError(f"the model {name!r} could not be loaded: {error!r}")
            if failure is None:
                self._keep_alive_s = keep_alive_s(self.config.model.keep_alive)
            line = f"Model '{name}' is loaded" if failure is None else str(failure)
            if self._status is not None:
                self._status(f"[NPU: {line}]")
            self.scheduler.on_load("" if models.is_unloaded else models.current.name, failure)

    def _use(self, model_host: ModelHost) -> None:
        for name, opened in self._apps.items():
            # The cache holds one list of tools, which is the owner's; as at the start.
            opened.app.use(model_host, warms=name == OWNER)

    async def reload(self, config: Config, *, drain_s: float = 30.0) -> bool:
        """Apply another configuration; unchanged parts continue to run.

        Running answers of replaced assistants end first, for at most ``drain_s`` seconds. Returns True if the model
        stayed loaded.

        Raises:
            RkllmMcpError: the new model is not usable; the previous configuration stays in force.
        """
        async with self._changing:
            keeps_model = self._models is not None and _model_part(self.config) == _model_part(config)
            if self._models is not None and keeps_model:
                self._models.config = config
                await self._open_wanted(config, drain_s)
            else:
                check_model(config)
                await self.close(drain_s)
                await self.open(config)
            return keeps_model

    async def open(self, config: Config) -> None:
        """Load the model of a configuration and open its assistants; ``open_tenants`` and ``reload`` do this."""
        models = ModelSwitch(config, _auxiliary(config))
        await models.open()
        models.on_change = self._use
        self._models = models
        await self._open_wanted(config, 0)
        is_local = self.model_host.npu is not None
        self.scheduler.use_models(
            self.model_host.name, partial(self.tasks.start_soon, self._load) if is_local else None
        )
        with self.using():
            pass  # Without any request it is unloaded after its time, too.

    async def _open_wanted(self, config: Config, drain_s: float) -> None:
        """Take over a configuration: open the assistants that it wants, and close those that it wants no more."""
        self.config = config
        self._keep_alive_s = keep_alive_s(config.model.keep_alive)
        self.scheduler.resize(config.service.parallel, config.service.queue)
        sections = {OWNER: None, **{section.name: section for section in config.tenants}}
        replaced: list[_OpenApp] = []
        for name, section in sections.items():
            tenant_config = config.for_tenant(section)
            opened = self._apps.get(name)
            if opened is not None and opened.config == tenant_config:
                continue
            # The owner's list of tools is the one that is prefilled in advance; the cache holds one.
            status = _of_tenant(name, self._status) if self._status and name != OWNER else self._status
            app = open_app(
                tenant_config, status=status, one_shot=name != OWNER, model_host=self.model_host, tenant=name
            )
            new = _OpenApp(tenant_config)
            await self.tasks.start(new.hold, app)
            self._apps[name] = new
            replaced += [opened] if opened is not None else []
        replaced += [self._apps.pop(name) for name in set(self._apps) - set(sections)]
        self.by_name = {name: Tenant(name, self._apps[name].app, section) for name, section in sections.items()}
        self.next_change.set()
        self.next_change = anyio.Event()
        for opened in replaced:
            self.tasks.start_soon(_close_drained, opened, drain_s)

    async def close(self, drain_s: float = 0.0) -> None:
        """Stop everything, after running answers if they end in time; ``open_tenants`` does this shielded."""
        for login in self.logins.values():
            login.scope.cancel()
        for download in self.downloads.by_name.values():
            download.scope.cancel()
        apps, self._apps, self.by_name = list(self._apps.values()), {}, {}
        self.next_change.set()
        self.next_change = anyio.Event()
        async with anyio.create_task_group() as closing:
            for opened in apps:
                closing.start_soon(_close_drained, opened, drain_s)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self._models is not None:
            models, self._models = self._models, None
            self._exchange.cancel()
            await models.close()


@asynccontextmanager
async def open_tenants(config: Config, *, status: StatusSink | None = None) -> AsyncGenerator[Tenants, None]:
    """Load the model once and open all assistants; close everything on exit. See ``models.open_model`` for errors."""
    async with open_task_group() as tasks:
        tenants = Tenants(config, tasks, status)
        try:
            await tenants.open(config)
            yield tenants
        finally:
            with anyio.CancelScope(shield=True):
                await tenants.close()


def _of_tenant(name: str, status: StatusSink) -> StatusSink:
    """Prefix status lines with the tenant; server names repeat between tenants."""
    return lambda text: status(f"Tenant '{name}': {text}")


def _model_part(config: Config) -> tuple[object, ...]:
    """Return the part of a configuration that determines the loaded model."""
    agent = config.agent
    # How long it stays and who may exchange it changes nothing of it.
    model_section = config.model.model_copy(update={"switching": "off", "keep_alive": -1})
    model = (config.runtime, model_section, config.provider, agent.embedding_model, agent.tool_listing)
    return (*model, *_auxiliary(config))


def _auxiliary(config: Config) -> tuple[str, ...]:
    names = (config.service.embedding_model, config.service.ranking_model)
    return tuple(name for name in names if name is not None)


async def _close_drained(opened: _OpenApp, drain_s: float) -> None:
    """Close an assistant, after its answers if they end in time."""
    with anyio.move_on_after(drain_s):
        await opened.app.answers.idle()
    opened.stop.set()
    with anyio.CancelScope(shield=True):
        # Bounded: every part of it has its own limit.
        await opened.gone.wait()
