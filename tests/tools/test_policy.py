"""Which tools are offered, and what the wrappers change."""

from __future__ import annotations

from dataclasses import dataclass

import anyio
import pytest

from rkllm_mcp.config.server_spec import ServerSpec
from rkllm_mcp.config.servers import is_offered
from rkllm_mcp.messages import ToolCall, ToolResult, ToolSpec
from rkllm_mcp.protocols import NO_CONTEXT, CallContext
from rkllm_mcp.tools.execution import SizeLimited, Timed, TimeLimited

TOOL = ToolSpec("t")
CALL = ToolCall("call_1", "t", {})
HOW = "; call it again for a smaller part to see them"


@dataclass(frozen=True)
class Says:
    text: str

    async def call(self, tool: ToolSpec, call: ToolCall, context: CallContext) -> ToolResult:
        return ToolResult(call.id, tool.name, self.text)


@dataclass(frozen=True)
class NeverAnswers:
    async def call(self, tool: ToolSpec, call: ToolCall, context: CallContext) -> ToolResult:
        await anyio.sleep_forever()
        raise AssertionError


def test_every_tool_is_offered_unless_the_configuration_says_otherwise() -> None:
    assert is_offered(ServerSpec("s"), "read")
    assert not is_offered(ServerSpec("s", excluded_tools=("read",)), "read")
    assert not is_offered(ServerSpec("s", allowed_tools=("write",)), "read")
    assert is_offered(ServerSpec("s", allowed_tools=("re*",)), "read")
    assert not is_offered(ServerSpec("s", allowed_tools=("read", "write"), excluded_tools=("w*",)), "write")
    assert not is_offered(ServerSpec("s", allowed_tools=()), "read")
    assert is_offered(ServerSpec("s", allowed_tools=("odd[name]",)), "odd[name]")


@pytest.mark.anyio
async def test_a_call_that_takes_too_long_becomes_a_result_that_says_so() -> None:
    result = await TimeLimited(NeverAnswers(), 0.01).call(TOOL, CALL, NO_CONTEXT)
    assert result == ToolResult("call_1", "t", "Tool 't' did not answer within 0.01 s and was stopped.", is_error=True)


@pytest.mark.anyio
async def test_a_long_result_is_cut_and_marked() -> None:
    limited = SizeLimited(Says("0123456789"), 4)
    assert await limited.call(TOOL, CALL, NO_CONTEXT) == ToolResult(
        "call_1", "t", f"0123\n… truncated, 6 more characters{HOW}", truncated=True
    )
    assert (await SizeLimited(Says("0123"), 4).call(TOOL, CALL, NO_CONTEXT)).truncated is False


@pytest.mark.anyio
async def test_a_result_says_how_long_it_took() -> None:
    assert (await Timed(Says("x")).call(TOOL, CALL, NO_CONTEXT)).seconds > 0
