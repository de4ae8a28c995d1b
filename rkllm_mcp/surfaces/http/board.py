"""State of the service and the board, and the caller's identity, for health checks, metrics and the page."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio.to_thread
from prometheus_client import CollectorRegistry, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from rkllm_mcp import __version__
from rkllm_mcp.app.gauges import Gauges, read_gauges
from rkllm_mcp.app.settings import store_limits
from rkllm_mcp.config.section import DocumentedModel
from rkllm_mcp.errors import StoreError
from rkllm_mcp.surfaces.boards import duration
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.errors import RETRY_AFTER_S, HTTPError, problem_of
from rkllm_mcp.surfaces.http.openai import count_tokens
from rkllm_mcp.surfaces.http.owner import may_delete
from rkllm_mcp.surfaces.http.route import Route, RouteResponse, shown
from rkllm_mcp.surfaces.http.state import (
    MEBIBYTE,
    OWNER,
    ServiceState,
    id_prefix,
    service_of,
    tenant_of,
)

# A board without a battery for its clock starts in the past; dates and certificates are wrong there.
_CLOCK_BEHIND_S = 300.0
_PIECE_BYTES = 1 << 20


class Health(DocumentedModel):
    """State of the service."""

    status: str = Field(description="ok, or what it waits for.")


class BehindShown(DocumentedModel):
    """What waits on this board for the database that the boards share."""

    entries: int
    seconds: float = Field(description="Since the oldest of them.")


class Readiness(Health):
    """State of the service and its storage."""

    storage: str = Field("", description="Why nothing is stored at present; left out where all is well.")
    behind: BehindShown | None = None
    """What waits for the shared database; left out where nothing does."""


@Route("GET", "/healthz", answers=(RouteResponse(Health),), problems=(503,), is_open=True)
async def healthz(request: Request) -> Health:
    """Check that the process lives and answers can still come from it."""
    if (failure := service_of(request).tenants.failure) is not None:
        raise problem_of(failure)
    return Health(status="ok")


@Route("GET", "/readyz", answers=(RouteResponse(Readiness),), problems=(503,), is_open=True)
async def readyz(request: Request) -> dict[str, Any]:
    """Check that answers are taken: the model is loaded and the service is not being stopped."""
    service = service_of(request)
    service.check_ready()
    if service.tenants.is_changing:
        raise HTTPError(503, "another model is being loaded; ask again in a moment", retry_after_s=RETRY_AFTER_S)
    leases = service.tenants.tenant(OWNER).app.store.leases
    if leases is not None and leases.clock_behind_s > _CLOCK_BEHIND_S:
        behind = f"the clock of this board is {duration(leases.clock_behind_s)} behind that of the database"
        message = f"{behind}; it waits for the time: 'timedatectl' shows whether it is synchronized"
        raise HTTPError(503, message, code="clock_behind", retry_after_s=RETRY_AFTER_S)
    # Answers go on without storage, so this is not a reason to send requests elsewhere.
    failing = (tenant.app.store.failing for tenant in service.tenants.by_name.values())
    problem = next((error.cause for error in failing if error is not None), "")
    for tenant in service.tenants.by_name.values() if not problem else ():
        # Another program may have changed its database.
        try:
            missing = await tenant.app.store.database.missing_tables()
        except StoreError as error:
            problem = error.cause
        else:
            problem = f"the database has no table {', '.join(missing)}" if missing else ""
        if problem:
            break
    behind = [await tenant.app.store.behind() for tenant in service.tenants.by_name.values()]
    readiness: dict[str, Any] = {"status": "ok"}
    if problem:
        readiness["storage"] = problem
    if entries := sum(outbox.entries for outbox in behind):
        readiness["behind"] = {"entries": entries, "seconds": max(outbox.seconds for outbox in behind)}
    return readiness


@dataclass(eq=False)
class Moment(Collector):
    """Gauges of a service, read when Prometheus scrapes."""

    service: ServiceState
    read: Callable[[], Gauges] = read_gauges

    def collect(self) -> Iterator[Metric]:
        """Every gauge; what cannot be read is left out."""
        service, now = self.service, self.read()
        gauges = (
            ("queue_waiting", "Requests that wait for their turn.", service.tenants.scheduler.waiting()),
            ("queue_running", "Answers under way.", service.tenants.scheduler.running()),
            ("ready", "1 while answers are taken.", not service.is_draining and service.tenants.is_ready),
            ("uptime_seconds", "Since the service began.", time.monotonic() - service.started),
            ("temperature_celsius", "Of the hottest sensor.", now.temperature_c),
            ("memory_available_bytes", "What programs can still take.", now.memory_available),
        )
        for name, says, value in gauges:
            if value is not None:
                yield GaugeMetricFamily(f"rkllm_mcp_{name}", says, value=float(value))
        if now.npu_load is not None:
            load = GaugeMetricFamily("rkllm_mcp_npu_load_ratio", "How busy each core of the NPU is.", labels=["core"])
            for core, percent in enumerate(now.npu_load):
                load.add_metric([str(core)], percent / 100)
            yield load
        if not service.tenants.is_open:
            return
        model_host = service.tenants.model_host
        about = GaugeMetricFamily("rkllm_mcp_info", "What answers.", labels=["version", "model", "emulated"])
        about.add_metric([__version__, model_host.name, str(model_host.is_emulated).lower()], 1)
        yield about
        if model_host.npu is not None:
            restarts = CounterMetricFamily("rkllm_mcp_worker_restarts", "How often the runtime was started again.")
            restarts.add_metric([], model_host.npu.engine.supervisor.restarts)
            yield restarts


@Route(
    "GET",
    "/metrics",
    answers=(
        RouteResponse(media="text/plain", says="In Prometheus' text format."),
        RouteResponse(media="application/openmetrics-text", says="In OpenMetrics, where that is asked for."),
    ),
)
async def metrics(request: Request) -> Response:
    """Metrics for Prometheus."""
    if request.state.tenant:
        raise HTTPError(403, "the metrics tell of everybody; only a key of the owner opens them")
    service = service_of(request)
    both = CollectorRegistry()
    both.register(cast("Collector", service.metrics.registry))
    both.register(Moment(service))
    write, content_type = exposition.choose_encoder(request.headers.get("accept", ""))
    # Reading the board is reading files.
    content = await anyio.to_thread.run_sync(write, both)
    return Response(content, headers={"Content-Type": content_type})


class MemoryShown(DocumentedModel):
    """The board's memory."""

    total_mb: int | None
    available_mb: int | None


