"""Record every tool call: tool, arguments, decision, duration, outcome.

Arguments and errors are redacted; of a result only its size is stored, of an error its first line.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import anyio

from rkllm_mcp.calling import CallContext
from rkllm_mcp.config import redaction
from rkllm_mcp.messages import ToolCall, ToolResult, ToolSpec
from rkllm_mcp.records import CallRecord, Recorder
from rkllm_mcp.tools.asked.limits import Stopwatch
from rkllm_mcp.tools.policy import Caller
from rkllm_mcp.tools.tokens import redacted

# Enough to identify a call, without storing whole files that a call wrote.
_ARGUMENT_CHARS = 2000
_ERROR_CHARS = 300
_REQUEST_CHARS = 500
_STOPPED = "cancelled before it finished"


@dataclass(frozen=True)
class Recorded:
    """Records every call. ``clock`` returns seconds since 1970; ``now`` is the monotonic clock for cancelled calls."""

    inner: Caller
    recorder: Recorder
    clock: Callable[[], float] = time.time
    now: Callable[[], float] = anyio.current_time

    async def call(self, tool: ToolSpec, call: ToolCall, context: CallContext) -> ToolResult:
        """Run and record the call."""
        watch = Stopwatch(context, self.now)
        # Also recorded if cancelled: the call may already have had its effect.
        result = ToolResult(call.id, call.name, _STOPPED, is_error=True, ruling="stopped")
        try:
            result = await self.inner.call(tool, call, watch.context)
        finally:
            if result.ruling == "stopped":
                result = replace(result, seconds=watch.seconds())
            self.recorder.record(self._record(tool, call, context, result))
        return result

    def _record(self, tool: ToolSpec, call: ToolCall, context: CallContext, result: ToolResult) -> CallRecord:
        tokens = tuple(context.tokens.values())
        first_line = result.text.strip().split("\n", 1)[0] if result.is_error else ""
        return CallRecord(
            at=self.clock(),
            server=tool.server,
            tool=tool.wire_name or tool.name,
            arguments=redacted(arguments_text(call), tokens)[:_ARGUMENT_CHARS],
            ruling=result.ruling or "free",
            is_error=result.is_error,
            error=redacted(redaction.redacted_text(first_line), tokens)[:_ERROR_CHARS],
            result_chars=len(result.text),
            seconds=round(result.seconds, 3),
            conversation=context.conversation_id,
            request=redacted(redaction.redacted_text(context.request), tokens)[:_REQUEST_CHARS],
        )


def arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call as compact, redacted JSON."""
    shown = redaction.redacted(dict(call.arguments))
    text = json.dumps(shown, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.encode("utf-8", "replace").decode("utf-8")
