"""Tools in this process: found, checked, called, bounded, and never the end of anything else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from rkllm_mcp.builtin.server import MAKERS, open_builtin
from rkllm_mcp.config.servers import OWN_TOOLS, BuiltinServer, BuiltinTool
from rkllm_mcp.mcp_client.wire_log import LastLines
from rkllm_mcp.messages import ToolCall
from rkllm_mcp.protocols import NO_CONTEXT
from rkllm_mcp.tools.tool_servers import open_toolbox
from rkllm_mcp.tools.toolbox import Toolbox
from tests.support import local_tools
from tests.support.clock import standing_clock, turn

pytestmark = pytest.mark.anyio

HOME = "tests.support.local_tools"
PATIENCE_S = 60
NUMBERS = {"properties": {"a": {"type": "integer", "minimum": 0}, "b": {"type": "integer"}}, "required": ["a"]}


def local(name: str, entry_point: str, **more: Any) -> BuiltinTool:
    return BuiltinTool(name=name, entry_point=f"{HOME}:{entry_point}", **more)


async def called(tool: BuiltinTool, arguments: dict[str, Any] | None = None, **spec: Any) -> str:
    """The text of a result, ``error: `` before it when it is one."""
    async with open_builtin(BuiltinServer(name="b", tools=(tool,), **spec), LastLines().add) as tools:
        result = await tools.call(tool.name, arguments or {}, NO_CONTEXT)
    text = result["content"][0]["text"]
    return f"error: {text}" if result["isError"] else text


def test_the_configuration_knows_the_names_of_our_tools() -> None:
    assert tuple(MAKERS) == OWN_TOOLS


CALLS: list[tuple[BuiltinTool, dict[str, Any], str]] = [
    (local("t", "add", input_schema=NUMBERS), {"a": "2"}, '{"sum":3}'),
    (local("t", "wait_a_moment"), {"text": "ok"}, "ok"),
    (local("t", "promise"), {"text": "ok"}, "ok"),
    (local("t", "nothing"), {}, ""),
    (local("t", "Tools.inner"), {}, "inner"),
    (local("t", "thing"), {}, "\"<class 'set'>\""),
    (local("t", "fail"), {}, "error: Tool 't' failed: RuntimeError: the disk is full"),
    (local("t", "leave"), {}, "error: Tool 't' failed: RuntimeError: it tried to leave by SystemExit"),
    (local("t", "add", input_schema=NUMBERS), {}, "error: The argument 'a' is missing."),
    (local("t", "add", input_schema=NUMBERS), {"a": "x"}, "error: The argument 'a' must be integer, not \"x\"."),
    (
        local("t", "add", input_schema=NUMBERS),
        {"a": -1},
        "error: The argument 'a' cannot be used: -1 is less than the minimum of 0.",
    ),
    (local("t", "add", input_schema={"properties": {"a": {"$ref": "http://127.0.0.1:1/x"}}}), {"a": 1}, '{"sum":2}'),
]


@pytest.mark.parametrize(("tool", "arguments", "text"), CALLS)
async def test_a_function_is_called_with_what_its_schema_allows(
    tool: BuiltinTool, arguments: dict[str, Any], text: str
) -> None:
    assert await called(tool, arguments) == text


async def test_tools_that_cannot_be_loaded_are_left_out_with_a_note_and_the_others_serve() -> None:
    tools = (
        BuiltinTool(name="clock"),
        BuiltinTool(name="clock"),
        BuiltinTool(name="nothing_runs_it", description="?", input_schema=NUMBERS),
        BuiltinTool(name="missing", entry_point="no_such_package.x:f"),
        local("not_there", "no_such_function"),
        local("no_function", "NOT_A_FUNCTION"),
        local("bad_schema", "add", input_schema={"type": "array"}),
        local("worse_schema", "add", input_schema={"properties": 5}),
        local("good", "add", description="Adds", input_schema=NUMBERS, read_only=True),
    )
    notes = LastLines()
    async with open_builtin(BuiltinServer(name="b", tools=tools), notes.add) as loaded:
        assert [(tool.name, tool.read_only) for tool in loaded.tools] == [("clock", True), ("good", True)]
        assert loaded.tools[1].input_schema == {"type": "object", **NUMBERS}
    not_a_function = f"is not a function; name a function of {HOME}"
    reasons = {
        "nothing_runs_it": f"it has no entry_point; name its function, or call it one of {', '.join(OWN_TOOLS)}",
        "missing": (
            "its entry_point needs the module 'no_such_package', which is not installed; "
            "install it, or correct 'no_such_package.x:f'"
        ),
        "not_there": f"its entry_point '{HOME}:no_such_function' {not_a_function}",
        "no_function": f"its entry_point '{HOME}:NOT_A_FUNCTION' {not_a_function}",
        "bad_schema": "its input_schema has the type 'array'; arguments are an object",
        "worse_schema": "its input_schema is not JSON Schema: properties: 5 is not of type 'object'",
    }
    assert notes.shown() == (
        "(tool 'clock' is listed twice; the first is used)",
        *(f"(tool {name!r} is left out: {reason})" for name, reason in reasons.items()),
    )


async def test_a_module_that_fails_when_imported_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_that_fails.py").write_text("raise SystemExit('no')\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    lines: list[str] = []
    server = BuiltinServer(name="b", tools=(BuiltinTool(name="t", entry_point="module_that_fails:f"),))
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([server], on_status=lines.append) as toolbox:
            await toolbox.wait_until_connected()
    assert lines[0].startswith(
        "[MCP: Server 'b' is left out: its entry_point 'module_that_fails:f' cannot be imported: SystemExit: no; "
        "correct the module]"
    )


@standing_clock
async def test_a_function_that_does_not_return_costs_its_caller_a_timeout() -> None:
    server = BuiltinServer(name="b", tools=(local("hang", "hang"), BuiltinTool(name="calculator")), timeout_s=30.0)
    hung: list[tuple[bool, str]] = []

    async def hang(toolbox: Toolbox, number: int) -> None:
        result = await toolbox.call(ToolCall(str(number), "hang", {}))
        hung.append((result.is_error, result.text))

    local_tools.gate.clear()
    try:
        with anyio.fail_after(PATIENCE_S):
            async with open_toolbox([server]) as toolbox:
                await toolbox.wait_until_connected()
                async with anyio.create_task_group() as callers:
                    for number in range(8):
                        callers.start_soon(hang, toolbox, number)
                        await anyio.to_thread.run_sync(local_tools.waiting.acquire)
                    await turn(30.0)
                assert hung == [(True, "Tool 'hang' did not answer within 30 s and was stopped.")] * 8
                busy = await toolbox.call(ToolCall("9", "hang", {}))
                assert busy.text == "It is still busy with former calls; answer without it."
                free = await toolbox.call(ToolCall("10", "calculator", {"expression": "6 * 7"}))
                assert free.text == "42"
    finally:
        local_tools.gate.set()


async def test_our_tools_are_called_by_their_names() -> None:
    device = [("npu load", "core 0 12 %"), ("temperature", "45 °C")]
    server = BuiltinServer(
        name="b", tools=tuple(BuiltinTool(name=name) for name in OWN_TOOLS), excluded_tools=("clock",)
    )
    with anyio.fail_after(PATIENCE_S):
        async with open_toolbox([server], read_device=lambda: device) as toolbox:
            await toolbox.wait_until_connected()
            assert [tool.name for tool in toolbox.tools()] == ["calculator", "convert_units", "device_status"]
            results = [
                await toolbox.call(ToolCall("1", "calculator", {"expression": "1 + 1"})),
                await toolbox.call(ToolCall("2", "convert_units", {"value": "1", "from_unit": "km", "to_unit": "m"})),
                await toolbox.call(ToolCall("3", "device_status", {})),
                await toolbox.call(ToolCall("4", "calculator", {"expression": "1 +"})),
            ]
    assert [(result.is_error, result.text) for result in results] == [
        (False, "2"),
        (False, "1 km = 1000 m"),
        (False, "npu load: core 0 12 %\ntemperature: 45 °C"),
        (True, "'1 +' is not an expression; write numbers, + - * / ** and brackets."),
    ]


async def test_our_tools_may_be_described_in_other_words() -> None:
    tool = BuiltinTool(
        name="calculator", description="電卓", input_schema={"properties": {"expression": {"type": "string"}}}
    )
    async with open_builtin(BuiltinServer(name="b", tools=(tool,)), LastLines().add) as tools:
        assert tools.tools[0].description == "電卓"
        assert "required" not in tools.tools[0].input_schema


async def test_a_machine_that_tells_nothing_is_an_answer() -> None:
    assert await called(BuiltinTool(name="device_status")) == (
        "error: This machine does not report its NPU, temperature or memory."
    )
