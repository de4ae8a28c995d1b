"""Spans of OpenTelemetry: a request, the rounds of the model in it, and its calls of tools.

    request ─▶ span, a child of the caller's ``traceparent`` ─▶ rounds and tools as children, from their events

Only OpenTelemetry's interface is used here: without an SDK that somebody has switched on (``opentelemetry-instrument
rkllm-mcp serve``) nothing is made and nothing costs. The MCP SDK's own spans of calls to servers are children as well.
Attributes are names and counts, never words.

Followed: OpenTelemetry's semantic conventions for HTTP and for generative models (``gen_ai.*``).
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.propagate import extract
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer

from rkllm_mcp import __version__
from rkllm_mcp.events import End, Event, ToolFinished, Usage

_NANOSECONDS = 1_000_000_000


class Traces:
    """Makes spans.

    Args:
        tracer: what makes them; the process's own when None.
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        self._tracer = tracer or trace.get_tracer("rkllm_mcp", __version__)

    @contextmanager
    def request(self, method: str, headers: Mapping[str, str]) -> Generator[Span, None, None]:
        """The span of a request, current while it is answered; ``answered`` completes it."""
        # What names no trace, or none that can be read, begins one.
        carrier = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        context = extract(carrier) if carrier else None
        attributes = {"http.request.method": method}
        with self._tracer.start_as_current_span(method, context, SpanKind.SERVER, attributes) as span:
            yield span

    def take(self, event: Event) -> None:
        """An event of an answer has passed; what it tells of became a child of the current span."""
        if not trace.get_current_span().is_recording():
            return
        now = time.time_ns()
        if isinstance(event, Usage):
            took_ms = event.prefill_ms + event.decode_ms
            with self._past("chat", now, took_ms / 1000) as span:
                span.set_attribute("gen_ai.operation.name", "chat")
                span.set_attribute("gen_ai.usage.input_tokens", event.prompt_tokens)
                span.set_attribute("gen_ai.usage.output_tokens", event.generated_tokens)
                span.set_attribute("rkllm_mcp.prefilled_tokens", event.prefilled_tokens)
                span.set_attribute("rkllm_mcp.prefill_ms", event.prefill_ms)
        elif isinstance(event, ToolFinished):
            with self._past(f"execute_tool {event.name}", now, event.seconds) as span:
                span.set_attribute("gen_ai.operation.name", "execute_tool")
                span.set_attribute("gen_ai.tool.name", event.name)
                if event.is_error:
                    span.set_status(StatusCode.ERROR)
        elif isinstance(event, End) and event.reason == "failed":
            trace.get_current_span().set_status(StatusCode.ERROR)

    @contextmanager
    def _past(self, name: str, end_ns: int, seconds: float) -> Generator[Span, None, None]:
        """A span of what is over already."""
        span = self._tracer.start_span(name, start_time=end_ns - round(seconds * _NANOSECONDS))
        try:
            yield span
        finally:
            span.end(end_ns)


def answered(span: Span, method: str, route: str, status: int) -> None:
    """Complete the span of a request.

    Args:
        span: the span.
        method: the request's.
        route: the path as it was declared; empty where there is no such route.
        status: the answer's; 0 where the client left before there was one.
    """
    if route:
        span.update_name(f"{method} {route}")
        span.set_attribute("http.route", route)
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(StatusCode.ERROR)
