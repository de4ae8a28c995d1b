"""Chat completions: the cached conversation of a request, the model rounds, and the response format.

    ChatRequest ─▶ ConversationCache ─▶ model rounds, or a reply with the host's tools ─▶ events, an End last

* The client's own tools are never run here: their calls end the answer.
* The host's tools run as in any other reply; calls that need approval are refused, because no user can be asked.
* An answer with a response format is buffered until it is complete, and requested once more if it does not match.
* The conversation is cached for the next request before the ``End`` event, and only after a complete answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from rkllm_mcp.agent.loop import LoopSettings, ReturnCalls, run_agent
from rkllm_mcp.agent.tool_set import ToolSet, named
from rkllm_mcp.app.assistant import AnswerStream, Assistant
from rkllm_mcp.catalogue import translate
from rkllm_mcp.completions.conversation_cache import ConversationCache, Owner
from rkllm_mcp.completions.request import ChatRequest, EmitOccurrences, Occurrence, Refusal, RequestRefusedError
from rkllm_mcp.completions.structured_output import FormatMismatchError
from rkllm_mcp.errors import NoCallError, PromptTooLongError
from rkllm_mcp.events import End, EndReason, Event, Status, Text, ToolCallDetected
from rkllm_mcp.generation import AnswerOptions
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolSpec
from rkllm_mcp.prompt.tool_list import signature
from rkllm_mcp.protocols import ChatModel, EmitEvents, Turn

# Any server name: a tool without a server would count as one of the host's.
_PROGRAM = "program"


def noted(asked: Message, note: str) -> list[Message]:
    """Return the last message with a note for the model at its end, so that the cached prefix stays valid."""
    if asked.role == "user":
        return [replace(asked, context="\n\n".join(filter(None, (asked.context, note))))]
    if asked.role == "tool":
        return [replace(asked, text="\n".join(filter(None, (asked.text, note))))]
    return [asked, Message("user", note)]


async def _answer_with_client_tools(
    model: ChatModel,
    conversation: Conversation,
    request: ChatRequest,
    settings: LoopSettings,
    emit: EmitEvents,
    *,
    may_name: bool,
) -> None:
    """Answer the last message, or return a call; with ``may_name``, tools that do not fit are listed by name."""
    options = request.options
    must_call = options.tool_choice not in {"auto", "none"}
    start = len(conversation.messages)

    async def run() -> tuple[EndReason, Turn]:
        calls = ReturnCalls(conversation, _tool_set(conversation, request), emit, must_call=must_call)
        return await run_agent(model, conversation, calls, options, settings, emit)

    can_name = may_name and bool(request.tools) and conversation.listed_tools is None
    try:
        reason, turn = await run()
    except PromptTooLongError:
        # Only before the first round: the client has received events of a later one.
        if not can_name or len(conversation.messages) > start:
            raise
        tools = _with_server(request.tools)
        conversation.listed_tools = tuple(map(named, tools))
        conversation.messages[-1:] = noted(conversation.messages[-1], f"[{translate('model.two_steps')}]")
        await emit([Status(f"[Context: {len(tools)} tools are listed by name alone, to fit the window]")])
        reason, turn = await run()
    failures = () if turn.calls else turn.failures
    if must_call and not turn.calls:
        # Markup as content would be taken for an answer.
        if reason != "token_limit":
            # Behind its first sentence a reason addresses the model.
            raise NoCallError(failures[-1].reason.partition(". ")[0] if failures else "")
        failures = ()
    await emit([*(Text(failure.raw) for failure in failures), End(reason, stop_string=turn.stop_string)])


def _tool_set(conversation: Conversation, request: ChatRequest) -> ToolSet:
    """Return the client's tools; the parameters of a forced tool are revealed if it is listed by name."""
    if conversation.listed_tools is None:
        return ToolSet(request.tools)
    tools, forced = _with_server(request.tools), request.options.forced_tool
    if forced is not None and forced not in conversation.told_tools:
        tool = next(tool for tool in tools if tool.name == forced)
        conversation.told_tools[forced] = tool
        conversation.messages[-1:] = noted(conversation.messages[-1], f"[The tool to call: {signature(tool)}]")
    return ToolSet(conversation.listed_tools, tools, conversation.told_tools, two_steps=True)


