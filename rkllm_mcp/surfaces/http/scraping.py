"""``GET /metrics`` for Prometheus: what the service has done, and how it is at the moment of being asked.

``metrics``: counters and histograms        service, engine, board ─▶ gauges, read when they are asked for
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import anyio.to_thread
from prometheus_client import CollectorRegistry, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from rkllm_mcp import __version__
from rkllm_mcp.inspection import Gauges, gauges
from rkllm_mcp.surfaces.http.context import Service, service_of
from rkllm_mcp.surfaces.http.problems import Problem
from rkllm_mcp.surfaces.http.route import Answer, Route


class Moment(Collector):
    """How a service is, read when Prometheus asks.

    Args:
        service: the service.
        read: looks at the board.
    """

    def __init__(self, service: Service, read: Callable[[], Gauges] = gauges) -> None:
        self._service = service
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Every gauge; what cannot be read is left out."""
        service = self._service
        yield _gauge("queue_waiting", "Requests that wait for their turn.", service.turnstile.waiting)
        yield _gauge("queue_running", "Answers under way.", service.turnstile.running)
        yield _gauge("ready", "1 while answers are taken.", service.is_ready)
        yield _gauge("uptime_seconds", "Since the service began.", service.uptime_s)
        yield from self._model()
        now = self._read()
        if now.npu_load is not None:
            load = GaugeMetricFamily("rkllm_mcp_npu_load_ratio", "How busy each core of the NPU is.", labels=["core"])
            for core, percent in enumerate(now.npu_load):
                load.add_metric([str(core)], percent / 100)
            yield load
        if now.temperature_c is not None:
            yield _gauge("temperature_celsius", "Of the hottest sensor.", now.temperature_c)
        if now.memory_available is not None:
            yield _gauge("memory_available_bytes", "What programs can still take.", now.memory_available)

    def _model(self) -> Iterator[Metric]:
        house = self._service.house
        if not house.is_open:
            return
        core = house.core
        about = GaugeMetricFamily("rkllm_mcp_info", "What answers.", labels=["version", "model", "emulated"])
        about.add_metric([__version__, core.name, str(core.is_emulated).lower()], 1)
        yield about
        if core.npu is not None:
            restarts = CounterMetricFamily("rkllm_mcp_worker_restarts", "How often the runtime was started again.")
            restarts.add_metric([], core.npu.engine.restarts)
            yield restarts


def _gauge(name: str, says: str, value: float) -> Metric:
    return GaugeMetricFamily(f"rkllm_mcp_{name}", says, value=float(value))


async def metrics(request: Request) -> Response:
    """Write all of them."""
    if request.state.tenant:
        raise Problem(403, "the metrics tell of everybody; only a key of the owner opens them")
    service = service_of(request)
    both = CollectorRegistry()
    both.register(cast("Collector", service.metrics.registry))
    both.register(Moment(service))
    write, content_type = exposition.choose_encoder(request.headers.get("accept", ""))
    # Reading the board is reading files.
    content = await anyio.to_thread.run_sync(write, both)
    return Response(content, headers={"Content-Type": content_type})


ROUTES = (
    Route(
        "GET",
        "/metrics",
        metrics,
        "What Prometheus collects",
        answers=(
            Answer(media="text/plain", says="In Prometheus' text format."),
            Answer(media="application/openmetrics-text", says="In OpenMetrics, where that is asked for."),
        ),
    ),
)
