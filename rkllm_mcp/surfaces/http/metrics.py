"""Prometheus metrics, and OpenTelemetry spans of a request, its model rounds and its tool calls.

    request ─▶ span, a child of the caller's ``traceparent`` ─▶ rounds and tools as children, from their events

Only OpenTelemetry's API is used: without an active SDK (``opentelemetry-instrument rkllm-mcp serve``) no span is made.
The MCP SDK's own spans of calls to servers are children as well. Attributes are names and counts, never texts.

Source: OpenTelemetry's semantic conventions for HTTP and for generative models (``gen_ai.*``).
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from opentelemetry import trace
from opentelemetry.propagate import extract
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from opentelemetry.util.types import Attributes
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
        self._prefilled = self._counter("prefilled_tokens", "Prompt tokens evaluated.")
        self._reused = self._counter("reused_tokens", "Prompt tokens found in the KV cache.")
        self._generated = self._counter("generated_tokens", "Tokens written.")
        self._prefill_s = self._counter("prefill_seconds", "Time spent evaluating prompts.")
        self._decode_s = self._counter("decode_seconds", "Time spent writing tokens.")
        says = "From the request of a round to its first token, queueing included."
        self._first_token = self._histogram("time_to_first_token_seconds", says, _FIRST_TOKEN_S)
        self._answers = self._counter("answers", "Answers that ended.", "reason")
        self._tool_calls = self._counter("tool_calls", "Calls of tools.", "tool", "outcome")
        self._tool_s = self._histogram("tool_seconds", "How long tools took.", _TOOL_S, "tool")
        self._repaired = self._counter("repaired_calls", "Calls that were not valid as written.")
        self._errors = self._counter("errors", "What went wrong, by kind.", "kind")
        self._requests = self._counter("http_requests", "Requests.", "method", "route", "status")
        says = "From a request to the end of its answer."
        self._request_s = self._histogram("http_request_seconds", says, _REQUEST_S, "route")

    def _counter(self, name: str, says: str, *labels: str) -> Counter:
        return Counter(f"rkllm_mcp_{name}", says, labels, registry=self.registry)

    def _histogram(self, name: str, says: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"rkllm_mcp_{name}", says, labels, buckets=buckets, registry=self.registry)

    def take(self, event: Event) -> None:
        """Count an event of an answer."""
        if isinstance(event, Usage):
            self._prefilled.inc(event.prefilled_tokens)
            self._reused.inc(event.cached_tokens)
            self._generated.inc(event.generated_tokens)
            self._prefill_s.inc(event.prefill_ms / 1000)
            self._decode_s.inc(event.decode_ms / 1000)
            self._first_token.observe(event.time_to_first_token_ms / 1000)
        elif isinstance(event, ToolFinished):
            self._tool_calls.labels(event.name, "error" if event.is_error else "ok").inc()
            self._tool_s.labels(event.name).observe(event.seconds)
        elif isinstance(event, ToolCallDetected):
            self._repaired.inc(event.repaired)
        elif isinstance(event, ToolCallFailed):
            self._errors.labels("unreadable_call").inc()
        elif isinstance(event, End):
            self._answers.labels(event.reason).inc()
            if event.reason == "failed":
                # The class of the error as a label: PromptTooLongError is prompt_too_long.
                name = type(event.cause).__name__.removesuffix("Error") if event.cause is not None else "Internal"
                self._errors.labels(re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()).inc()

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a finished request; status 0 means that the client left first."""
        self._requests.labels(method, route, str(status)).inc()
        self._request_s.labels(route).observe(seconds)


_NANOSECONDS = 1_000_000_000


@dataclass(eq=False)
class Traces:
    """Factory of spans; uses the process's tracer by default."""

    tracer: Tracer = field(default_factory=lambda: trace.get_tracer("rkllm_mcp", __version__))

    def request(self, method: str, headers: Mapping[str, str]) -> AbstractContextManager[Span]:
        """The span of a request, current while it is answered; ``set_response`` completes it."""
        # What names no trace, or none that can be read, begins one.
        carrier = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        context = extract(carrier) if carrier else None
        attributes = {"http.request.method": method}
        return self.tracer.start_as_current_span(method, context, SpanKind.SERVER, attributes)

    def take(self, event: Event) -> None:
        """Add a child span for an event of an answer."""
        if not trace.get_current_span().is_recording():
            return
        if isinstance(event, Usage):
            took_ms = event.prefill_ms + event.decode_ms
            usage = {
                "gen_ai.operation.name": "chat",
                "gen_ai.usage.input_tokens": event.prompt_tokens,
                "gen_ai.usage.output_tokens": event.generated_tokens,
                "rkllm_mcp.prefilled_tokens": event.prefilled_tokens,
                "rkllm_mcp.prefill_ms": event.prefill_ms,
            }
            self._past("chat", took_ms / 1000, usage)
        elif isinstance(event, ToolFinished):
            tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": event.name}
            self._past(f"execute_tool {event.name}", event.seconds, tool, is_error=event.is_error)
        elif isinstance(event, End) and event.reason == "failed":
            trace.get_current_span().set_status(StatusCode.ERROR)

    def _past(self, name: str, seconds: float, attributes: Attributes, *, is_error: bool = False) -> None:
        """Add a span that has just ended."""
        now = time.time_ns()
        span = self.tracer.start_span(name, attributes=attributes, start_time=now - round(seconds * _NANOSECONDS))
        if is_error:
            span.set_status(StatusCode.ERROR)
        span.end(now)


def set_response(span: Span, method: str, route: str, status: int) -> None:
    """Set route and status of a request's span; status 0 means that the client left first."""
    if route:
        span.update_name(f"{method} {route}")
        span.set_attribute("http.route", route)
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(StatusCode.ERROR)
