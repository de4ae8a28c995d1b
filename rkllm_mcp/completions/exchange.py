"""One request and its answer: the conversation it goes on with, the rounds of the model, the form of the answer.

    ChatRequest ─▶ Threads ─▶ rounds on the model, or a reply of the assistant with its own tools ─▶ events, an End last

Rules:
* A program's own tools are never run here: their calls end the answer (``rounds``).
* The host's tools run as in any other reply; calls that need a person's yes are refused, because there is nobody.
* An answer that has to have a form is held back until it has, and asked for once more where it has not.
* The conversation is kept for the next request before the End comes, and only then.

It knows the assistant (``app``) and no protocol.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeAlias

from rkllm_mcp.agent.questions import Emit
from rkllm_mcp.app import App, ReplyOptions
from rkllm_mcp.completions.answer_form import MisfitError
from rkllm_mcp.completions.request import ChatRequest, RequestRefusedError
from rkllm_mcp.completions.rounds import Patience, Rounds, noted
from rkllm_mcp.completions.threads import Owner, Threads
from rkllm_mcp.events import End, Event, Text, ToolCallDetected
from rkllm_mcp.messages import Conversation, Message, ToolCall

NO_CALLS_NOTE = "[Do not call a tool now. Answer in plain words.]"


@dataclass(frozen=True)
class Refusal:
    """The model gave no answer of the form that was asked for; ``text`` says why."""

    text: str


Occurrence: TypeAlias = Event | Refusal

# Asks the model what the last of these messages is about.
_Ask: TypeAlias = Callable[[Sequence[Message]], AsyncGenerator[Event, None]]


@dataclass
class _Seen:
    """What the program has seen of the answer."""

    text: list[str] = field(default_factory=list[str])
    calls: list[ToolCall] = field(default_factory=list[ToolCall])

    def take(self, event: Occurrence, *, calls: bool) -> None:
        """Note an event; ``calls`` when calls are the program's to make."""
        if isinstance(event, (Text, Refusal)):
            self.text.append(event.text)
        elif calls and isinstance(event, ToolCallDetected):
            self.calls.append(ToolCall(event.id, event.name, event.arguments))

    def message(self) -> Message:
        """The answer as a turn."""
        return Message("assistant", "".join(self.text), calls=tuple(self.calls))


async def exchange(
    app: App, threads: Threads, request: ChatRequest, tenant: str = ""
) -> AsyncGenerator[Occurrence, None]:
    """Answer a request; consume it under ``aclosing``: leaving early stops the answer.

    Args:
        app: who answers.
        threads: what programs have said and seen.
        request: what is asked.
        tenant: who asks.

    Raises:
        RequestRefusedError: the host's tools are to be run for something that is no question.
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
    try:
        async with aclosing(_in_form(ask, request)) as events:
            async for event in events:
                seen.take(event, calls=not request.host_tools)
                if isinstance(event, End) and event.reason not in {"failed", "cancelled"}:
                    is_kept = True
                    threads.keep(branch, seen.message(), asked_at=_asked_at(conversation, start, asked))
                yield event
    finally:
        if not is_kept:
            threads.drop(branch)


def _asked_at(conversation: Conversation, start: int, asked: Message) -> int:
    """How many messages there are up to what was asked; a first reply may have put a system text before it."""
    messages = conversation.messages
    places = (place for place in range(start, len(messages)) if messages[place].role == asked.role)
    return next(places, start) + 1


# Who is asked


def _ask_the_host(app: App, conversation: Conversation, request: ChatRequest) -> _Ask:
    """The assistant replies, and runs its own tools."""
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

    def ask(messages: Sequence[Message]) -> AsyncGenerator[Event, None]:
        words = (part for message in messages for part in (message.context, message.text))
        return app.reply(conversation, "\n\n".join(filter(None, words)), options)

    return ask


def _ask_the_model(app: App, conversation: Conversation, request: ChatRequest) -> _Ask:
    """The model alone answers; calls are the program's."""
    not_now = request.options.no_calls and request.tools
    model, agent = app.core.chat_model, app.config.agent
    patience = Patience(agent.repair_rounds, agent.max_rounds)

    def ask(messages: Sequence[Message]) -> AsyncGenerator[Event, None]:
        async def work(emit: Emit) -> None:
            *before, last = messages
            conversation.messages += [*before, *(noted(last, NO_CALLS_NOTE) if not_now else [last])]
            await Rounds(model, conversation, request, patience, emit, may_name=app.core.npu is not None).run()

        return app.stream(conversation, work)

    return ask


# The form of the answer


@dataclass
class _Held:
    """An answer whose words are held back."""

    words: list[str] = field(default_factory=list[str])
    has_calls: bool = False
    end: End = field(default_factory=lambda: End("failed"))

    async def passed(self, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
        """The events that are no words."""
        async with aclosing(events):
            async for event in events:
                if isinstance(event, Text):
                    self.words.append(event.text)
                elif isinstance(event, End):
                    self.end = event
                else:
                    if isinstance(event, ToolCallDetected):
                        # What is said before a call is no part of an answer that is JSON.
                        self.has_calls = True
                        self.words.clear()
                    yield event


async def _in_form(ask: _Ask, request: ChatRequest) -> AsyncGenerator[Occurrence, None]:
    """The events of an answer; where it has to have a form, its words come when they have it."""
    asked, form = request.messages[-1], request.form
    if form is None:
        async with aclosing(ask([asked])) as events:
            async for event in events:
                yield event
        return
    messages = noted(asked, form.told())
    for is_last in (False, True):
        held = _Held()
        async with aclosing(held.passed(ask(messages))) as events:
            async for event in events:
                yield event
        text = "".join(held.words)
        is_whole = held.end.reason == "answered" and not (held.has_calls and not request.host_tools)
        try:
            said: Text | Refusal = Text(form.read(text) if is_whole else text)
        except MisfitError as misfit:
            if not is_last:
                messages = [Message("user", form.told_again(misfit))]
                continue
            said = Refusal(f"The model gave no answer of the form that was asked for: {misfit}. Its answer was: {text}")
        if said.text:
            yield said
        yield held.end
        return
