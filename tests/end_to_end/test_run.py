"""``rkllm-mcp run``: the real binding, the emulated library, real MCP servers; one question to the real command."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from reportlab.pdfgen.canvas import Canvas

from tests.support.demo_app import (
    NO_VARIABLES,
    PATIENT,
    TIME_SERVER,
    PythonServer,
    command_line,
    descendants,
    events_of,
    is_alive,
    make_demo,
    text_of,
)
from tests.support.emulator import EVERY_VERSION

HANGING_TOOL = """
import json, sys, time
for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if method == "initialize":
        server = {"name": "h", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": server}
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"timezone": {"type": "string"}}, "required": ["timezone"]}
        result = {"tools": [{"name": "get_current_time", "description": "Time", "inputSchema": schema}]}
    elif method == "tools/call":
        continue
    elif number is None:
        continue
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}), flush=True)
"""


def test_an_unreachable_agency_is_reported_and_nothing_hangs(tmp_path: Path) -> None:
    weather = ("weather", ("-m", "mcp_servers.weather"), {"JMA_BASE_URL": "http://127.0.0.1:9"})
    result = make_demo(tmp_path, [weather]).run_here("run", "What is the weather in Tokyo?")
    assert result.returncode == 0, result.stderr
    assert "◆ I could not get the weather: " in result.stdout


@pytest.mark.parametrize("abi", EVERY_VERSION)
def test_json_events_come_in_order_and_the_second_round_prefills_only_its_new_tokens(tmp_path: Path, abi: str) -> None:
    demo = make_demo(tmp_path)
    result = demo.run("run", "--json", "What time is it in London?", environment={"RKLLM_EMULATOR_ABI": abi, **PATIENT})
    assert result.returncode == 0, result.stderr
    events = events_of(result.stdout)
    kinds = [event["kind"] for event in events if event["kind"] not in {"text", "status"}]
    assert kinds == ["tool_call", "usage", "tool_result", "usage", "end"]
    (call,) = [event for event in events if event["kind"] == "tool_call"]
    assert call == {
        "kind": "tool_call",
        "id": "call_1",
        "name": "get_current_time",
        "server": "time",
        "arguments": {"timezone": "Europe/London"},
        "repaired": False,
    }
    assert text_of(events).startswith("In Europe/London it is ")
    first, second = [event for event in events if event["kind"] == "usage"]
    assert first["prefilled_tokens"] == first["prompt_tokens"]
    assert second["cached_tokens"] >= first["prompt_tokens"]
    assert second["prefilled_tokens"] == second["prompt_tokens"] - second["cached_tokens"] < 120
    assert events[-1] == {"kind": "end", "reason": "answered", "error": None}


def test_a_tool_can_be_forced(tmp_path: Path) -> None:
    result = make_demo(tmp_path).run_here("run", "--json", "--force-tool", "get_current_time", "東京")
    events = events_of(result.stdout)
    assert [event["arguments"] for event in events if event["kind"] == "tool_call"] == [{"timezone": "Asia/Tokyo"}]


def test_a_question_may_come_from_a_pipe_and_tools_may_be_left_out(tmp_path: Path) -> None:
    result = make_demo(tmp_path).run_here("run", "--no-tools", "-", stdin="What time is it?\n")
    assert result.returncode == 0, result.stderr
    assert "No time tool is connected" in result.stdout
    assert "[MCP: Calling" not in result.stderr


def test_a_server_that_cannot_start_is_reported_with_its_last_words_and_the_rest_goes_on(tmp_path: Path) -> None:
    broken: PythonServer = ("broken", ("-c", "import sys; sys.exit('no database here')"), NO_VARIABLES)
    result = make_demo(tmp_path, [broken, TIME_SERVER]).run_here("run", "What time is it in Paris?")
    assert result.returncode == 0, result.stderr
    assert "◆ In Europe/Paris it is " in result.stdout
    assert "broken" in result.stderr
    assert "no database here" in result.stderr


@pytest.mark.parametrize("signal_number", [signal.SIGSEGV, signal.SIGKILL])
def test_a_worker_killed_in_the_middle_of_an_answer_is_named(tmp_path: Path, signal_number: signal.Signals) -> None:
    demo = make_demo(tmp_path, [], speed="")
    with demo.started("run", "--json", "Hello") as process:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if '"kind":"text"' in line:
                break
        (worker,) = [pid for pid in descendants(process.pid) if "rkllm_mcp.runtime.worker" in command_line(pid)]
        os.kill(worker, signal_number)
        lines += process.stdout.readlines()
        assert process.wait(60) == 1
    end = events_of("".join(lines))[-1]
    assert end["reason"] == "failed"
    assert signal_number.name in end["error"]


def test_a_tool_server_killed_in_the_middle_of_a_call_is_something_the_model_explains(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, [("time", ("-c", HANGING_TOOL), NO_VARIABLES)])
    with demo.started("run", "--json", "What time is it?") as process:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if "Calling tool" in line:
                break
        (server,) = [pid for pid in descendants(process.pid) if "sys.stdin" in command_line(pid)]
        os.kill(server, signal.SIGKILL)
        lines += process.stdout.readlines()
        assert process.wait(60) == 0
    events = events_of("".join(lines))
    (result,) = [event for event in events if event["kind"] == "tool_result"]
    assert result["is_error"]
    assert "I could not get the time: " in text_of(events)
    assert events[-1]["reason"] == "answered"


@pytest.mark.parametrize(("signal_number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_command_that_is_stopped_leaves_nothing_running(
    tmp_path: Path, signal_number: signal.Signals, code: int
) -> None:
    demo = make_demo(tmp_path, [("time", ("-c", HANGING_TOOL), NO_VARIABLES)])
    with demo.started("run", "--json", "What time is it?") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Calling tool" in line:
                break
        children = descendants(process.pid)
        assert len(children) >= 2
        process.send_signal(signal_number)
        *_, end = events_of(process.stdout.read())
        assert end == {"kind": "end", "reason": "cancelled", "error": None}
        assert process.wait(60) == code
        assert [pid for pid in children if is_alive(pid)] == []


def test_a_document_that_is_too_long_is_refused_with_a_way_that_works(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, ())
    report = Canvas(str(tmp_path / "big.pdf"))
    for page in range(30):
        for line in range(50):
            report.drawString(
                40, 780 - 14 * line, f"The revenue of branch {line} in month {page} was {page * line} euros."
            )
        report.showPage()
    report.save()
    refused = demo.run_here("run", "-f", "big.pdf", "What was the revenue?")
    assert refused.returncode == 1
    assert "for a long file: 'rkllm-mcp knowledge add FILE'" in refused.stderr, refused.stderr
    assert demo.run_here("knowledge", "add", "big.pdf").returncode == 0
