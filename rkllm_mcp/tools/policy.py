"""Filters for a server's tools, and wrappers that each add one policy to a tool call.

A wrapper is a ``Caller`` around a ``Caller``. A limit that is exceeded becomes an error result for the model, never an
exception.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Protocol

from rkllm_mcp.calling import CallContext
from rkllm_mcp.messages import ToolCall, ToolResult, ToolSpec
from rkllm_mcp.tools.asked.limits import Stopwatch, time_limit
from rkllm_mcp.tools.content import cut, paging_arguments
from rkllm_mcp.tools.servers import ServerSpec
from rkllm_mcp.tools.trust.hidden import without_hidden
from rkllm_mcp.tools.trust.switches import Switches


class Caller(Protocol):
    """Runs one tool call."""

    async def call(self, tool: ToolSpec, call: ToolCall, context: CallContext) -> ToolResult:
        """Run the call; a failing tool is an error result."""
        ...


def is_offered(spec: ServerSpec, tool: str) -> bool:
    """Return True if ``allowed_tools`` and ``excluded_tools`` admit a tool, given its wire name."""
    allowed = spec.allowed_tools is None or _matches(tool, spec.allowed_tools)
    return allowed and not _matches(tool, spec.excluded_tools)


def is_safe(spec: ServerSpec, tool: str) -> bool:
    """Return True if ``safe_tools`` marks a tool as read-only, given its wire name."""
    return _matches(tool, spec.safe_tools)


def _matches(tool: str, patterns: tuple[str, ...]) -> bool:
    return any(tool == pattern or fnmatchcase(tool, pattern) for pattern in patterns)


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
        visible, _ = without_hidden(result.text)
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
