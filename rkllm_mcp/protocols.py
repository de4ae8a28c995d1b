"""Ports between the packages: chat models, tool callers, approvers, samplers, and the context of a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from rkllm_mcp.events import Approval, Elicitation, Event, ToolCallFailed, Usage
from rkllm_mcp.generation import SamplingOverrides
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolSpec

# once: this call; conversation: this tool until the conversation ends; always: this tool from now on; deny: not this
# call; never: not this tool from now on.
Decision: TypeAlias = Literal["once", "conversation", "always", "deny", "never"]

Language: TypeAlias = Literal["en", "ja"]

# Takes the next events of an answer, one batch at a time, in their order.
EmitEvents: TypeAlias = Callable[[Sequence[Event]], Awaitable[None]]

# (progress, total, message), as in notifications/progress.
OnProgress: TypeAlias = Callable[[float, "float | None", "str | None"], Awaitable[None]]


@dataclass(frozen=True)
class ElicitationAnswer:
    """Answer to an elicitation request: ``accept`` with ``content``, ``decline`` (refused), ``cancel`` (no answer)."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Approver(Protocol):
    """Asks the user of the assistant."""

    async def approve(self, question: Approval) -> Decision | None:
        """Ask for approval of a call; None if there was no answer in time, which counts as a refusal."""
        ...

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """Ask for the content of a server's form; ``cancel`` if there was no answer in time."""
        ...


class FixedApprover:
    """An approver with a fixed decision, for runs without a user.

    ``advice`` is a sentence about the remedy, which the model passes on after a refusal.
    """

    def __init__(self, decision: Decision = "deny", advice: str = "") -> None:
        self._decision: Decision = decision
        self.advice = advice

    async def approve(self, question: Approval) -> Decision:
        """Return the fixed decision."""
        del question
        return self._decision

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """Return ``cancel``: no user can fill in the form."""
        del question
        return ElicitationAnswer("cancel")


DENY_ALL: Approver = FixedApprover("deny")


async def no_start() -> None:
    """Take no notice of the start of a call."""


@dataclass(frozen=True)
class CallContext:
    """Context of one call."""

    on_progress: OnProgress | None = None
    asker: Approver = DENY_ALL
    tokens: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)  # by name in headers_template
    conversation_id: str = ""
    request: str = ""  # the user's text that caused the call
    # Texts from outside in the conversation; a call that stands in one of them needs approval.
    untrusted_texts: Callable[[], Iterable[str]] = tuple[str]
    language: Language | None = None  # of questions for approval; None for the configuration's
    on_start: Callable[[], Awaitable[None]] = no_start  # called when the call is approved and begins
    # Entered while the call waits for a person or the host's model, which does not count towards its time limit.
    pause: Callable[[], AbstractContextManager[None]] = nullcontext


NO_CONTEXT = CallContext()


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
    """The model's answer to a sampling request.

    ``ending`` is ``stop`` at a stop string and ``length`` at the token limit.
    """

    text: str
    model: str
    ending: Literal["end", "stop", "length"] = "end"


class Sampler(Protocol):
    """The host's model, for sampling requests of servers."""

    async def sample(self, request: SamplingRequest) -> SamplingAnswer:
        """Answer in the NPU's queue.

        Raises:
            GenerationError: the answer failed.
        """
        ...


@dataclass(frozen=True)
class ResponseOptions:
    """Options of one response."""

    max_new_tokens: int | None = None  # None: the model's own limit
    forced_tool: str | None = None  # the response begins with a call of this tool
    others: tuple[ToolSpec, ...] = ()  # callable tools that are not in the tool list, but were described in a turn
    sampling: SamplingOverrides | None = None  # ignored by a runtime that cannot set it per run
    stop: tuple[str, ...] = ()  # end the answer; matched in its text only, not in thinking or calls
    any_tool: bool = False  # the response begins with a call of any tool
    single_call: bool = False  # the response ends after its first call
    no_calls: bool = (
        False  # nothing is parsed as a call; the tool list stays in the prompt to preserve the cached prefix
    )
    thinking: bool | None = None  # None: the model's own setting; also ignored by models that cannot choose


@dataclass(frozen=True)
class Turn:
    """A complete assistant turn."""

    message: Message  # with the text of failed calls
    failures: tuple[ToolCallFailed, ...] = ()
    usage: Usage | None = None
    has_text: bool = False  # True if there is text other than failed calls and white space

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The valid calls."""
        return self.message.calls

    @property
    def is_cut(self) -> bool:
        """True if the token limit ended the turn."""
        return self.message.cut


class ChatModel(Protocol):
    """A model that answers a conversation."""

    async def respond(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ResponseOptions, emit: EmitEvents
    ) -> Turn:
        """Generate one assistant turn, emit its events while they arrive, and add it to the conversation.

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
