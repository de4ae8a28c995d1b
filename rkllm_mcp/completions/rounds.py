"""The rounds of the model for a program that brings its own tools.

    conversation ─▶ model ─▶ words, calls for the program to make ─▶ End
                      └── a call that cannot be read, or of a tool that was listed by name alone: told, and once more

Rules:
* A call is never run here: it ends the answer. One that cannot be read is told the model, which may mend it
  ``repair_rounds`` times; what it said last is shown as it was said.
* Tools are listed whole. Where a request does not fit the window so, they are listed by name, for the rest of the
  conversation: the parameters of a tool are told when it is first called, and the program sees the call behind that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from rkllm_mcp.agent.offer import TWO_STEPS_NOTE, Offer, named
from rkllm_mcp.agent.questions import Emit
from rkllm_mcp.completions.request import ChatRequest
from rkllm_mcp.errors import PromptTooLongError
from rkllm_mcp.events import End, Status, Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolResult
from rkllm_mcp.prompt.signatures import signature
from rkllm_mcp.providers import ChatModel, ResponseOptions

CALL_NOTE = "The answer has to be a call of one of the tools. Call one now."
TOGETHER_NOTE = "Call this again together with the others."
# Any name will do: a tool without a server would count as one of the host's.
_PROGRAM = "program"


@dataclass(frozen=True)
class Patience:
    """How many rounds an answer may take beside the one that answers.

    Args:
        repair_rounds: in which calls that cannot be read are mended.
        told_rounds: in which the parameters of tools are told.
    """

    repair_rounds: int
    told_rounds: int


@dataclass
class _Round:
    """What came of one round."""

    calls: int = 0
    is_cut: bool = False
    failures: list[ToolCallFailed] = field(default_factory=list[ToolCallFailed])
    # Instead of calls, when parameters have to be known first.
    told: list[ToolResult] = field(default_factory=list[ToolResult])


def noted(asked: Message, note: str) -> list[Message]:
    """What is asked, with a line for the model: behind all that was said, so that nothing before it is read again."""
    if asked.role == "user":
        return [replace(asked, context="\n\n".join(filter(None, (asked.context, note))))]
    if asked.role == "tool":
        return [replace(asked, text="\n".join(filter(None, (asked.text, note))))]
    return [asked, Message("user", note)]


class Rounds:
    """One answer in the making. ``run`` is used once.

    Args:
        model: who answers.
        conversation: grown as far as what is asked.
        request: what is asked.
        patience: the limits.
        emit: takes the events in order, an End last.
        may_name: tools may be listed by name where they do not fit otherwise.
    """

    def __init__(
        self,
        model: ChatModel,
        conversation: Conversation,
        request: ChatRequest,
        patience: Patience,
        emit: Emit,
        *,
        may_name: bool = True,
    ) -> None:
        self._model = model
        self._conversation = conversation
        self._request = request
        self._unmended, self._untold = patience.repair_rounds, patience.told_rounds
        self._emit = emit
        self._may_name = may_name and bool(request.tools)
        self._tools = [replace(tool, server=_PROGRAM) for tool in request.tools]

    async def run(self) -> None:
        """Rounds until there is an answer, or a call for the program to make."""
        done = await self._first_round()
        while True:
            if done.told:
                self._untold -= 1
                results, options = done.told, self._inside(done.told)
            elif self._is_mendable(done):
                self._unmended -= 1
                reasons = [failure.reason for failure in done.failures] or [CALL_NOTE]
                results = [ToolResult("", "tool_call", reason, is_error=True) for reason in reasons]
                options = self._request.options
            else:
                break
            self._conversation.add(Message("tool", results=tuple(results)))
            done = await self._round(options)
        for failure in () if done.calls else done.failures:
            await self._emit(Text(failure.raw))
        await self._emit(End("token_limit" if done.is_cut and (done.failures or not done.calls) else "answered"))

    def _is_mendable(self, done: _Round) -> bool:
        options = self._request.options
        must_call = options.any_tool or options.forced_tool is not None
        return self._unmended > 0 and not done.is_cut and not done.calls and bool(done.failures or must_call)

    def _inside(self, told: Sequence[ToolResult]) -> ResponseOptions:
        """The wishes for the round behind told parameters: the model goes on inside the call where there is one."""
        options = self._request.options
        return replace(options, forced_tool=told[0].name) if len(told) == 1 else options

    async def _first_round(self) -> _Round:
        conversation, options = self._conversation, self._request.options
        try:
            return await self._round(options)
        except PromptTooLongError:
            # Nothing was shown yet: a prompt is refused before it is run.
            if not self._may_name or self._are_named:
                raise
        conversation.listed_tools = tuple(map(named, self._tools))
        conversation.messages[-1:] = noted(conversation.messages[-1], f"[{TWO_STEPS_NOTE}]")
        await self._emit(Status(f"[Context: {len(self._tools)} tools are listed by name alone, to fit the window]"))
        return await self._round(options)

    @property
    def _are_named(self) -> bool:
        return self._conversation.listed_tools is not None

    async def _round(self, options: ResponseOptions) -> _Round:
        """One round; its calls go out as they come, or together at its end where parameters may have to be told."""
        conversation, done = self._conversation, _Round()
        offer = self._offer(options.forced_tool)
        held: list[ToolCallDetected] = []
        wishes = replace(options, others=offer.others()) if self._are_named else options
        async with aclosing(self._model.respond(conversation, offer.listed, wishes)) as events:
            async for event in events:
                if isinstance(event, ToolCallFailed):
                    done.failures.append(event)
                    continue
                done.calls += isinstance(event, ToolCallDetected)
                if self._are_named and self._untold and isinstance(event, ToolCallDetected):
                    held.append(event)
                    continue
                await self._emit(event)
        done.is_cut = conversation.messages[-1].cut
        done.told = _told(offer, held)
        if done.told:
            # The program never sees these calls, and numbers those that it sees.
            conversation.calls_made -= len(held)
            done.calls = 0
        for call in () if done.told else held:
            await self._emit(call)
        return done

    def _offer(self, forced: str | None) -> Offer:
        conversation = self._conversation
        if conversation.listed_tools is None:
            return Offer(self._request.tools)
        if forced is not None and forced not in conversation.told_tools:
            tool = next(tool for tool in self._tools if tool.name == forced)
            conversation.told_tools[forced] = tool
            conversation.messages[-1:] = noted(conversation.messages[-1], f"[The tool to call: {signature(tool)}]")
        return Offer(conversation.listed_tools, self._tools, conversation.told_tools, two_steps=True)


def _told(offer: Offer, calls: Sequence[ToolCallDetected]) -> list[ToolResult]:
    """What the model has to be told before these calls are worth making; nothing where all of them are."""
    made = [ToolCall(call.id, call.name, call.arguments) for call in calls]
    parameters = [offer.parameters_before(call) for call in made]
    if not any(parameters):
        return []
    return [ToolResult(call.id, call.name, text or TOGETHER_NOTE) for call, text in zip(made, parameters, strict=True)]
