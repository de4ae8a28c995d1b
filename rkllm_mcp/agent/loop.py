"""The loop: rounds of the model and its tools until there is an answer.

    model ─▶ text, calls ─▶ tools ─▶ results ─▶ model ─▶ … ─▶ text: the answer

Rules:
* At most ``max_rounds`` rounds may call tools; then the model is told so and must answer in text.
* A call that cannot be read, or names no tool, goes back as one line the model can mend it by; at most
``repair_rounds`` times in a row.
* The same call with the same arguments runs once in an answer; the second time its first result is given again.
* A failing tool is a value the model reads. An exception means the machine failed: the answer ends as ``failed`` and
says why.
* The conversation is left ready for the next question however the answer ends.

It knows a ``ChatModel`` and a ``ToolCaller``, not who they are.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Protocol

import anyio

from rkllm_mcp.errors import GenerationError, PromptTooLongError
from rkllm_mcp.events import (
    End,
    EndReason,
    Event,
    Status,
    Text,
    ToolCallDetected,
    ToolCallFailed,
    ToolFinished,
    ToolProgress,
)
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolResult, ToolSpec
from rkllm_mcp.providers import ChatModel, ResponseOptions

Emit = Callable[[Event], Awaitable[None]]
OnProgress = Callable[[float, "float | None", "str | None"], Awaitable[None]]

ROUND_LIMIT_NOTE = (
    "[The limit of tool rounds is reached. Do not call tools any more. Answer the user now with what you have.]"
)
CALLS_OVER = "no more tools are run for this answer"
REPAIR_LIMIT_NOTE = "[Do not try this call again. Answer the user now in plain text.]"


class ToolCaller(Protocol):
    """What the loop needs of a toolbox."""

    async def call(self, call: ToolCall, on_progress: OnProgress | None = None) -> ToolResult:
        """Run a call; a failing tool is a result, never an exception."""
        ...


@dataclass(frozen=True)
class LoopSettings:
    """The loop's limits.

    Args:
        max_rounds: rounds that may call tools.
        repair_rounds: rounds in a row in which nothing but unreadable calls came, before the model must answer in text.
        parallel_tools: the calls of one round run at the same time; their results keep the order of the calls.
    """

    max_rounds: int = 8
    repair_rounds: int = 2
    parallel_tools: bool = False


@dataclass
class _Round:
    """What came of one round of the model."""

    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    failures: list[ToolCallFailed] = field(default_factory=list[ToolCallFailed])
    cut: bool = False


class Loop:
    """One answer in the making. ``run`` is used once.

    Args:
        model: who answers.
        tools: who runs calls.
        specs: the tools the model is shown, in a stable order.
        settings: the limits.
        emit: takes the events in order.
    """

    def __init__(
        self, model: ChatModel, tools: ToolCaller, specs: Sequence[ToolSpec], settings: LoopSettings, emit: Emit
    ) -> None:
        self._model = model
        self._tools = tools
        self._specs = {spec.name: spec for spec in specs}
        self._settings = settings
        self._emit = emit
        self._results: dict[str, ToolResult] = {}

    async def run(self, conversation: Conversation, text: str, options: ResponseOptions) -> None:
        """Answer ``text``; the last event is always an ``End``, except when the caller cancels."""
        start = len(conversation.messages)
        conversation.add(Message("user", text))
        try:
            reason = await self._rounds(conversation, options)
        except PromptTooLongError as error:
            # The question that does not fit must not stand in the way of the next one.
            conversation.replace(conversation.messages[:start])
            await self._emit(End("failed", str(error)))
        except GenerationError as error:
            _close_open_calls(conversation, "the answer failed before this call was run")
            await self._emit(End("failed", str(error)))
        except anyio.get_cancelled_exc_class():
            _close_open_calls(conversation, "the user stopped the answer before this call was finished")
            raise
        else:
            _close_open_calls(conversation, CALLS_OVER)
            await self._emit(End(reason))

    async def _rounds(self, conversation: Conversation, options: ResponseOptions) -> EndReason:
        repairs = 0
        for _ in range(self._settings.max_rounds):
            done = await self._respond(conversation, options)
            options = replace(options, forced_tool=None)
            if done.cut and not done.calls:
                return "token_limit"
            if not done.calls and not done.failures:
                return "answered"
            repairs = 0 if done.calls else repairs + 1
            if repairs > self._settings.repair_rounds:
                conversation.add(Message("tool", REPAIR_LIMIT_NOTE, results=_refusals(done.failures)))
                return await self._last_round(conversation, options, "answered")
            results = await self._results_of(done)
            conversation.add(Message("tool", results=results))
        last = conversation.messages[-1]
        conversation.messages[-1] = replace(last, text=ROUND_LIMIT_NOTE)
        return await self._last_round(conversation, options, "round_limit")

    async def _last_round(self, conversation: Conversation, options: ResponseOptions, reason: EndReason) -> EndReason:
        """A round in which calls are not run any more; what they leave unsaid is said by the host."""
        done = await self._respond(conversation, options, calls_allowed=False)
        if done.failures and not conversation.messages[-1].text.strip():
            await self._emit(Text("[No answer within the limit of tool rounds; ask again in smaller steps.]"))
        return "token_limit" if done.cut else reason

    async def _respond(
        self, conversation: Conversation, options: ResponseOptions, *, calls_allowed: bool = True
    ) -> _Round:
        done = _Round()
        async with aclosing(self._model.respond(conversation, tuple(self._specs.values()), options)) as events:
            async for event in events:
                if isinstance(event, ToolCallDetected):
                    event = self._accepted(event, done, allowed=calls_allowed)
                elif isinstance(event, ToolCallFailed):
                    done.failures.append(event)
                await self._emit(event)
        done.cut = conversation.messages[-1].cut
        return done

    def _accepted(self, event: ToolCallDetected, done: _Round, *, allowed: bool) -> Event:
        if not allowed:
            failure = ToolCallFailed(event.raw, CALLS_OVER)
            done.failures.append(failure)
            return failure
        done.calls.append(ToolCall(event.id, event.name, event.arguments, event.raw, event.repaired))
        spec = self._specs.get(event.name)
        return replace(event, server=spec.server if spec else "")

    async def _results_of(self, done: _Round) -> tuple[ToolResult, ...]:
        count = len(done.calls)
        if count:
            await self._emit(Status(f"[MCP: Detected {count} tool call{'s' if count > 1 else ''}]"))
        if self._settings.parallel_tools and count > 1:
            results = await self._in_parallel(done.calls)
        else:
            results = [await self._call(call) for call in done.calls]
        return (*results, *_refusals(done.failures))

    async def _in_parallel(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        results: dict[int, ToolResult] = {}

        async def one(index: int, call: ToolCall) -> None:
            results[index] = await self._call(call)

        async with anyio.create_task_group() as group:
            for index, call in enumerate(calls):
                group.start_soon(one, index, call)
        return [results[index] for index in range(len(calls))]

    async def _call(self, call: ToolCall) -> ToolResult:
        key = f"{call.name} {json.dumps(dict(call.arguments), sort_keys=True, ensure_ascii=False)}"
        if (earlier := self._results.get(key)) is not None:
            result = replace(
                earlier,
                call_id=call.id,
                text=f"(Called before with the same arguments; this is the same result.)\n{earlier.text}",
                seconds=0.0,
            )
        else:
            await self._emit(Status(f"[MCP: Calling tool '{call.name}']"))
            result = await self._tools.call(call, self._progress_of(call))
            self._results[key] = result
            outcome = f"failed: {_first_line(result.text)}" if result.is_error else "completed"
            await self._emit(Status(f"[MCP: Tool '{call.name}' {outcome}]"))
        await self._emit(
            ToolFinished(call.id, call.name, result.is_error, result.text, round(result.seconds, 3), result.truncated)
        )
        return result

    def _progress_of(self, call: ToolCall) -> OnProgress:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            await self._emit(ToolProgress(call.id, progress, total, message))

        return on_progress


def _refusals(failures: Sequence[ToolCallFailed]) -> tuple[ToolResult, ...]:
    return tuple(ToolResult("", "tool_call", failure.reason, is_error=True) for failure in failures)


def _close_open_calls(conversation: Conversation, reason: str) -> None:
    """Give every call of the last turn a result, so that the history stays one that models accept."""
    last = conversation.messages[-1]
    if last.role == "assistant" and last.calls:
        results = tuple(ToolResult(call.id, call.name, reason, is_error=True) for call in last.calls)
        conversation.add(Message("tool", results=results))


def _first_line(text: str, limit_chars: int = 200) -> str:
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= limit_chars else f"{line[:limit_chars]}…"
