"""Ports between the packages: chat models, tool callers, approvers, samplers; the context of a call; time limits."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from rkllm_mcp.events import Approval, Elicitation, Event, ToolCallFailed, Usage
from rkllm_mcp.generation import ModelOptions
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolSpec
from rkllm_mcp.text import Language

# once: this call; conversation: this tool until the conversation ends; always: this tool from now on; deny: not this
# call; never: not this tool from now on.
Decision: TypeAlias = Literal["once", "conversation", "always", "deny", "never"]


class EventSink(Protocol):
    """Receives the events of an answer in batches, in order."""

    def feed(self, batch: Sequence[Event], /) -> None:
        """Receive the next events; never waits."""

    async def drain(self) -> None:
        """Wait until the reader has taken the events so far; for producers that could outrun any reader."""


class DiscardEvents(EventSink):
    """A sink without a reader: the events are discarded."""


class Step:
    """A step of an answer's pipeline: it changes or notes the events that pass."""

    def feed(self, batch: Sequence[Event]) -> Sequence[Event]:
        """Return the events for the next step; never waits."""
        return batch

    def finish(self) -> Sequence[Event]:
        """Return the events that were held back; called before the ``End``."""
        return ()

    async def settle(self) -> None:
        """Do the input and output that has become due; awaited between rounds."""


def feed_through(steps: Sequence[Step], batch: Sequence[Event], sink: EventSink) -> None:
    """Pass events through ``steps``, one by one, to ``sink``."""
    for step in steps:
        batch = step.feed(batch) if batch else ()
    if batch:
        sink.feed(batch)


# (progress, total, message), as in notifications/progress.
OnProgress: TypeAlias = Callable[[float, "float | None", "str | None"], Awaitable[None]]


@dataclass(frozen=True)
class ElicitationAnswer:
    """Answer to an elicitation request: ``accept`` with ``content``, ``decline`` (refused), ``cancel`` (no answer)."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] = field(default_factory=dict[str, Any])


class SharedQuestions(Protocol):
    """Questions for a person that other boards show as well; the methods raise a ``StoreError``."""

    def ask(self, tenant: str, question_id: str, question: Mapping[str, Any], seconds: float) -> Awaitable[None]:
        """Store a question, which is open for that long."""
        ...

    async def answer_to(self, tenant: str, question_id: str) -> Any:
        """Return the answer to a question; None if none exists yet."""
        ...

    def close(self, tenant: str, question_id: str) -> Awaitable[Any]:
        """Delete a question and return the answer that was given to it, if any."""
        ...

    async def wait_for_change(self, topic: str) -> None:
        """Wait until a question may have been answered."""
        ...


class Approver(Protocol):
    """Asks the user of the assistant."""

    async def approve(self, question: Approval) -> Decision | None:
        """Ask for approval of a call; None if there was no answer in time, which counts as a refusal."""
        ...

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """Ask for the content of a server's form; ``cancel`` if there was no answer in time."""
        ...


@dataclass(eq=False)
class FixedApprover:
    """An approver with a fixed decision, for runs without a user; the model passes on ``advice`` after a refusal.

    Calls of the tools ``allowed`` are allowed: a schedule names them for the time in which no person is there.
    """

    decision: Decision = "deny"
    advice: str = ""
    allowed: frozenset[str] = frozenset()

    async def approve(self, question: Approval) -> Decision:
        """Return the fixed decision, or allow a call of a tool that was named."""
        return "once" if question.name in self.allowed else self.decision

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """Return ``cancel``: no user can fill in the form."""
        del question
        return ElicitationAnswer("cancel")


DENY_ALL: Approver = FixedApprover("deny")
DISCARD_EVENTS: EventSink = DiscardEvents()


@dataclass(frozen=True)
class CallContext:
    """Context of one call."""

    on_progress: OnProgress | None = None
    sink: EventSink = DISCARD_EVENTS  # receives the events of the call
    asker: Approver = DENY_ALL
    tokens: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)  # by name in headers_template
    conversation_id: str = ""
    request: str = ""  # the user's text that caused the call
    # No person is there: every call that is not known to read only is put to ``asker``, whatever was allowed before.
    is_unattended: bool = False
    is_automatic: bool = False  # made for every question, by ``auto_context_tool``: nothing says that it is needed
    # Texts from outside in the conversation; a call that occurs in one of them needs approval.
    untrusted_texts: Callable[[], Iterable[str]] = tuple[str]
    language: Language | None = None  # of questions for approval; None for the configuration's
    announcement: Event | None = None  # fed to ``sink`` when the call is approved and begins
    # Entered while the call waits for a person or the host's model, which does not count towards its time limit.
    pause: Callable[[], AbstractContextManager[None]] = nullcontext

    def announce(self) -> None:
        """Feed the announcement: the call begins."""
        if self.announcement is not None:
            self.sink.feed([self.announcement])


NO_CONTEXT = CallContext()


class HasDeadline(Protocol):
    """An ``anyio.CancelScope``."""

    @property
    def deadline(self) -> float:
        """Point on its clock at which it is cancelled."""
        ...

    @deadline.setter
    def deadline(self, value: float, /) -> None: ...


