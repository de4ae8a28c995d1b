"""The loop: rounds of the model and its tools until there is an answer.

    model ─▶ text, calls ─▶ tools ─▶ results ─▶ model ─▶ … ─▶ text: the answer

Rules:
* At most ``max_rounds`` rounds may call tools; then the model is told so and must answer in text.
* A call that cannot be read, or names no tool, goes back as one line the model can mend it by. After ``repair_rounds``
rounds in a row that brought nothing new, the model must answer in text.
* The same call with the same arguments runs once in an answer, also when it failed: the second time its first result
is given again. A tool that timed out would most likely cost its whole limit again.
* A failing tool is a value the model reads. An exception means the machine failed: the answer ends as ``failed`` and
says why.
* The conversation is left ready for the next question however the answer ends: every call has a result, the one it
came to where it was run.

It knows a ``ChatModel`` and a ``ToolCaller``, not who they are.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Protocol

import anyio

from rkllm_mcp.calling import NO_CONTEXT, CallContext, OnProgress
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

ROUND_LIMIT_NOTE = (
    "[The limit of tool rounds is reached. Do not call tools any more. Answer the user now with what you have.]"
)
CALLS_OVER = "no more tools are run for this answer"
REPAIR_LIMIT_NOTE = "[Do not try this call again. Answer the user now in plain text.]"
NO_ANSWER = "[No answer within the limit of tool rounds; ask again in smaller steps.]"
SILENCE = "[Model: it ended its answer without a word; ask again in other words]"


class ToolCaller(Protocol):
    """What the loop needs of a toolbox."""

    async def call(self, call: ToolCall, context: CallContext = NO_CONTEXT) -> ToolResult:
        """Run a call; a failing tool is a result, never an exception."""
        ...


@dataclass(frozen=True)
class LoopSettings:
    """The loop's limits.

    Args:
        max_rounds: rounds that may call tools.
        repair_rounds: rounds in a row in which nothing but unreadable, unknown or repeated calls came, before the model
            must answer in text.
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
    has_words: bool = False
    is_cut: bool = False


