"""Chat completions: the cached conversation of a request, the rounds of the model, and the response format.

    ChatRequest ─▶ ConversationCache ─▶ rounds of the model, or a reply with the host's tools ─▶ events, an End last

* The client's own tools are never run here: their calls end the answer.
* The host's tools run as in any other reply; calls that need approval are refused, because no user can be asked.
* An answer with a response format is buffered until it is complete, and requested once more if it does not match.
* The conversation is cached for the next request before the ``End`` event, and only after a complete answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from rkllm_mcp.agent.tool_set import TWO_STEPS_NOTE, ToolSet, named
from rkllm_mcp.app.assistant import AnswerStream, Assistant, ReplyOptions
from rkllm_mcp.completions.conversation_cache import ConversationCache, Owner
from rkllm_mcp.completions.request import ChatRequest, RequestRefusedError
from rkllm_mcp.completions.structured_output import FormatMismatchError
from rkllm_mcp.errors import PromptTooLongError
from rkllm_mcp.events import End, Event, Status, Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolResult
from rkllm_mcp.prompt.tool_list import signature
from rkllm_mcp.protocols import ChatModel, EmitEvents, ResponseOptions, Turn

CALL_NOTE = "The answer has to be a call of one of the tools. Call one now."
TOGETHER_NOTE = "Call this again together with the others."
# Any server name: a tool without a server would count as one of the host's.
_PROGRAM = "program"


@dataclass(frozen=True)
class RepairLimits:
    """Limits of the rounds before the answer."""

    repair_rounds: int  # rounds that repeat a failed call
    told_rounds: int  # rounds that reveal the parameters of tools


@dataclass(frozen=True)
class _Round:
    """Outcome of one round of the model."""

    turn: Turn
    revealed: Sequence[ToolResult] = ()  # parameters that the model has to know before its calls are returned

    @property
    def has_calls(self) -> bool:
        """True if the round has calls for the client."""
        return bool(self.turn.calls and not self.revealed)


def noted(asked: Message, note: str) -> list[Message]:
    """Return the last message with a note for the model at its end, so that the cached prefix stays valid."""
    if asked.role == "user":
        return [replace(asked, context="\n\n".join(filter(None, (asked.context, note))))]
    if asked.role == "tool":
        return [replace(asked, text="\n".join(filter(None, (asked.text, note))))]
    return [asked, Message("user", note)]


class Rounds:
    """One answer with the client's tools; ``run`` is used once.

    ``conversation`` ends with the message to answer. With ``may_name``, tools are listed by name if their parameters do
    not fit the context window.
    """

    def __init__(
        self,
        model: ChatModel,
        conversation: Conversation,
        request: ChatRequest,
        patience: RepairLimits,
        emit: EmitEvents,
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
        """Run rounds until there is an answer or a call for the client."""
        done = await self._first_round()
        while True:
            if done.revealed:
                self._untold -= 1
                results, options = done.revealed, self._inside(done.revealed)
            elif self._is_mendable(done):
                self._unmended -= 1
                reasons = [failure.reason for failure in done.turn.failures] or [CALL_NOTE]
                results = [ToolResult("", "tool_call", reason, is_error=True) for reason in reasons]
                options = self._request.options
            else:
                break
            self._conversation.add(Message("tool", results=tuple(results)))
            done = await self._round(options)
        failures = () if done.has_calls else done.turn.failures
        is_cut = done.turn.is_cut and (bool(done.turn.failures) or not done.has_calls)
        end = End("token_limit" if is_cut else "answered")
        await self._emit([*(Text(failure.raw) for failure in failures), end])

    def _is_mendable(self, done: _Round) -> bool:
        options = self._request.options
        must_call = options.any_tool or options.forced_tool is not None
        is_whole = not done.turn.is_cut and not done.has_calls
        return self._unmended > 0 and is_whole and bool(done.turn.failures or must_call)

    def _inside(self, told: Sequence[ToolResult]) -> ResponseOptions:
        """Return the options of the round after revealed parameters: a single call is forced again."""
        options = self._request.options
        return replace(options, forced_tool=told[0].name) if len(told) == 1 else options

    async def _first_round(self) -> _Round:
        conversation, options = self._conversation, self._request.options
        try:
            return await self._round(options)
        except PromptTooLongError:
            # No event was emitted yet: a prompt is refused before it is run.
            if not self._may_name or self._are_named:
                raise
        conversation.listed_tools = tuple(map(named, self._tools))
        conversation.messages[-1:] = noted(conversation.messages[-1], f"[{TWO_STEPS_NOTE}]")
        await self._emit([Status(f"[Context: {len(self._tools)} tools are listed by name alone, to fit the window]")])
        return await self._round(options)

    @property
    def _are_named(self) -> bool:
        return self._conversation.listed_tools is not None

    async def _round(self, options: ResponseOptions) -> _Round:
        """Run one round; calls are withheld to its end if parameters may have to be revealed."""
        conversation = self._conversation
        offer = self._offer(options.forced_tool)
        withholds_calls = self._are_named and self._untold > 0
        withheld: list[ToolCallDetected] = []

        async def forward(events: Sequence[Event]) -> None:
            shown: list[Event] = []
            for event in events:
                if withholds_calls and isinstance(event, ToolCallDetected):
                    withheld.append(event)
                elif not isinstance(event, ToolCallFailed):
                    shown.append(event)
            if shown:
                await self._emit(shown)

        if self._are_named:
            options = replace(options, others=offer.others())
        turn = await self._model.respond(conversation, offer.listed, options, forward)
        revealed = _told(offer, withheld)
        if revealed:
            # The client never receives these calls, so they must not use up call ids.
            conversation.calls_made -= len(withheld)
        elif withheld:
            await self._emit(withheld)
        return _Round(turn, revealed)

    def _offer(self, forced: str | None) -> ToolSet:
        conversation = self._conversation
        if conversation.listed_tools is None:
            return ToolSet(self._request.tools)
        if forced is not None and forced not in conversation.told_tools:
            tool = next(tool for tool in self._tools if tool.name == forced)
            conversation.told_tools[forced] = tool
            conversation.messages[-1:] = noted(conversation.messages[-1], f"[The tool to call: {signature(tool)}]")
        return ToolSet(conversation.listed_tools, self._tools, conversation.told_tools, two_steps=True)


def _told(offer: ToolSet, calls: Sequence[ToolCallDetected]) -> list[ToolResult]:
    """Return the parameters to reveal before these calls are returned; empty if all of them can be."""
    made = [ToolCall(call.id, call.name, call.arguments) for call in calls]
    parameters = [offer.parameters_before(call) for call in made]
    if not any(parameters):
        return []
    return [ToolResult(call.id, call.name, text or TOGETHER_NOTE) for call, text in zip(made, parameters, strict=True)]


NO_CALLS_NOTE = "[Do not call a tool now. Answer in plain words.]"


@dataclass(frozen=True)
class Refusal:
    """The answer does not match the response format; ``text`` is the reason."""

    text: str


Occurrence: TypeAlias = Event | Refusal
EmitOccurrences: TypeAlias = Callable[[Sequence[Occurrence]], Awaitable[None]]

# Adds these messages to the conversation, answers the last one and emits the events of the answer.
_Ask: TypeAlias = Callable[[Sequence[Message], EmitEvents], Awaitable[None]]


@dataclass
class _Seen:
    """The part of the answer that the client has received."""

    text: list[str] = field(default_factory=list[str])
    calls: list[ToolCall] = field(default_factory=list[ToolCall])

    def take(self, event: Occurrence, *, calls: bool) -> None:
        """Add an event; ``calls`` is True if calls are returned to the client."""
        if isinstance(event, (Text, Refusal)):
            self.text.append(event.text)
        elif calls and isinstance(event, ToolCallDetected):
            self.calls.append(ToolCall(event.id, event.name, event.arguments))

    def message(self) -> Message:
        """Return the answer as a message."""
        return Message("assistant", "".join(self.text), calls=tuple(self.calls))


async def complete(
    app: Assistant, threads: ConversationCache, request: ChatRequest, emit: EmitOccurrences, tenant: str = ""
) -> None:
    """Answer a request; the last event is always an ``End``, unless the caller is cancelled.

    Args:
        app: the assistant.
        threads: the cached conversations.
        request: the request.
        emit: takes the events in batches, in order.
        tenant: the client's tenant.

    Raises:
        RequestRefusedError: the host's tools are requested, but the last message is not the user's.
        UsageError: the assistant is closed.
    """
    asked = request.messages[-1]
    if request.host_tools and asked.role != "user":
        raise RequestRefusedError("with the host's tools the last message is the user's question", "messages")
    owner = Owner(app.core.chat_model, tenant, None if request.host_tools else request.tools)
    new = app.new_conversation if request.host_tools else Conversation
    branch = threads.branch(owner, request.messages, request.calls_made, new)
    conversation = branch.conversation
    start = len(conversation.messages)
    seen, is_kept = _Seen(), False
    ask = (
        _ask_the_host(app, conversation, request) if request.host_tools else _ask_the_model(app, conversation, request)
    )

    async def keep(events: Sequence[Occurrence]) -> None:
        nonlocal is_kept
        for event in events:
            seen.take(event, calls=not request.host_tools)
            if isinstance(event, End) and event.reason not in {"failed", "cancelled"}:
                is_kept = True
                threads.keep(branch, seen.message(), asked_at=_asked_at(conversation, start, asked))
        await emit(events)

    try:
        await _in_form(ask, request, keep)
    finally:
        if not is_kept:
            threads.drop(branch)


def _asked_at(conversation: Conversation, start: int, asked: Message) -> int:
    """Return the number of messages up to the question; a first reply may insert a system text before it."""
    messages = conversation.messages
    places = (place for place in range(start, len(messages)) if messages[place].role == asked.role)
    return next(places, start) + 1


def _ask_the_host(app: Assistant, conversation: Conversation, request: ChatRequest) -> _Ask:
    """Return the function that answers with the host's tools."""
    wish = request.options
    options = ReplyOptions(
        tools=not wish.no_calls,
        max_new_tokens=wish.max_new_tokens,
        force_tool=wish.forced_tool,
        tokens=request.tokens,
        sampling=wish.sampling,
        stop=wish.stop,
        thinking=wish.thinking,
    )

    async def ask(messages: Sequence[Message], emit: EmitEvents) -> None:
        words = (part for message in messages for part in (message.context, message.text))
        await app.answer(conversation, "\n\n".join(filter(None, words)), emit, options)

    return ask