def _with_server(tools: Sequence[ToolSpec]) -> list[ToolSpec]:
    return [replace(tool, server=_PROGRAM) for tool in tools]


NO_CALLS_NOTE = "[Do not call a tool now. Answer in plain words.]"


# Adds these messages to the conversation, answers the last one and emits the events of the answer.
_Ask: TypeAlias = Callable[[Sequence[Message], EmitEvents], Awaitable[None]]


async def complete(
    app: Assistant, cache: ConversationCache, request: ChatRequest, emit: EmitOccurrences, tenant: str = ""
) -> None:
    """Answer a request of a tenant's client; the last event is always an ``End``, unless the caller is cancelled.

    With the host's tools the last message has to be the user's, else it is a RequestRefusedError.
    """
    asked = request.messages[-1]
    if request.host_tools and asked.role != "user":
        raise RequestRefusedError("with the host's tools the last message is the user's question", "messages")
    owner = Owner(app.model_host.chat_model, tenant, None if request.host_tools else request.tools)
    new = app.new_conversation if request.host_tools else Conversation
    branch = cache.branch(owner, request.messages, request.calls_made, new)
    conversation = branch.conversation
    start = len(conversation.messages)
    ask = (_ask_the_host if request.host_tools else _ask_the_model)(app, conversation, request)
    # The part of the answer that the client has received.
    text: list[str] = []
    calls: list[ToolCall] = []
    is_kept = False

    async def keep(events: Sequence[Occurrence]) -> None:
        nonlocal is_kept
        for event in events:
            if isinstance(event, (Text, Refusal)):
                text.append(event.text)
            elif isinstance(event, ToolCallDetected) and not request.host_tools:
                calls.append(ToolCall(event.id, event.name, event.arguments))
            elif isinstance(event, End) and event.reason not in {"failed", "cancelled"}:
                is_kept = True
                answer = Message("assistant", "".join(text), calls=tuple(calls))
                cache.keep(branch, answer, asked_at=_asked_at(conversation, start, asked))
        await emit(events)

    try:
        await _in_form(ask, request, keep)
    finally:
        if not is_kept:
            cache.drop(branch)


def _asked_at(conversation: Conversation, start: int, asked: Message) -> int:
    """Return the number of messages up to the question; a first reply may insert a system text before it."""
    messages = conversation.messages
    places = (place for place in range(start, len(messages)) if messages[place].role == asked.role)
    return next(places, start) + 1


def _ask_the_host(app: Assistant, conversation: Conversation, request: ChatRequest) -> _Ask:
    options = AnswerOptions(
        request.options,
        request.options.tool_choice != "none",
        allowed_tools=request.allowed_tools,
        tokens=request.tokens,
    )

    async def ask(messages: Sequence[Message], emit: EmitEvents) -> None:
        words = (part for message in messages for part in (message.context, message.text))
        await app.answer(conversation, "\n\n".join(filter(None, words)), emit, options)

    return ask


def _ask_the_model(app: Assistant, conversation: Conversation, request: ChatRequest) -> _Ask:
    not_now = request.options.tool_choice == "none" and request.tools
    model, agent = app.model_host.chat_model, app.config.agent
    # Every counted round but the first repeats a failed call.
    settings = LoopSettings(agent.repair_rounds + 1, agent.repair_rounds, reveal_rounds=agent.max_rounds)

    async def ask(messages: Sequence[Message], emit: EmitEvents) -> None:
        async def work(running: AnswerStream) -> None:
            *before, last = messages
            conversation.messages += [*before, *(noted(last, NO_CALLS_NOTE) if not_now else [last])]
            may_name = app.model_host.npu is not None
            await _answer_with_client_tools(model, conversation, request, settings, running.emit, may_name=may_name)

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
