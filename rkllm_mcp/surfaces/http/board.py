"""How the board is, and who asks: what the page shows beside the chat."""

from __future__ import annotations

import anyio.to_thread
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rkllm_mcp.inspection import asking_language, gauges
from rkllm_mcp.surfaces.http.auth import needs_key
from rkllm_mcp.surfaces.http.context import service_of, tenant_of
from rkllm_mcp.surfaces.http.route import Answer, Route

_MEGABYTE = 2**20


class MemoryShown(BaseModel):
    """The board's memory."""

    total_mb: int | None
    available_mb: int | None


class QueueShown(BaseModel):
    """The queue before the model."""

    waiting: int
    running: int


class Board(BaseModel):
    """How the board is at this moment."""

    npu_load: list[int] | None = Field(
        description="Percent of each core; null where the kernel lets only root read it."
    )
    temperature_c: float | None = Field(description="Of the hottest sensor.")
    memory: MemoryShown
    model: str
    runtime: str = Field(description="The runtime's version; empty where it is not known, or no NPU answers.")
    emulated: bool = Field(description="Answers come from a script.")
    context_tokens: int
    prefill_tps: float | None = Field(description="Tokens read a second, over the latest rounds; a tenant's own.")
    decode_tps: float | None = Field(description="Tokens written a second, over the latest rounds; a tenant's own.")
    prefilled_tokens: int = Field(description="Since the service began; of a tenant's own answers.")
    reused_tokens: int = Field(description="Found in the KV cache instead, in the same answers.")
    generated_tokens: int = Field(description="Written, in the same answers.")
    worker_restarts: int = Field(description="How often the runtime's process was started again.")
    queue: QueueShown
    uptime_s: float


class Me(BaseModel):
    """Who asks."""

    tenant: str = Field(description="Empty for the owner.")
    language: str = Field(description="The language that the configuration asks in: en or ja.")
    emulated: bool
    model: str
    needs_key: bool = Field(description="Nobody comes in without a key.")


async def board(request: Request) -> Response:
    """Look at the board."""
    service = service_of(request)
    core, meter, queue = service.core, service.meter_of(request.state.tenant), service.turnstile
    now = await anyio.to_thread.run_sync(gauges)
    engine = core.npu.engine if core.npu else None
    shown = Board(
        npu_load=list(now.npu_load) if now.npu_load is not None else None,
        temperature_c=now.temperature_c,
        memory=MemoryShown(total_mb=_megabytes(now.memory_total), available_mb=_megabytes(now.memory_available)),
        model=core.name,
        runtime=engine.version or "" if engine else "",
        emulated=core.is_emulated,
        context_tokens=core.listing.context_tokens,
        prefill_tps=meter.prefill_tps,
        decode_tps=meter.decode_tps,
        prefilled_tokens=meter.prefilled_tokens,
        reused_tokens=meter.reused_tokens,
        generated_tokens=meter.generated_tokens,
        worker_restarts=engine.restarts if engine else 0,
        queue=QueueShown(waiting=queue.waiting, running=queue.running),
        uptime_s=round(service.uptime_s, 1),
    )
    return JSONResponse(shown.model_dump())


async def me(request: Request) -> Response:
    """Tell who asks."""
    service, tenant = service_of(request), tenant_of(request)
    core = service.core
    shown = Me(
        tenant=tenant.name,
        language=asking_language(tenant.app.config),
        emulated=core.is_emulated,
        model=core.name,
        needs_key=needs_key(service.config),
    )
    return JSONResponse(shown.model_dump())


def _megabytes(count: int | None) -> int | None:
    return None if count is None else count // _MEGABYTE


ROUTES = (
    Route("GET", "/v1/board", board, "How the board is", answers=(Answer(Board),)),
    Route("GET", "/v1/me", me, "Who asks", answers=(Answer(Me),)),
)
