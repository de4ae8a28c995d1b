"""The agent loop: rounds of the model and its tools until there is an answer.

    model ─▶ text, calls ─▶ tools ─▶ results ─▶ model ─▶ … ─▶ text: the answer

* At most ``max_rounds`` rounds may call tools; then the model must answer in text. A round that only revealed the
parameters of a tool does not count.
* A call that cannot be parsed, or of an unknown tool, is returned to the model as a line that lets it correct the
call. After ``repair_rounds`` rounds in a row without a new result, the model must answer in text.
* A failed tool is a result for the model. An exception means that the machine failed: the answer ends as ``failed``.
* However the answer ends, every call in the conversation has a result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rkllm_mcp.agent.instructions import ResponseInstructions, TurnPreparation, TurnRequest
from rkllm_mcp.agent.tool_runner import CallRunner, Parallel
from rkllm_mcp.agent.tool_set import ToolCaller, ToolSet
from rkllm_mcp.errors import GenerationError, PromptTooLongError
from rkllm_mcp.events import End, EndReason, Event, Status, Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolResult, ToolSpec
from rkllm_mcp.protocols import NO_CONTEXT, CallContext, ChatModel, EmitEvents, ResponseOptions, Turn

ROUND_LIMIT_NOTE = (
    "[The limit of tool rounds is reached. Do not call tools any more. Answer the user now with what you have.]"
)
CALLS_OVER = "no more tools are run for this answer"
REPAIR_LIMIT_NOTE = "[Do not try this call again. Answer the user now in plain text.]"
NO_ANSWER = "[No answer within the limit of tool rounds; ask again in smaller steps.]"
SILENCE = "[Model: it ended its answer without a word; ask again in other words]"


@dataclass(frozen=True)
class LoopSettings:
    """Limits of the loop."""

    max_rounds: int = 8  # rounds that may call tools
    repair_rounds: int = 2  # rounds in a row with only failed, unknown or repeated calls before a text answer
    parallel_tools: Parallel = "auto"  # calls of one round that run at the same time


class Loop:
    """One answer; ``run`` is used once.

    ``tools`` runs the calls of tools in ``offer``, with ``context``; ``instructions`` follow the results.
    """

    def __init__(
        self,
        model: ChatModel,
        tools: ToolCaller,
        offer: ToolSet,
        settings: LoopSettings,
        emit: EmitEvents,
        context: CallContext = NO_CONTEXT,
        instructions: ResponseInstructions | None = None,
    ) -> None:
        self._model = model
        self._offer = offer
        self._settings = settings
        self._emit = emit
        self._instructions = instructions or ResponseInstructions()
        self._calls = CallRunner(tools, offer, emit, context, settings.parallel_tools)

    async def run(
        self,
        conversation: Conversation,
        text: str,
        options: ResponseOptions,
        *,
        told_with_it: str = "",
        preceding: Sequence[Message] = (),
    ) -> None:
        """Answer ``text``; the last event is always an ``End``, except when the caller cancels or ``emit`` raises.

        Args:
            conversation: the question and the answer are added to it.
            text: the user's text.
            options: options of the model's responses.
            told_with_it: context that precedes the text in the same turn.
            preceding: turns to add before the question, such as those of a server's prompt.
        """
        start = len(conversation.messages)
        conversation.messages.extend(preceding)
        conversation.add(Message("user", text, context=told_with_it))
        reason_for_open_calls = "the user stopped the answer before this call was finished"
        try:
            end = End(await self._rounds(conversation, options))
            reason_for_open_calls = CALLS_OVER
        except GenerationError as error:
            if isinstance(error, PromptTooLongError) and not _has_results(conversation, start):
                # A question that does not fit is removed, so that the next one can be answered.
                conversation.replace(conversation.messages[:start])
            end = End("failed", str(error), error)
            reason_for_open_calls = "the answer failed before this call was run"
        except Exception:
            reason_for_open_calls = "the answer failed before this call was finished"
            raise
        finally:
            self._close_open_calls(conversation, reason_for_open_calls)
        await self._emit([end])

    async def _rounds(self, conversation: Conversation, options: ResponseOptions) -> EndReason:
        repairs = 0
        left = untold = self._settings.max_rounds
        while left:
            turn = await self._respond(conversation, options)
            options = replace(options, forced_tool=None)
            if turn.is_cut and not turn.calls:
                return "token_limit"
            if not turn.calls and not turn.failures:
                if not turn.has_text:
                    await self._emit([Status(SILENCE)])
                return "answered"
            known = self._calls.news
            results = await self._results_of(turn)
            if self._calls.told and untold:
                untold -= 1
                options = replace(options, forced_tool=self._calls.told[0] if len(turn.calls) == 1 else None)
            else:
                left -= 1
                repairs = 0 if self._calls.news > known else repairs + 1
            if repairs > self._settings.repair_rounds:
                conversation.add(Message("tool", REPAIR_LIMIT_NOTE, results=results))
                return await self._last_round(conversation, options, "answered")
            notes = self._instructions.after(self._answering(turn.calls))
            notes += [] if left else [ROUND_LIMIT_NOTE]
            conversation.add(Message("tool", "\n".join(notes), results=results))
        return await self._last_round(conversation, options, "round_limit")

    async def _last_round(self, conversation: Conversation, options: ResponseOptions, reason: EndReason) -> EndReason:
        """Run a round whose calls are refused; emit a notice if it has no text."""
        turn = await self._respond(conversation, options, calls_allowed=False)
        if not turn.has_text and not turn.is_cut:
            await self._emit([Text(NO_ANSWER)])
        return "token_limit" if turn.is_cut else reason

    async def _respond(
        self, conversation: Conversation, options: ResponseOptions, *, calls_allowed: bool = True
    ) -> Turn:
        async def forward(events: Sequence[Event]) -> None:
            shown = list(events)
            for index, event in enumerate(shown):
                if isinstance(event, ToolCallDetected):
                    shown[index] = self._shown(event, calls_allowed)
            await self._emit(shown)

        options = replace(options, others=self._offer.others())
        return await self._model.respond(conversation, self._offer.listed, options, forward)

    def _shown(self, event: ToolCallDetected, calls_allowed: bool) -> Event:
        if not calls_allowed:
            return ToolCallFailed(event.raw, CALLS_OVER)
        tool = self._offer.tool(event.name)
        return replace(event, server=tool.server if tool else "")

    async def _results_of(self, turn: Turn) -> tuple[ToolResult, ...]:
        count = len(turn.calls)
        if count:
            await self._emit([Status(f"[MCP: Detected {count} tool call{'s' if count > 1 else ''}]")])
        return (*await self._calls.run(turn.calls), *_refusals(turn.failures))

    def _answering(self, calls: Sequence[ToolCall]) -> Iterator[ToolSpec]:
        """Yield the tools of ``calls`` that ran without an error."""
        for call in calls:
            tool = self._offer.tool(call.name)
            if tool is not None and call.name not in self._calls.told and not self._calls.finished[call.id].is_error:
                yield tool

    def _close_open_calls(self, conversation: Conversation, reason: str) -> None:
        """Give every call of the last turn a result: chat templates and services require one."""
        last = conversation.messages[-1] if conversation.messages else None
        if last is not None and last.calls:
            refused = (ToolResult(call.id, call.name, reason, is_error=True) for call in last.calls)
            results = tuple(self._calls.finished.get(result.call_id, result) for result in refused)
            conversation.add(Message("tool", results=results))


def _refusals(failures: Sequence[ToolCallFailed]) -> tuple[ToolResult, ...]:
    return tuple(ToolResult("", "tool_call", failure.reason, is_error=True) for failure in failures)


def _has_results(conversation: Conversation, start: int) -> bool:
    return any(message.role == "tool" for message in conversation.messages[start:])


async def answer(
    model: ChatModel,
    briefing: TurnPreparation,
    conversation: Conversation,
    assignment: TurnRequest,
    settings: LoopSettings,
    emit: EmitEvents,
    context: CallContext,
    wishes: ResponseOptions | None = None,
) -> None:
    """Answer a question; the last event is always an ``End``, except when the caller cancels or ``emit`` raises.

    Args:
        model: the model that answers.
        briefing: prepares tools, instructions and context.
        conversation: the question and the answer are added to it; unchanged if the question does not fit.
        assignment: the question and the tools it may use.
        settings: limits of the loop.
        emit: takes the events in order.
        context: context of every call.
        wishes: options of the model's responses, including the forced tool.
    """
    listed, told = conversation.listed_tools, dict(conversation.told_tools)
    asked = assignment.asked
    context = replace(context, request=asked.text)
    brief = await briefing.prepare(conversation, assignment, context, emit)
    length = len(conversation.messages)
    loop = Loop(model, brief.caller, brief.offer, settings, emit, context, brief.instructions)
    options = wishes or ResponseOptions(forced_tool=assignment.forced)
    try:
        await loop.run(conversation, asked.text, options, told_with_it=brief.context, preceding=asked.preceding)
    finally:
        if len(conversation.messages) == length:
            # The question was removed, and with it the tools that its turn described.
            conversation.listed_tools, conversation.told_tools = listed, told
