"""Prometheus metrics, and OpenTelemetry spans of a request, its model rounds and its tool calls.

    request ─▶ span, a child of the caller's ``traceparent`` ─▶ rounds and tools as children, from their events

Only OpenTelemetry's API is used: without an active SDK (``opentelemetry-instrument rkllm-mcp serve``) no span is made.
The MCP SDK's own spans of calls to servers are children as well. Attributes are names and counts, never texts.

Source: OpenTelemetry's semantic conventions for HTTP and for generative models (``gen_ai.*``).
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.propagate import extract
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from prometheus_client import CollectorRegistry, Counter, Histogram

from rkllm_mcp import __version__
from rkllm_mcp.events import End, Event, ToolCallDetected, ToolCallFailed, ToolFinished, Usage

# From a cached prompt on a fast board to a long one on a slow board.
_FIRST_TOKEN_S = (0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 40, 80, 160)
_TOOL_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_REQUEST_S = (0.005, 0.05, 0.25, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """Counters of one service since its start."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self._prefilled = Counter("rkllm_mcp_prefilled_tokens", "Prompt tokens evaluated.", registry=registry)
        self._reused = Counter("rkllm_mcp_reused_tokens", "Prompt tokens found in the KV cache.", registry=registry)
        self._generated = Counter("rkllm_mcp_generated_tokens", "Tokens written.", registry=registry)
        self._prefill_s = Counter("rkllm_mcp_prefill_seconds", "Time spent evaluating prompts.", registry=registry)
        self._decode_s = Counter("rkllm_mcp_decode_seconds", "Time spent writing tokens.", registry=registry)
        self._first_token = Histogram(
            "rkllm_mcp_time_to_first_token_seconds",
            "From the request of a round to its first token, queueing included.",
            buckets=_FIRST_TOKEN_S,
            registry=registry,
        )
        self._answers = Counter("rkllm_mcp_answers", "Answers that ended.", ["reason"], registry=registry)
        self._tool_calls = Counter("rkllm_mcp_tool_calls", "Calls of tools.", ["tool", "outcome"], registry=registry)
        self._tool_s = Histogram(
            "rkllm_mcp_tool_seconds", "How long tools took.", ["tool"], buckets=_TOOL_S, registry=registry
        )
        self._repaired = Counter("rkllm_mcp_repaired_calls", "Calls that were not valid as written.", registry=registry)
        self._errors = Counter("rkllm_mcp_errors", "What went wrong, by kind.", ["kind"], registry=registry)
        self._requests = Counter(
            "rkllm_mcp_http_requests", "Requests.", ["method", "route", "status"], registry=registry
        )
        self._request_s = Histogram(
            "rkllm_mcp_http_request_seconds",
            "From a request to the end of its answer.",
            ["route"],
            buckets=_REQUEST_S,
            registry=registry,
        )

    def take(self, event: Event) -> None:
        """Add a child span for an event of an answer."""
        if isinstance(event, Usage):
            self._used(event)
        elif isinstance(event, ToolFinished):
            self._tool_calls.labels(event.name, "error" if event.is_error else "ok").inc()
            self._tool_s.labels(event.name).observe(event.seconds)
        elif isinstance(event, ToolCallDetected):
            if event.repaired:
                self._repaired.inc()
        elif isinstance(event, ToolCallFailed):
            self._errors.labels("unreadable_call").inc()
        elif isinstance(event, End):
            self._answers.labels(event.reason).inc()
            if event.reason == "failed":
                self._errors.labels(_kind(event)).inc()

    def requested(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a finished request; status 0 means that the client left first."""
        self._requests.labels(method, route, str(status)).inc()
        self._request_s.labels(route).observe(seconds)

    def _used(self, usage: Usage) -> None:
        self._prefilled.inc(usage.prefilled_tokens)
        self._reused.inc(usage.cached_tokens)
        self._generated.inc(usage.generated_tokens)
        self._prefill_s.inc(usage.prefill_ms / 1000)
        self._decode_s.inc(usage.decode_ms / 1000)
        self._first_token.observe(usage.time_to_first_token_ms / 1000)


def _kind(end: End) -> str:
    """The class of an error as a label: ``PromptTooLongError`` is ``prompt_too_long``."""
    name = type(end.cause).__name__.removesuffix("Error") if end.cause is not None else "Internal"
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


_NANOSECONDS = 1_000_000_000


class Traces:
    """Factory of spans; uses the process's tracer by default."""

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
        """Add a child span for an event of an answer."""
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
        """Add a span that has already ended."""
        span = self._tracer.start_span(name, start_time=end_ns - round(seconds * _NANOSECONDS))
        try:
            yield span
        finally:
            span.end(end_ns)


def answered(span: Span, method: str, route: str, status: int) -> None:
    """Set route and status of a request's span; status 0 means that the client left first."""
    if route:
        span.update_name(f"{method} {route}")
        span.set_attribute("http.route", route)
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(StatusCode.ERROR)
