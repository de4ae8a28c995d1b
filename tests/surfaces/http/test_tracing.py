"""What of a request is seen from outside: spans where OpenTelemetry collects them, and lines of the log."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from rkllm_mcp.events import End, Text, ToolFinished, Usage
from rkllm_mcp.surfaces.http.errors import begin_request
from rkllm_mcp.surfaces.http.metrics import Traces, set_response
from rkllm_mcp.surfaces.http.server import LogFormat, log_to
from tests.support.demo_app import NO_VARIABLES
from tests.support.served import scripted_model, served

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NO_APPROVALS = '[security]\napprove = "never"\n'
USAGE = Usage(100, 40, 60, 8, 2000.0, 500.0, 2100.0)


@contextmanager
def collected() -> Generator[tuple[Traces, InMemorySpanExporter], None, None]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    try:
        yield Traces(provider.get_tracer("test")), exporter
    finally:
        provider.shutdown()


def seconds(span: ReadableSpan) -> float:
    return ((span.end_time or 0) - (span.start_time or 0)) / 1e9


def test_a_request_is_a_span_with_its_rounds_and_tools_as_children() -> None:
    with collected() as (traces, exporter):
        with traces.request("POST", {"traceparent": CALLER}) as span:
            for event in (USAGE, ToolFinished("call_1", "get_weather", is_error=True, text="secret", seconds=0.5)):
                traces.take(event)
            traces.take(Text("secret"))
            set_response(span, "POST", "/v1/execute", 200)
        chat, tool, request = exporter.get_finished_spans()
    assert [each.name for each in (chat, tool, request)] == ["chat", "execute_tool get_weather", "POST /v1/execute"]
    assert request.parent is not None
    assert f"{request.parent.trace_id:032x}" == CALLER.split("-")[1]
    assert chat.parent is not None
    assert request.context is not None
    assert chat.parent.span_id == request.context.span_id
    assert seconds(chat) == pytest.approx(2.5)
    assert seconds(tool) == pytest.approx(0.5)
    assert chat.attributes is not None
    assert chat.attributes["gen_ai.usage.input_tokens"] == 100
    assert chat.attributes["rkllm_mcp.prefilled_tokens"] == 40
    assert tool.status.status_code is StatusCode.ERROR
    assert "secret" not in "".join(str(dict(each.attributes or {})) for each in (chat, tool, request))


@pytest.mark.parametrize(("status", "events"), [(500, []), (200, [End("failed", "e")])])
def test_what_failed_is_marked(status: int, events: list[End]) -> None:
    with collected() as (traces, exporter):
        with traces.request("GET", {"traceparent": "nonsense"}) as span:
            for event in events:
                traces.take(event)
            set_response(span, "GET", "", status)
        (request,) = exporter.get_finished_spans()
    assert request.name == "GET"
    assert request.parent is None
    assert request.status.status_code is StatusCode.ERROR


def test_without_a_collector_nothing_is_made() -> None:
    traces = Traces()
    with traces.request("GET", {}) as span:
        traces.take(USAGE)
        set_response(span, "GET", "/healthz", 200)
    assert not span.is_recording()


@pytest.mark.parametrize("revision", ["legacy", "modern"])
def test_a_call_of_a_tool_belongs_to_the_trace_of_the_request(tmp_path: Path, revision: str) -> None:
    rules = "rule\n  results 0\n  call trace {}\n\nrule\n  results 1+\n  result ^(.*)$\n  say Trace %1\n"
    desk = ("desk", ("-m", "tests.support.mcp_servers.asking", revision), NO_VARIABLES)
    with served(tmp_path, scripted_model(tmp_path / "model", rules), (desk,), extra=NO_APPROVALS) as service:
        body = {"message": "Which trace?", "stream": False}
        answer = httpx2.post(f"{service.url}/v1/execute", json=body, headers={"traceparent": CALLER}, timeout=120)
    assert answer.raise_for_status().json()["text"].startswith(f"Trace 00-{CALLER.split('-')[1]}-")


@contextmanager
def logging_to(form: LogFormat) -> Generator[io.StringIO, None, None]:
    stream, root = io.StringIO(), logging.getLogger()
    level = root.level
    handler = log_to(stream, form)
    try:
        yield stream
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def test_a_line_names_its_request_as_text_and_as_json() -> None:
    begin_request("request-7")
    for form in ("text", "json"):
        with logging_to(form) as stream:
            fields = {"status": 200}
            logging.getLogger("rkllm_mcp.access").info("GET %s", "/v1/東京", extra={"fields": fields})
            logging.getLogger("httpx2").info("GET https://host/?key=secret")
            logging.getLogger("httpx2").warning("gone")
        first, second = stream.getvalue().splitlines()
        assert "request-7" in first
        assert "/v1/東京" in first
        assert "gone" in second
    line = json.loads(first)
    assert (line["level"], line["logger"], line["status"]) == ("info", "rkllm_mcp.access", 200)


def test_an_error_has_its_traceback_in_the_same_line() -> None:
    with logging_to("json") as stream:
        logging.getLogger("rkllm_mcp").error("it failed", exc_info=ValueError("broken"))
    assert "ValueError: broken" in json.loads(stream.getvalue())["error"]


def test_a_log_that_is_off_has_what_breaks_under_the_request_that_broke() -> None:
    begin_request("request-8")
    with logging_to("off") as stream:
        logging.getLogger("rkllm_mcp.access").info("GET /")
        logging.getLogger("rkllm_mcp").warning("odd")
        logging.getLogger("rkllm_mcp").error("it failed", exc_info=ValueError("broken"))
    assert "[request-8] it failed" in stream.getvalue()
    assert "ValueError: broken" in stream.getvalue()
    assert not any(word in stream.getvalue() for word in ("GET", "odd"))