def _ask_the_model(app: Assistant, conversation: Conversation, request: ChatRequest) -> _Ask:
    """Return the function that answers with the client's tools."""
    not_now = request.options.no_calls and request.tools
    model, agent = app.core.chat_model, app.config.agent
    patience = RepairLimits(agent.repair_rounds, agent.max_rounds)

    async def ask(messages: Sequence[Message], emit: EmitEvents) -> None:
        async def work(running: AnswerStream) -> None:
            *before, last = messages
            conversation.messages += [*before, *(noted(last, NO_CALLS_NOTE) if not_now else [last])]
            may_name = app.core.npu is not None
            await Rounds(model, conversation, request, patience, running.emit, may_name=may_name).run()

        await app.run(conversation, work, emit)

    return ask


class _Held:
    """An answer whose text is held back; its other events are forwarded to ``emit``."""

    def __init__(self, emit: EmitOccurrences) -> None:
        self._emit = emit
        self.words: list[str] = []
        self.has_calls = False
        self.end = End("failed")

    async def take(self, events: Sequence[Event]) -> None:
        """Take events of the answer."""
        passed: list[Event] = []
        for event in events:
            if isinstance(event, Text):
                self.words.append(event.text)
            elif isinstance(event, End):
                self.end = event
            else:
                if isinstance(event, ToolCallDetected):
                    # Text before a call is not part of a JSON answer.
                    self.has_calls = True
                    self.words.clear()
                passed.append(event)
        if passed:
            await self._emit(passed)


async def _in_form(ask: _Ask, request: ChatRequest, emit: EmitOccurrences) -> None:
    """Emit the events of an answer; with a response format its text follows once it matches."""
    asked, form = request.messages[-1], request.form
    if form is None:
        await ask([asked], emit)
        return
    messages = noted(asked, form.told())
    for is_last in (False, True):
        held = _Held(emit)
        await ask(messages, held.take)
        text = "".join(held.words)
        is_whole = held.end.reason == "answered" and not (held.has_calls and not request.host_tools)
        try:
            said: Text | Refusal = Text(form.read(text) if is_whole else text)
        except FormatMismatchError as misfit:
            if not is_last:
                messages = [Message("user", form.told_again(misfit))]
                continue
            said = Refusal(f"The model gave no answer of the form that was asked for: {misfit}. Its answer was: {text}")
        await emit([said, held.end] if said.text else [held.end])
        return
