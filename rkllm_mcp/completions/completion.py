"""Chat completions: the cached conversation of a request, the model rounds, and the response format.

    ChatRequest ─▶ ConversationCache ─▶ model rounds, or a reply with the host's tools ─▶ events, an End last

* The client's own tools are never run here: their calls end the answer.
* The host's tools run as in any other reply; calls that need approval are refused, because no user can be asked.
* An answer with a response format is buffered until it is complete, and requested once more if it does not match; the
  second that does not match is an error, since a program reads any content as the form that it asked for.
* The conversation is cached for the next request before the ``End`` event, and only after a complete answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from rkllm_mcp.agent.handlers import ReturnCalls
from rkllm_mcp.agent.loop import LoopSettings, run_agent
from rkllm_mcp.agent.tool_set import ToolSet, without_parameters
from rkllm_mcp.app.assistant import App
from rkllm_mcp.catalogue import status_line, translate
from rkllm_mcp.completions.conversation_cache import CachedConversation, ConversationCache, Owner
from rkllm_mcp.completions.request import ChatRequest, RequestRefusedError
from rkllm_mcp.completions.structured_output import FormatMismatchError, ResponseFormat
from rkllm_mcp.errors import AnswerFormatError, NoCallError, PromptTooLongError
from rkllm_mcp.events import End, Event, Text, ToolCallDetected
from rkllm_mcp.generation import AnswerOptions
from rkllm_mcp.messages import Conversation, Message, ToolCall
from rkllm_mcp.prompt.tool_list import signature
from rkllm_mcp.protocols import ChatModel, EventSink, Step, feed_through
from rkllm_mcp.tasks import run_costly

# Any server name: a tool without a server would count as one of the host's.
_PROGRAM = "program"


def with_note(message: Message, note: str) -> list[Message]:
    """Return the last message with a note for the model at its end, so that the cached prefix stays valid."""
    if message.role == "user":
        return [replace(message, context="\n\n".join(filter(None, (message.context, note))))]
    if message.role == "tool":
        return [replace(message, text="\n".join(filter(None, (message.text, note))))]
    return [message, Message("user", note)]


async def _answer_with_client_tools(
    model: ChatModel,
    conversation: Conversation,
    request: ChatRequest,
    settings: LoopSettings,
    sink: EventSink,
    *,
    may_name: bool,
) -> End:
    """Answer the last message, or return a call; with ``may_name``, tools that do not fit are listed by name."""
    options = request.options
    must_call = options.tool_choice not in {"auto", "none"}
    start = len(conversation.messages)
    while True:
        tools = ToolSet(request.tools)
        if conversation.listed_tools is not None:
            # Listed by name: the parameters of a forced tool are revealed.
            named = [replace(tool, server=_PROGRAM) for tool in request.tools]
            forced = options.forced_tool
            if forced is not None and forced not in conversation.revealed_tools:
                tool = next(tool for tool in named if tool.name == forced)
                conversation.revealed_tools[forced] = tool
                note = f"[The tool to call: {signature(tool)}]"
                conversation.messages[-1:] = with_note(conversation.messages[-1], note)
            tools = ToolSet(conversation.listed_tools, named, conversation.revealed_tools)
        calls = ReturnCalls(conversation, tools, sink, must_call=must_call)
        try:
            reason, turn = await run_agent(model, conversation, calls, options, settings, sink)
            break
        except PromptTooLongError:
            # Only before the first round: the client has received events of a later one.
            is_first = len(conversation.messages) == start and conversation.listed_tools is None
            if not (is_first and request.tools and may_name):
                raise
            named = [replace(tool, server=_PROGRAM) for tool in request.tools]
            conversation.listed_tools = tuple(map(without_parameters, named))
            conversation.messages[-1:] = with_note(conversation.messages[-1], f"[{translate('model.two_steps')}]")
            sink.feed([status_line("names_only", count=len(named))])
    failures = () if turn.calls else turn.failures
    if must_call and not turn.calls:
        # Markup as content would be taken for an answer.
        if reason != "token_limit":
            # After its first sentence a reason addresses the model.
            raise NoCallError(failures[-1].reason.partition(". ")[0] if failures else "")
        failures = ()
    if failures:
        sink.feed([Text(failure.raw) for failure in failures])
    return End(reason, stop_string=turn.stop_string)


NO_CALLS_NOTE = "[Do not call a tool now. Answer in plain words.]"


@dataclass(eq=False)
class _CacheStep(Step):
    """The step that caches the conversation of a complete answer for the client's next request."""

    cache: ConversationCache
    branch: CachedConversation
    request: ChatRequest
    start: int  # number of messages before the answer
    # The part of the answer that the client has received.
    _text: list[str] = field(default_factory=list[str], init=False)
    _calls: list[ToolCall] = field(default_factory=list[ToolCall], init=False)
    is_cached: bool = field(default=False, init=False)

    def feed(self, batch: Sequence[Event]) -> Sequence[Event]:
        """Note the events; at the ``End`` of a complete answer the conversation is cached."""
        for event in batch:
            if isinstance(event, Text):
                self._text.append(event.text)
            elif isinstance(event, ToolCallDetected) and not self.request.host_tools:
                self._calls.append(ToolCall(event.id, event.name, event.arguments))
            elif (
                isinstance(event, End)
                and event.reason not in {"failed", "cancelled", "interrupted"}
                # Of an answer that is continued the client has two parts, and sends them as one.
                and not self.request.options.continues
            ):
                self.is_cached = True
                answer = Message("assistant", "".join(self._text), calls=tuple(self._calls))
                # A first reply may insert a system text before the question.
                messages, role = self.branch.conversation.messages, self.request.messages[-1].role
                positions = (index for index in range(self.start, len(messages)) if messages[index].role == role)
                self.cache.keep(self.branch, answer, asked_at=next(positions, self.start) + 1)
        return batch