class QueueShown(DocumentedModel):
    """The queue before the model."""

    waiting: int
    running: int


class BoardCompared(DocumentedModel):
    """What the boards of several are compared by."""

    time: float = Field(description="Of its clock, Unix time.")
    version: str = Field(description="The release of rkllm-mcp.")
    model_bytes: int = Field(description="The size of the model's files; 0 where a remote service answers.")
    model_digest: str
    """SHA-256 of the model's file; empty until it has been read, which begins with the first request for it."""
    template: str = Field(description="The model's prompt form.")
    servers: list[str] = Field(description="The names of the configured servers that are on.")
    limits: dict[str, str] = Field(description="How long it stores data by its own configuration, by key.")


class Board(DocumentedModel):
    """Current state of the board."""

    npu_load: list[int] | None
    """Percent of each core; null where the kernel lets only root read it."""
    temperature_c: float | None = Field(description="Of the hottest sensor.")
    memory: MemoryShown
    model: str
    runtime: str = Field(description="The runtime's version; empty where it is not known, or no NPU answers.")
    emulated: bool = Field(description="The NPU is emulated.")
    context_tokens: int
    prefill_tps: float | None = Field(description="Tokens read a second, over the latest rounds; a tenant's own.")
    decode_tps: float | None = Field(description="Tokens written a second, over the latest rounds; a tenant's own.")
    prefilled_tokens: int = Field(description="Since the service began; of a tenant's own answers.")
    reused_tokens: int = Field(description="Found in the KV cache instead, in the same answers.")
    generated_tokens: int = Field(description="Written, in the same answers.")
    worker_restarts: int = Field(description="How often the runtime's process was started again.")
    queue: QueueShown
    stopping: bool = Field(description="An answer that was stopped still reads its prompt, which the NPU ends first.")
    uptime_s: float
    compared: BoardCompared | None
    """What is the same at all boards of several, as a rule; null for a tenant."""


