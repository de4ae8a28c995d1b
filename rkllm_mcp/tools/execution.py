"""Execution policies of tool calls; each part may be omitted.

    Recorded ─▶ Switched ─▶ Approved ─▶ Timed ─▶ Cleaned ─▶ SizeLimited ─▶ TimeLimited ─▶ the server

Every call is recorded, also a failed or cancelled one; approval happens before the clock starts; a result is truncated
before it is searched for call markup.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import anyio

from rkllm_mcp.config import secrets
from rkllm_mcp.config.header_templates import redacted
from rkllm_mcp.config.server_spec import ServerSpec
from rkllm_mcp.mcp_client.timeouts import Stopwatch, time_limit
from rkllm_mcp.messages import ToolCall, ToolResult, ToolSpec
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.records import CallRecord, CallRecorder
from rkllm_mcp.toolcalls.results import cut, paging_arguments
from rkllm_mcp.toolcalls.untrusted_text import without_invisible
from rkllm_mcp.tools.approvals import Approvals, Approved, Caller, Switches


@dataclass(frozen=True)
class TimeLimited:
    """Cancels a call after ``timeout_s`` seconds; the connection stays usable.

    Time spent waiting for a person or for the host's model is not counted.
    """

    inner: Caller
    timeout_s: float

    async def call(self, tool: ToolSpec, call: ToolCall, context: CallContext) -> ToolResult:
        """Return the inner result, or an error result that names the limit."""
        with time_limit(self.timeout_s, context) as (_, limited):
            return await self.inner.call(tool, call, limited)
        text = f"Tool '{call.name}' did not answer within {self.timeout_s:g} s and was stopped."
        return ToolResult(call.id, call.name, text, is_error=True)


@dataclass(frozen=True)
class SizeLimited:
    """Truncates the text of a result to ``limit_chars`` characters."""

    inner: Caller
    limit_chars: int

    async def call(self, tool: ToolSpec, call: ToolCall, context: CallContext) -> ToolResult:
        """Return the inner result, truncated if it is longer."""
        result = await self.inner.call(tool, call, context)
        text, truncated = cut(result.text, self.limit_chars, paging_arguments(tool.input_schema))
        return replace(result, text=text, truncated=truncated)


@dataclass(frozen=True)
class Timed:
    """Records the duration of a call, without the time spent waiting for a person or for the host's model."""

    inner: Caller

    async def call(self, tool: ToolSpec, call: ToolCall, context: CallContext) -> ToolResult:
        """Return the inner result with ``seconds`` set."""
        watch = Stopwatch(context)
        result = await self.inner.call(tool, call, watch.context)
        return replace(result, seconds=watch.seconds())


@dataclass(frozen=True)
class Cleaned:
    """Removes invisible characters and call markup from a result; ``clean`` escapes the call markup."""

    inner: Caller
    clean: Callable[[str], str]

    async def call(self, tool: ToolSpec, call: ToolCall, context: CallContext) -> ToolResult:
        """Return the inner result with cleaned text."""
        result = await self.inner.call(tool, call, context)
        visible, _ = without_invisible(result.text)
        return replace(result, text=self.clean(visible))


@dataclass(frozen=True)
class Switched:
    """Refuses calls of disabled tools."""

    inner: Caller
    switches: Switches

    async def call(self, tool: ToolSpec, call: ToolCall, context: CallContext) -> ToolResult:
        """Return the inner result, or an error result if the tool is disabled."""
        if self.switches.is_on(tool.server, tool.wire_name):
            return await self.inner.call(tool, call, context)
        text = f"Tool '{call.name}' is switched off; answer without it."
        return ToolResult(call.id, call.name, text, is_error=True, ruling="off")


# Enough to identify a call, without storing whole files that a call wrote.
_ARGUMENT_CHARS = 2000
_ERROR_CHARS = 300
_REQUEST_CHARS = 500
_STOPPED = "cancelled before it finished"


@dataclass(frozen=True)
class Recorded:
    """Records every call. ``clock`` returns seconds since 1970; ``now`` is the monotonic clock for cancelled calls."""

    inner: Caller
    recorder: CallRecorder
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
            error=redacted(secrets.redacted_text(first_line), tokens)[:_ERROR_CHARS],
            result_chars=len(result.text),
            seconds=round(result.seconds, 3),
            conversation=context.conversation_id,
            request=redacted(secrets.redacted_text(context.request), tokens)[:_REQUEST_CHARS],
        )


def arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call as compact, redacted JSON."""
    shown = secrets.redacted(dict(call.arguments))
    text = json.dumps(shown, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.encode("utf-8", "replace").decode("utf-8")


# (text of a tool, all tools) -> the text with call markup of these tools escaped.
CleanResult: TypeAlias = Callable[[str, Sequence[ToolSpec]], str]


def _unchanged(text: str, tools: Sequence[ToolSpec] = ()) -> str:
    del tools
    return text


@dataclass(frozen=True)
class Safeguards:
    """Execution policies of a toolbox."""

    approvals: Approvals | None = None  # None: every call is allowed
    recorder: CallRecorder | None = None  # None: calls are not recorded
    switches: Switches = field(default_factory=Switches)
    clean_result: CleanResult = _unchanged
    clean_words: Callable[[str], str] = _unchanged  # removes call markup from tool descriptions

    def around(self, spec: ServerSpec, caller: Caller) -> Caller:
        """Return ``caller`` wrapped in the policies of its server."""
        if self.approvals is not None:
            caller = Approved(caller, spec, self.approvals)
        caller = Switched(caller, self.switches)
        return caller if self.recorder is None else Recorded(caller, self.recorder)