_Scope = TypeVar("_Scope", bound=HasDeadline)


class Deadline:
    """A time limit that is passed down, and the time since its start; pauses count towards neither.

    ``now`` is the clock, in seconds; in a task ``anyio.current_time``.
    """

    def __init__(self, seconds: float = math.inf, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._now = now
        self._started = now()
        self._pauses = 0
        self._paused_at = 0.0
        self._paused_s = 0.0
        self._scopes: list[HasDeadline] = []

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start, without pauses."""
        # A call that is cancelled during a pause ends before the pause does.
        until = self._paused_at if self._pauses else self._now()
        return until - self._started - self._paused_s

    @property
    def left_s(self) -> float:
        """Seconds until the limit, not below 0."""
        return max(0.0, self._seconds - self.elapsed_s)

    def bind(self, scope: _Scope) -> _Scope:
        """Return ``scope``, which this limit cancels from now on."""
        self._scopes.append(scope)
        self._apply()
        return scope

    def lift(self) -> None:
        """Remove the limit."""
        self._seconds = math.inf
        self._apply()

    @contextmanager
    def pause(self) -> Generator[None]:
        """Stop the clock inside this block, for example while a person is asked; pauses may overlap."""
        if not self._pauses:
            self._paused_at = self._now()
        self._pauses += 1
        self._apply()
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._paused_s += self._now() - self._paused_at
            self._apply()

    def within(self, context: CallContext) -> CallContext:
        """Return the context of a call whose pauses stop this clock, too."""

        @contextmanager
        def pause() -> Generator[None]:
            with context.pause(), self.pause():
                yield

        return replace(context, pause=pause)

    def _apply(self) -> None:
        at = math.inf if self._pauses else self._now() + self.left_s
        for scope in self._scopes:
            scope.deadline = at


@dataclass(frozen=True)
class SamplingRequest:
    """A server's request to the host's model during a call."""

    server: str
    messages: tuple[Message, ...]
    system: str = ""
    max_tokens: int = 512
    stop: tuple[str, ...] = ()  # end the answer and are not part of it


@dataclass(frozen=True)
class SamplingAnswer:
    """The model's answer to a sampling request."""

    text: str
    model: str
    ending: Literal["end", "stop", "length"] = "end"  # stop: at a stop string; length: at the token limit


class Sampler(Protocol):
    """The host's model, for sampling requests of servers."""

    sees: bool  # the model reads pictures

    async def sample(self, request: SamplingRequest) -> SamplingAnswer:
        """Answer in the NPU's queue, or raise a GenerationError."""
        ...


@dataclass(frozen=True)
class Turn:
    """A complete assistant turn."""

    message: Message  # with the text of failed calls
    failures: tuple[ToolCallFailed, ...] = ()
    usage: Usage | None = None
    has_text: bool = False  # True if there is text other than failed calls and white space
    stop_string: str = ""  # the stop string that ended the turn, if one did

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The valid calls."""
        return self.message.calls


class ChatModel(Protocol):
    """A model that answers a conversation."""

    async def respond(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions, sink: EventSink
    ) -> Turn:
        """Generate one assistant turn, feed its events to ``sink`` while they arrive, and add it to the conversation.

        The turn is added however the round ends, with the output so far, so that the conversation stays consistent.
        Each call gets its id from ``Conversation.next_call_id``.

        Raises:
            PromptTooLongError: the prompt does not fit; no turn is added.
            GenerationError: the round failed; the output so far stays in the conversation.
        """
        ...


class StatefulModel(ChatModel, Protocol):
    """A chat model with state per conversation."""

    def over(self, conversation_id: str) -> None:
        """Note that the answer of a conversation has ended and no further round of it follows."""
        ...

    def forget(self, conversation_id: str) -> None:
        """Drop the state of a conversation that will not continue."""
        ...

    def branch(self, conversation_id: str, new_id: str) -> None:
        """Copy the state of a conversation to a new one that begins with the same messages."""
        ...


# Asks a model about a conversation without making the request part of it: the conversation, the question, the most
# tokens of the answer and of the prefill, and what counts the tokens. Returns the turn, or None if the request gave way
# or would cost too much; see ``RkllmModel.aside``.
AskAside: TypeAlias = Callable[[Conversation, str, int, int, Callable[[Usage], object]], Awaitable["Turn | None"]]


@dataclass(frozen=True)
class ToolEvidence:
    """What a question shows about a tool."""

    tool: ToolSpec
    words: float  # how well the texts of the tool match it, from 0 to about 1
    kinds: frozenset[str] = frozenset()  # kinds of values that the tool requires and the question has
    missing: frozenset[str] = frozenset()  # those that the question lacks
    data: float = 0.0  # which part of its own words the data of the tool has, from 0 to 1
    is_said: bool = False  # the question is a statement, which asks for nothing
    strange: int = 0  # number of its own words that are in no text of the tool
    optional: frozenset[str] = frozenset()  # kinds that the tool may take, without requiring them, and the question has
    known: Mapping[str, Any] = field(default_factory=dict[str, Any])  # the arguments of a call that the question gives