class Me(DocumentedModel):
    """The client that sent the request."""

    tenant: str = Field(description="Empty for the owner.")
    language: str = Field(description="The language that the configuration asks in: en or ja.")
    emulated: bool
    has_weights: bool = Field(description="The CPU computes the answers of an emulated NPU.")
    model: str
    description: str = Field(description="What answers, in words.")
    sees: bool = Field(description="The model takes pictures.")
    context_tokens: int = Field(description="The window of the model on the board; 0 where a remote service answers.")
    picture_tokens: int = Field(
        description="What a picture takes of the window; 0 until the encoder was loaded, or if the model does not see."
    )
    needs_key: bool = Field(description="Requests without a key are refused.")
    may_delete: bool = Field(description="This key deletes conversations and all data; of the owner, also other keys.")
    version: str = Field(description="The release of rkllm-mcp.")
    titles: bool = Field(description="The model writes titles of saved conversations, seconds after the first answer.")
    storage: str = Field(description="Why nothing of this client is stored at present; empty where all is well.")
    board: str = Field(description="The name of this board among several; empty where no proxy names it.")
    shared: bool = Field(description="The boards share their store, so any of them may answer what is asked next.")
    first_model: str = Field(description="What several boards answer with where no model is named; empty if unknown.")
    listens: bool = Field(description="A program that recognises speech is configured.")
    speaks: bool = Field(description="A program that speaks is configured.")
    settings: dict[str, str] = Field(description="What the client has chosen on the page, by name.")


@dataclass(eq=False)
class FileDigests:
    """SHA-256 of files of gigabytes, each read once by a thread of its own."""

    _digests: dict[tuple[Path, int, int], str] = field(default_factory=dict[tuple[Path, int, int], str], init=False)

    def find(self, file: Path) -> str:
        """Return the digest of a file as it is now; empty while it is read, or if it cannot be."""
        try:
            status = file.stat()
        except OSError:
            return ""
        version = (file, status.st_size, status.st_mtime_ns)
        if version not in self._digests:
            self._digests[version] = ""
            threading.Thread(target=self._read_version, args=version, daemon=True).start()
        return self._digests[version]

    def _read_version(self, file: Path, size: int, changed_ns: int) -> None:
        digest = hashlib.sha256()
        with suppress(OSError), file.open("rb") as content:
            while piece := content.read(_PIECE_BYTES):
                digest.update(piece)
            self._digests[file, size, changed_ns] = digest.hexdigest()


_DIGESTS = FileDigests()


@Route("GET", "/v1/board", answers=(RouteResponse(Board),))
async def board(request: Request) -> dict[str, Any]:
    """State of the board."""
    service = service_of(request)
    model_host, usage, scheduler = service.model_host, service.usage[request.state.tenant], service.tenants.scheduler
    now = await anyio.to_thread.run_sync(read_gauges)
    engine = model_host.npu.engine if model_host.npu else None
    compared: dict[str, Any] | None = None
    if not request.state.tenant:
        folder = (await anyio.to_thread.run_sync(service.tenants.list_models, OWNER)).get(model_host.name)
        limits, _ = store_limits(service.config)
        compared = {
            "time": time.time(),
            "version": __version__,
            "model_bytes": folder.size_bytes if folder is not None else 0,
            "model_digest": _DIGESTS.find(model_host.npu.model.file.resolve()) if model_host.npu is not None else "",
            "template": folder.family if folder is not None else "",
            "servers": sorted(server.name for server in service.config.active_servers),
            "limits": {name: json.dumps(value) for name, value in limits.as_settings().items()},
        }
    return shown(
        Board,
        usage,
        npu_load=now.npu_load,
        temperature_c=now.temperature_c,
        memory={
            "total_mb": None if now.memory_total is None else now.memory_total // MEBIBYTE,
            "available_mb": None if now.memory_available is None else now.memory_available // MEBIBYTE,
        },
        model=model_host.name,
        runtime=engine.version or "" if engine else "",
        emulated=model_host.is_emulated,
        context_tokens=model_host.listing.context_tokens,
        worker_restarts=engine.supervisor.restarts if engine else 0,
        queue={"waiting": scheduler.waiting(), "running": scheduler.running()},
        stopping=engine is not None and engine.is_stopping,
        uptime_s=round(time.monotonic() - service.started, 1),
        compared=compared,
    )


