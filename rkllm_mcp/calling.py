"""Context of a tool call: progress callback, approver, request tokens; ports for approvals and sampling.

The loop passes a ``CallContext`` with every call; the tools layer uses it for that call only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from rkllm_mcp.events import Approval, Elicitation
from rkllm_mcp.messages import Message

# once: this call; conversation: this tool until the conversation ends; always: this tool from now on; deny: not this
# call; never: not this tool from now on.
Decision: TypeAlias = Literal["once", "conversation", "always", "deny", "never"]

# (progress, total, message), as in notifications/progress.
OnProgress: TypeAlias = Callable[[float, "float | None", "str | None"], Awaitable[None]]


@dataclass(frozen=True)
class ElicitationAnswer:
    """Answer to an elicitation request: ``accept`` with ``content``, ``decline`` (refused), ``cancel`` (no answer)."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Asker(Protocol):
    """Asks the user of the assistant."""

    async def approve(self, question: Approval) -> Decision | None:
        """Ask for approval of a call; None if there was no answer in time, which counts as a refusal."""
        ...

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """Ask for the content of a server's form; ``cancel`` if there was no answer in time."""
        ...


class Standing:
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


HEADLESS: Asker = Standing("deny")


@dataclass(frozen=True)
class CallContext:
    """Context of one call."""

    on_progress: OnProgress | None = None
    asker: Asker = HEADLESS
    tokens: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)  # by name in headers_template
    conversation_id: str = ""
    request: str = ""  # the user's text that caused the call
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
