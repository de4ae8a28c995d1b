"""Which tools of a server are offered, and wrappers around the way to a tool that each change one thing about it.

A wrapper is a ``Caller`` around a ``Caller``; the toolbox decides the order. A wrapper turns a limit into a result that
the model reads; it never raises because of one.
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
    """A way to run one call of a tool."""

    async def call(self, tool: ToolSpec, call: ToolCall, context: CallContext) -> ToolResult:
        """Run it; a failing tool is a result."""
        ...


def is_offered(spec: ServerSpec, tool: str) -> bool:
    """Whether ``allowed_tools`` and ``excluded_tools`` let a tool through, by the server's own name of it."""
    allowed = spec.allowed_tools is None or _matches(tool, spec.allowed_tools)
    return allowed and not _matches(tool, spec.excluded_tools)


def is_safe(spec: ServerSpec, tool: str) -> bool:
    """Whether ``safe_tools`` says that a tool only reads, by the server's own name of it."""
    return _matches(tool, spec.safe_tools)


def _matches(tool: str, patterns: tuple[str, ...]) -> bool:
    return any(tool == pattern or fnmatchcase(tool, pattern) for pattern in patterns)


@dataclass(frozen=True)
class TimeLimited:
    """Stops a call after ``timeout_s`` seconds; the server is told, and stays usable.

    What a person, or our own model, takes to answer the server is not counted.
    """

    inner: Caller
    timeout_s: float

    async def call(self, tool: ToolSpec, call: ToolCall, context: CallContext) -> ToolResult:
        """The inner result, or one that says how long was waited."""
        with time_limit(self.timeout_s, context) as (_, limited):
            return await self.inner.call(tool, call, limited)
        text = f"Tool '{call.name}' did not answer within {self.timeout_s:g} s and was stopped."
        return ToolResult(call.id, call.name, text, is_error=True)


@dataclass(frozen=True)
class SizeLimited:
    """Cuts what a tool says to ``limit_chars`` characters."""

    inner: Caller
    limit_chars: int

    async def call(self, tool: ToolSpec, call: ToolCall, context: CallContext) -> ToolResult:
        """The inner result, cut when it is longer."""
        result = await self.inner.call(tool, call, context)
        text, truncated = cut(result.text, self.limit_chars, paging_arguments(tool.input_schema))
        return replace(result, text=text, truncated=truncated)


@dataclass(frozen=True)
class Timed:
    """Writes into a result how long it took, without the wait for a person or our own model."""

    inner: Caller

    async def call(self, tool: ToolSpec, call: ToolCall, context: CallContext) -> ToolResult:
        """The inner result with its ``seconds``."""
        watch = Stopwatch(context)
        result = await self.inner.call(tool, call, watch.context)
        return replace(result, seconds=watch.seconds())


@dataclass(frozen=True)
class Cleaned:
    """Takes out of a result what a person does not see, and what would be a call if the model repeated it.

    Args:
        inner: the way to the tool.
        clean: the text in which no tool is called.
    """

    inner: Caller
    clean: Callable[[str], str]

    async def call(self, tool: ToolSpec, call: ToolCall, context: CallContext) -> ToolResult:
        """The inner result with a clean text."""
        result = await self.inner.call(tool, call, context)
        visible, _ = without_hidden(result.text)
        return replace(result, text=self.clean(visible))


@dataclass(frozen=True)
class Switched:
    """Refuses the calls of tools that are switched off.

    Args:
        inner: the way to the tool.
        switches: which are.
    """

    inner: Caller
    switches: Switches

    async def call(self, tool: ToolSpec, call: ToolCall, context: CallContext) -> ToolResult:
        """The inner result, or one that says that the tool is off."""
        if self.switches.is_on(tool.server, tool.wire_name):
            return await self.inner.call(tool, call, context)
        text = f"Tool '{call.name}' is switched off; answer without it."
        return ToolResult(call.id, call.name, text, is_error=True, ruling="off")