class QueueLength(DocumentedModel):
    """The requests that wait for their turn."""

    waiting: int = Field(description="At this board; the proxy of several boards answers with those that wait in it.")


class QueueQuery(bodies.LenientBody):
    """For which model."""

    model: str = Field("", max_length=256, description="The one that is asked; only the proxy has a queue for each.")


@Route("GET", "/v1/queue", query=QueueQuery, answers=(RouteResponse(QueueLength),))
async def queue_length(request: Request) -> QueueLength:
    """Count the requests that wait for an answer."""
    bodies.query(request, QueueQuery)  # the proxy reads it; what is not a model's name is refused here as well
    return QueueLength(waiting=service_of(request).tenants.scheduler.waiting())


@Route("GET", "/v1/me", answers=(RouteResponse(Me),))
async def me(request: Request) -> Me:
    """The caller, and what the page needs to know first."""
    service, tenant = service_of(request), tenant_of(request)
    model_host, failing = service.model_host, tenant.app.store.failing
    # The proxy sends questions that name no model to the first board that answers questions.
    models = next((board.models for board in service.config.boards if not board.is_embedding_only), ())
    vision = model_host.npu.vision if model_host.npu is not None else None
    return Me(
        tenant=tenant.name,
        language=tenant.app.config.agent.person_language,
        emulated=model_host.is_emulated,
        has_weights=model_host.has_weights,
        model=model_host.name,
        description=model_host.description,
        sees=model_host.takes_pictures,
        context_tokens=model_host.listing.context_tokens if model_host.npu else 0,
        # 0 until the encoder was loaded, and for a model that does not see.
        picture_tokens=vision.encoder.picture_tokens if vision is not None else 0,
        needs_key=bool(service.config.key_entries),
        may_delete=may_delete(request),
        version=__version__,
        titles=tenant.app.writes_titles,
        storage=failing.cause if failing else "",
        board=id_prefix(request).removesuffix("."),
        shared=tenant.app.store.is_shared,
        first_model=next(iter(models), ""),
        listens=service.config.speech.stt is not None,
        speaks=service.config.speech.tts is not None,
        settings=dict(tenant.app.page_settings),
    )


class TokensBody(bodies.RequestBody):
    """Texts to count."""

    texts: tuple[str, ...] = Field(strict=False, max_length=1000, description="The texts.")


class TokensResponse(DocumentedModel):
    """The size of texts."""

    tokens: int | None = Field(description="Tokens of the model on the board; null where a remote service answers.")
    exact: bool = Field(description="False for texts of several windows: the rest is estimated from their beginning.")


@Route("POST", "/v1/tokens", body=TokensBody, answers=(RouteResponse(TokensResponse),))
async def tokens(request: Request) -> TokensResponse:
    """Count the tokens of texts."""
    body = await bodies.read(request, TokensBody)
    model_host = service_of(request).model_host
    if model_host.npu is None:
        return TokensResponse(tokens=None, exact=False)
    total = await count_tokens(request, body.texts, model_host.npu.form.tokenizer, model_host.listing.context_tokens)
    return TokensResponse(tokens=total.tokens, exact=total.is_exact)
