"""What every route may use: the tenants, the queue, and whether the service is ready.

``service_of(request)`` and ``tenant_of(request)`` are how a handler gets there; the gate has put the caller's tenant
and key into ``request.state`` before. The configuration is looked up anew for each request, since it may be exchanged
while the service runs.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from starlette.requests import Request

from rkllm_mcp.completions.conversation_cache import ConversationCache
from rkllm_mcp.completions.structured_output import SchemaCheck
from rkllm_mcp.surfaces.http.errors import RETRY_AFTER_S, HTTPError, problem_of
from rkllm_mcp.surfaces.http.metrics import Metrics, Traces, answered
from rkllm_mcp.surfaces.http.open_conversations import OpenConversations
from rkllm_mcp.surfaces.http.quota import Quota, UsageTotals
from rkllm_mcp.surfaces.http.running_answers import RunningAnswers

if TYPE_CHECKING:
    from rkllm_mcp.app.environment import ModelHost
    from rkllm_mcp.app.tenants import Tenant, Tenants
    from rkllm_mcp.config.sections import Config
    from rkllm_mcp.events import Usage

MEBIBYTE = 2**20
OWNER = ""
_MOST_TESTS = 2
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@dataclass
class ServiceState:
    """A running service."""

    tenants: Tenants  # the model, all assistants and the queue before the NPU
    is_draining: bool = False  # no new answers; the service ends after the running ones
    config_file: Path | None = None  # the file that servers are added to; None if there is none
    reload: Callable[[], Awaitable[object]] | None = None  # puts the configuration as it is now in force
    # Servers that are added, one after the other, and that are tested at once, each of which may be a program.
    adding: anyio.Lock = field(default_factory=anyio.Lock)
    testing: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(_MOST_TESTS))
    started: float = field(default_factory=time.monotonic)  # start on the monotonic clock, seconds
    started_unix: float = field(default_factory=time.time)  # start as Unix time, seconds
    # conversations of clients that send the whole conversation with each request
    conversation_cache: ConversationCache = field(default_factory=ConversationCache)
    schemas: SchemaCheck = field(default_factory=SchemaCheck)  # valid schemas of response_format
    open_conversations: OpenConversations = field(default_factory=OpenConversations)  # open conversations
    answers: RunningAnswers = field(default_factory=RunningAnswers)  # running answers of conversations
    # usage of answers since the start: of each tenant, and of all for the owner
    usage: dict[str, UsageTotals] = field(default_factory=lambda: defaultdict(UsageTotals))
    quota: Quota = field(default_factory=Quota)  # daily quotas
    metrics: Metrics = field(default_factory=Metrics)  # counters for Prometheus
    traces: Traces = field(default_factory=Traces)  # spans for OpenTelemetry

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.tenants.config

    @property
    def model_host(self) -> ModelHost:
        """The model that answers; see ``Tenants.model_host``."""
        return self.tenants.model_host

    @property
    def body_limit(self) -> int:
        """The longest body of a request, bytes."""
        return self.config.service.body_mb * MEBIBYTE

    @contextmanager
    def observed(
        self, method: str, headers: Mapping[str, str]
    ) -> Generator[Callable[[str, int, float], None], None, None]:
        """Trace and count a request; the yielded function takes route, status and seconds."""
        # A client may call its method anything, and every name that is counted is kept.
        method = method if method in _METHODS else "_OTHER"
        with self.traces.request(method, headers) as span:

            def told(route: str, status: int, seconds: float) -> None:
                self.metrics.requested(method, route, status, seconds)
                answered(span, method, route, status)

            yield told

    def count(self, tenant: str, usage: Usage) -> None:
        """A round of a tenant's answer has ended."""
        for name in {OWNER, tenant}:
            self.usage[name].take(usage)

    @property
    def uptime_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def storage_problem(self) -> str:
        """Reason why nothing is stored at present, of the owner or a tenant; empty if all is well."""
        failing = (tenant.app.store.database.failing for tenant in self.tenants.by_name.values())
        return next((error.cause for error in failing if error is not None), "")

    @property
    def is_ready(self) -> bool:
        """True if the service takes answers."""
        return not self.is_draining and self.tenants.is_ready

    def drain(self) -> None:
        """Take no more answers; waiting requests are refused and may go to another board."""
        self.is_draining = True
        self.tenants.scheduler.close()

    def stop_answers(self) -> None:
        """Stop the running answers; their streams end with ``cancelled``."""
        for tenant in self.tenants.by_name.values():
            tenant.app.close()

    def check_alive(self) -> None:
        """Refuse with 503 and the reason when no answer will come any more from this process."""
        if (failure := self.tenants.failure) is not None:
            raise problem_of(failure)

    def check_ready(self, *, may_load: bool = False) -> None:
        """Refuse an answer that cannot begin now, with 503; with ``may_load`` a loading model is no reason."""
        if self.is_draining:
            raise stopping()
        self.check_alive()
        if not (may_load or self.tenants.is_ready):
            raise HTTPError(503, "the model is being loaded; ask again in a moment", retry_after_s=RETRY_AFTER_S)


def stopping() -> HTTPError:
    """Return the error for requests during shutdown."""
    return HTTPError(503, "the service is being stopped; ask again in a moment", retry_after_s=RETRY_AFTER_S)


def service_of(request: Request) -> ServiceState:
    """The service that a request came to."""
    service: ServiceState = request.app.state.service
    return service


def tenant_of(request: Request) -> Tenant:
    """Return the caller's tenant with its assistant and the rights of the key; see ``Tenants.tenant``."""
    return replace(service_of(request).tenants.tenant(request.state.tenant), rights=request.state.rights)


def chosen_model(request: Request) -> str:
    """Return the model that a request chose with ``surfaces.http.models.choose_model``; empty for the loaded one."""
    return getattr(request.state, "model", "")


def chosen_keep_alive(request: Request) -> float | None:
    """Return how long the chosen model stays after the answer, seconds; None if the request does not say."""
    return getattr(request.state, "keep_alive_s", None)