class Loop:
    """One answer in the making. ``run`` is used once.

    Args:
        model: who answers.
        tools: who runs calls.
        specs: the tools the model is shown, in a stable order.
        settings: the limits.
        emit: takes the events in order.
        context: what accompanies every call.
    """

    def __init__(
        self,
        model: ChatModel,
        tools: ToolCaller,
        specs: Sequence[ToolSpec],
        settings: LoopSettings,
        emit: Emit,
        context: CallContext = NO_CONTEXT,
    ) -> None:
        self._model = model
        self._tools = tools
        self._specs = {spec.name: spec for spec in specs}
        self._settings = settings
        self._emit = emit
        self._context = context
        self._results: dict[str, ToolResult] = {}  # by what was called
        self._finished: dict[str, ToolResult] = {}  # by the call's id

    async def run(self, conversation: Conversation, text: str, options: ResponseOptions) -> None:
        """Answer ``text``; the last event is always an ``End``, except when the caller cancels or ``emit`` raises."""
        start = len(conversation.messages)
        conversation.add(Message("user", text))
        reason_for_open_calls = "the user stopped the answer before this call was finished"
        try:
            end = End(await self._rounds(conversation, options))
            reason_for_open_calls = CALLS_OVER
        except GenerationError as error:
            if isinstance(error, PromptTooLongError) and not _has_results(conversation, start):
                # The question that does not fit must not stand in the way of the next one.
                conversation.replace(conversation.messages[:start])
            end = End("failed", str(error))
            reason_for_open_calls = "the answer failed before this call was run"
        except Exception:
            reason_for_open_calls = "the answer failed before this call was finished"
            raise
        finally:
            self._close_open_calls(conversation, reason_for_open_calls)
        await self._emit(end)

    async def _rounds(self, conversation: Conversation, options: ResponseOptions) -> EndReason:
        repairs = 0
        for left in reversed(range(self._settings.max_rounds)):
            done = await self._respond(conversation, options)
            options = replace(options, forced_tool=None)
            if done.is_cut and not done.calls:
                return "token_limit"
            if not done.calls and not done.failures:
                if not done.has_words:
                    await self._emit(Status(SILENCE))
                return "answered"
            known = len(self._results)
            results = await self._results_of(done)
            repairs = 0 if len(self._results) > known else repairs + 1
            if repairs > self._settings.repair_rounds:
                conversation.add(Message("tool", REPAIR_LIMIT_NOTE, results=results))
                return await self._last_round(conversation, options, "answered")
            conversation.add(Message("tool", "" if left else ROUND_LIMIT_NOTE, results=results))
        return await self._last_round(conversation, options, "round_limit")

    async def _last_round(self, conversation: Conversation, options: ResponseOptions, reason: EndReason) -> EndReason:
        """A round in which calls are not run any more; what they leave unsaid is said by the host."""
        done = await self._respond(conversation, options, calls_allowed=False)
        if not done.has_words and not done.is_cut:
            await self._emit(Text(NO_ANSWER))
        return "token_limit" if done.is_cut else reason

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
                elif isinstance(event, Text):
                    done.has_words = done.has_words or bool(event.text.strip())
                await self._emit(event)
        done.is_cut = conversation.messages[-1].cut
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
            await self._run_in_parallel(done.calls)
        for call in done.calls:
            if call.id not in self._finished:
                await self._call(call)
        return (*(self._finished[call.id] for call in done.calls), *_refusals(done.failures))

    async def _run_in_parallel(self, calls: Sequence[ToolCall]) -> None:
        """Run the calls that differ at the same time; the others have to wait for their results."""
        different: dict[str, ToolCall] = {}
        for call in calls:
            different.setdefault(_key(call), call)
        failures: list[Exception] = []

        async def one(call: ToolCall) -> None:
            try:
                await self._call(call)
            except Exception as error:  # noqa: BLE001  (raised again below: the task group would wrap it in a group)
                failures.append(error)
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for call in different.values():
                group.start_soon(one, call)
        if failures:
            raise failures[0]

    async def _call(self, call: ToolCall) -> None:
        if (earlier := self._results.get(_key(call))) is not None:
            text = f"(Called before with the same arguments; this is the same result.)\n{earlier.text}"
            result = self._finished[call.id] = replace(earlier, call_id=call.id, text=text, seconds=0.0)
        else:
            result = await self._run_tool(call)
        await self._emit(
            ToolFinished(call.id, call.name, result.is_error, result.text, round(result.seconds, 3), result.truncated)
        )

    async def _run_tool(self, call: ToolCall) -> ToolResult:
        await self._emit(Status(f"[MCP: Calling tool '{call.name}']"))
        result = await self._tools.call(call, replace(self._context, on_progress=self._progress_of(call)))
        # Kept before anybody is told: whoever leaves now must not make the model forget what was done.
        self._finished[call.id] = result
        if call.name in self._specs or not result.is_error:
            self._results[_key(call)] = result
        outcome = f"failed: {_first_line(result.text)}" if result.is_error else "completed"
        await self._emit(Status(f"[MCP: Tool '{call.name}' {outcome}]"))
        return result

    def _progress_of(self, call: ToolCall) -> OnProgress:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            await self._emit(ToolProgress(call.id, progress, total, message))

        return on_progress

    def _close_open_calls(self, conversation: Conversation, reason: str) -> None:
        """Give every call of the last turn a result, so that the history stays one that models accept."""
        last = conversation.messages[-1] if conversation.messages else None
        if last is not None and last.calls:
            refused = (ToolResult(call.id, call.name, reason, is_error=True) for call in last.calls)
            results = tuple(self._finished.get(result.call_id, result) for result in refused)
            conversation.add(Message("tool", results=results))


def _refusals(failures: Sequence[ToolCallFailed]) -> tuple[ToolResult, ...]:
    return tuple(ToolResult("", "tool_call", failure.reason, is_error=True) for failure in failures)


def _key(call: ToolCall) -> str:
    return f"{call.name} {json.dumps(dict(call.arguments), sort_keys=True, ensure_ascii=False)}"


def _has_results(conversation: Conversation, start: int) -> bool:
    return any(message.role == "tool" for message in conversation.messages[start:])


def _first_line(text: str, limit_chars: int = 200) -> str:
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= limit_chars else f"{line[:limit_chars]}…"
