"""What tools say to the user's words before the model does: ``auto_context_tool``.

Every such tool is called with the words, all at the same time; what they say goes into the user's turn. One that fails
or takes no text is left out with a status line: a question must not fail because of what was to help with it. How long
a call may take is its server's ``timeout_s``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from rkllm_mcp.agent.calls import first_line
from rkllm_mcp.agent.finding import ToolCaller
from rkllm_mcp.agent.questions import Emit
from rkllm_mcp.agent.together import together
from rkllm_mcp.calling import CallContext
from rkllm_mcp.events import Status
from rkllm_mcp.messages import ToolCall, ToolResult, ToolSpec

# The name that most search tools give the argument.
_USUAL_NAME = "query"


@dataclass(frozen=True)
class Finding:
    """What one tool said."""

    tool: ToolSpec
    text: str


def text_argument(tool: ToolSpec) -> str | None:
    """The argument that takes the user's words: the one required text, else ``query``, else the one text there is."""
    schemas: Mapping[str, Any] = tool.input_schema.get("properties") or {}
    texts = [name for name, schema in schemas.items() if _takes_text(schema)]
    required = [name for name in texts if name in tool.input_schema.get("required", ())]
    if len(required) == 1:
        return required[0]
    if _USUAL_NAME in texts:
        return _USUAL_NAME
    return texts[0] if len(texts) == 1 and not required else None


async def gather_context(
    tools: Sequence[ToolSpec], words: str, caller: ToolCaller, context: CallContext, emit: Emit
) -> list[Finding]:
    """Call every tool with the user's words; what those that worked said, in the order of ``tools``."""
    results: dict[str, ToolResult] = {}

    async def ask(tool: ToolSpec, argument: str) -> None:
        await emit(Status(f"[MCP: Calling tool '{tool.name}']"))
        call = ToolCall("", tool.name, {argument: words})
        # It was not chosen for these words, so nothing is to be learnt from it.
        result = await caller.call(call, replace(context, request=""))
        results[tool.name] = result
        outcome = f"failed and is left out: {first_line(result.text)}" if result.is_error else "completed"
        await emit(Status(f"[MCP: Tool '{tool.name}' {outcome}]"))

    asked = {tool.name: text_argument(tool) for tool in tools}
    for name in [name for name, argument in asked.items() if argument is None]:
        await emit(Status(f"[MCP: Tool '{name}' is left out: it takes no text, as an auto_context_tool has to]"))
    await together(partial(ask, tool, argument) for tool in tools if (argument := asked[tool.name]) is not None)
    said = ((tool, results[tool.name]) for tool in tools if tool.name in results)
    return [Finding(tool, result.text) for tool, result in said if not result.is_error and result.text.strip()]


def _takes_text(schema: Any) -> bool:
    kind: Any = cast("Mapping[str, Any]", schema).get("type") if isinstance(schema, Mapping) else None
    return kind == "string" or (isinstance(kind, list) and "string" in kind)