@dataclass(eq=False)
class _FormatStep(Step):
    """The step that holds the text of an answer with a response format back until it is checked."""

    form: ResponseFormat
    host_tools: bool
    _has_retried: bool = field(default=False, init=False)
    _text: list[str] = field(default_factory=list[str], init=False)
    _has_calls: bool = field(default=False, init=False)
    _end: End = field(default_factory=lambda: End("failed"), init=False)

    def feed(self, batch: Sequence[Event]) -> Sequence[Event]:
        """Hold text and ``End`` back; return the other events."""
        passed: list[Event] = []
        for event in batch:
            if isinstance(event, Text):
                self._text.append(event.text)
            elif isinstance(event, End):
                self._end = event
            else:
                if isinstance(event, ToolCallDetected):
                    # Text before a call is not part of a JSON answer.
                    self._has_calls = True
                    self._text.clear()
                passed.append(event)
        return passed

    def check_answer(self) -> tuple[str, Sequence[Event]]:
        """Return an instruction to answer again, once if the answer does not match; else the rest of the events."""
        text, is_complete = "".join(self._text), self._end.reason == "answered"
        try:
            if is_complete and (self.host_tools or not self._has_calls):
                text = self.form.read(text)
        except FormatMismatchError as mismatch:
            if not self._has_retried:
                self._has_retried, self._has_calls = True, False
                self._text.clear()
                kind = "JSON" if self.form.text is None else "text"
                return f"[That answer cannot be used: {mismatch}. Answer again with the {kind} and nothing else.]", ()
            error = AnswerFormatError(str(mismatch), text)
            return "", [End("failed", str(error), error)]
        return "", [Text(text), self._end] if text else [self._end]


async def complete(
    app: App,
    cache: ConversationCache,
    request: ChatRequest,
    sink: EventSink,
    steps: Sequence[Step] = (),
    tenant: str = "",
    started: Callable[[Conversation], object] = bool,
) -> None:
    """Answer a request of a tenant's client; the last event is always an ``End``, unless the caller is cancelled.

    The events pass ``steps`` on their way to ``sink``; ``started`` gets the conversation before the model is asked.

    Raises:
        RequestRefusedError: with the host's tools the last message has to be the user's.
    """
    question, form = request.messages[-1], request.form
    if form is not None:
        request = replace(request, options=replace(request.options, grammar=form.grammar))
    if request.host_tools and question.role != "user":
        raise RequestRefusedError("with the host's tools the last message is the user's question", "messages")
    model = app.model_host.chat_model
    owner = Owner(model, tenant, None if request.host_tools else request.tools)
    new = app.new_conversation if request.host_tools else Conversation
    branch = cache.branch(owner, request.messages, request.calls_made, new)
    conversation = branch.conversation
    started(conversation)
    cached = _CacheStep(cache, branch, request, len(conversation.messages))
    formatted = _FormatStep(form, request.host_tools) if form is not None else None
    steps = [cached, *steps]
    all_steps = steps if formatted is None else [formatted, *steps]
    recalls = request.recalls and question.role == "user"
    if recalls and (recalled := await app.recalled_context(question, conversation)):
        # The conversation that is cached has it in its turn, where the client's next request finds it as it was sent.
        question = with_note(question, recalled)[0]
    messages = [question] if form is None else with_note(question, form.instruction())
    try:
        while messages:
            if request.host_tools:
                parts = (part for message in messages for part in (message.context, message.text))
                text = "\n\n".join(filter(None, parts))
                options = AnswerOptions(
                    request.options,
                    request.options.tool_choice != "none",
                    allowed_tools=request.allowed_tools,
                    tokens=request.tokens,
                    needs_all_servers=True,
                )
                await app.answer(conversation, text, sink, options, all_steps)
            else:
                async with app.answering(conversation, sink, all_steps) as answer:
                    await app.model_ready(answer)
                    await app.warmed_up()
                    conversation.messages += messages
                    if request.tools and request.options.tool_choice == "none":
                        # The model is told that it may not call the client's tools now.
                        conversation.messages[-1:] = with_note(messages[-1], NO_CALLS_NOTE)
                    agent = app.config.agent
                    # A round repeats a failed call, or reveals the parameters of a tool that is named, or is the last.
                    rounds = agent.max_rounds + agent.repair_rounds + 1
                    limits = LoopSettings(rounds, agent.repair_rounds, answers_from=app.model_host.answers_from)
                    may_name = app.model_host.npu is not None
                    answer.end = await _answer_with_client_tools(
                        model, conversation, request, limits, answer, may_name=may_name
                    )
            messages = []
            if formatted is not None:
                instruction, tail = await run_costly(formatted.check_answer)
                messages = [Message("user", instruction)] if instruction else []
                feed_through(steps, tail, sink)
    finally:
        if not cached.is_cached:
            # Nothing follows an incomplete answer.
            cache.drop(branch)
