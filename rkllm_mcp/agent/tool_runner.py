"""``CallRunner``: the calls of one answer, each run once, in parallel where that is safe.

* Read-only tools run at the same time. Any other call waits for those before it, and those after it wait for it;
the configuration can choose all or none instead.
* A repeated call with the same arguments returns the first result, also a failure: a tool that timed out would most
likely take its whole time limit again. After a tool that may have changed something, reading again is a new call.
* A result is stored before its event is emitted, so that a cancelled answer does not lose it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, TypeAlias

from rkllm_mcp.agent.facts import call_key
from rkllm_mcp.agent.failures import REPEATED, has_failed
from rkllm_mcp.agent.repairs import required_arguments, usable_arguments
from rkllm_mcp.agent.tool_set import ToolCaller, ToolSet
from rkllm_mcp.catalogue import status_line
from rkllm_mcp.events import Event, Sources, Status, ToolFinished, ToolProgress
from rkllm_mcp.messages import ToolCall, ToolResult
from rkllm_mcp.protocols import CallContext
from rkllm_mcp.tasks import run_concurrently
from rkllm_mcp.text import first_line, shorten

# Length of the reason of a failed call in a status line.
_MOST_REASON_CHARS = 200

Parallel: TypeAlias = bool | Literal["auto"]
"""Calls of one round that run at the same time: read-only tools (auto), all (True), none (False)."""


class CallRunner:
    """Runs the calls of one answer on ``tools``, with ``context``; ``tool_set`` holds the available tools."""

    def __init__(self, tools: ToolCaller, tool_set: ToolSet, context: CallContext, parallel: Parallel) -> None:
        self._tools = tools
        self._tool_set = tool_set
        self._context = context
        self._sink = context.sink
        self._parallel = parallel
        self._results: dict[str, ToolResult] = {}  # by tool and arguments
        self.finished: dict[str, ToolResult] = {}  # by call id
        self.news = 0  # number of new results

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run the calls of a round and return their results in the order of the calls."""
        for batch in self._batches(calls):
            different: dict[str, ToolCall] = {}
            for call in batch:
                different.setdefault(self._key(call), call)
            await run_concurrently(partial(self._run_call, call) for call in different.values())
            # Repeated calls: their results are available now.
            for call in batch:
                if call.id not in self.finished:
                    await self._run_call(call)
        return [self.finished[call.id] for call in calls]

    def _key(self, call: ToolCall) -> str:
        return call_key(call.name, call.arguments, self._tool_set.tool(call.name))

    def has_result(self, call: ToolCall) -> bool:
        """Return True if the same call was run in this answer; running it again would bring nothing new."""
        return self._key(call) in self._results

    def _batches(self, calls: Sequence[ToolCall]) -> Iterator[list[ToolCall]]:
        """Yield the calls in order, in batches that may run at the same time."""
        batch: list[ToolCall] = []
        for call in calls:
            if batch and not (self._is_safe(batch[-1]) and self._is_safe(call)):
                yield batch
                batch = []
            batch.append(call)
        if batch:
            yield batch

    def _is_safe(self, call: ToolCall) -> bool:
        if isinstance(self._parallel, bool):
            return self._parallel
        tool = self._tool_set.tool(call.name)
        return tool is not None and tool.read_only is True

    async def _run_call(self, call: ToolCall) -> None:
        if (earlier := self._results.get(self._key(call))) is not None:
            text = f"{REPEATED}{earlier.text}"
            result = self.finished[call.id] = replace(earlier, call_id=call.id, text=text, seconds=0.0, sources=None)
        else:
            result = await self._run_tool(call)
        self._sink.feed([finished_event(result), *source_events(result)])

    async def _run_tool(self, call: ToolCall) -> ToolResult:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            self._sink.feed([ToolProgress(call.id, progress, total, message)])
            # A server may send progress faster than any reader takes it.
            await self._sink.drain()

        context = replace(
            self._context, on_progress=on_progress, announcement=status_line("calling", name=call.name, call=call.id)
        )
        tool = self._tool_set.tool(call.name)
        call = replace(call, arguments=usable_arguments(call.arguments, tool))
        result = await self._tools.call(call, context)
        if has_failed(result) and tool is not None and tool.read_only:
            needed = required_arguments(call.arguments, tool, self._context.request)
            if needed != call.arguments:
                again = await self._tools.call(replace(call, arguments=needed), context)
                result = result if again.is_error else again
        self.finished[call.id] = result
        if tool is not None or not result.is_error:
            if tool is not None and tool.read_only is not True and not result.is_error:
                # Earlier readings may be out of date now.
                for key, earlier in list(self._results.items()):
                    reader = self._tool_set.tool(earlier.name)
                    if reader is not None and reader.read_only:
                        del self._results[key]
            self._results[self._key(call)] = result
            self.news += 1
        self._sink.feed([outcome(result, call.id)])
        return result


def outcome(result: ToolResult, call_id: str = "") -> Status:
    """Return the status line of a call that has ended; ``call_id`` is empty for one that the model did not make."""
    if not result.is_error:
        return status_line("found_nothing" if result.sources == () else "completed", name=result.name, call=call_id)
    about = "failed" if call_id else "failed_context"
    reason = shorten(first_line(result.shown), _MOST_REASON_CHARS)
    return status_line(about, name=result.name, reason=reason, call=call_id)


def source_events(result: ToolResult) -> list[Event]:
    """Return the event for the passages that a call found, if any."""
    return [Sources(result.sources)] if result.sources else []


def finished_event(result: ToolResult) -> ToolFinished:
    """Return the event of a call that has ended."""
    seconds, ruling = round(result.seconds, 3), "" if result.ruling == "free" else result.ruling
    return ToolFinished(result.call_id, result.name, result.is_error, result.shown, seconds, result.truncated, ruling)
