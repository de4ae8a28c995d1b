"""What accompanies a call of a tool: who is told how far it is, who is asked, which tokens it may use.

Values and ports only. A surface decides who its owner is (``Asker``); the loop hands a ``CallContext`` down with every
call; the tools layer uses it for that call and keeps none of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from rkllm_mcp.events import Approval, Elicitation
from rkllm_mcp.messages import Message

# once: this call; conversation: and the same tool for the rest of it; always: from now on; deny: no; never: and the
# same tool from now on.
Decision: TypeAlias = Literal["once", "conversation", "always", "deny", "never"]

# progress, total, message: as servers report them.
OnProgress: TypeAlias = Callable[[float, "float | None", "str | None"], Awaitable[None]]


def _nothing() -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class ElicitationAnswer:
    """What the owner says to a server's question.

    Args:
        action: ``accept`` with what was filled in, ``decline`` a clear no, ``cancel`` no answer.
        content: the filled form; empty unless accepted.
    """

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] = field(default_factory=_nothing)


class Asker(Protocol):
    """The owner of the assistant, as far as questions go."""

    async def approve(self, question: Approval) -> Decision | None:
        """Whether a call may be made; bounded, and None, which is no yes, when nobody answers."""
        ...

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """What a server wants to know; bounded, and ``cancel`` when nobody answers."""
        ...


class Standing:
    """An asker whose answers stand beforehand, for runs that nobody watches.

    Args:
        decision: the answer to every question for approval.
        advice: what the owner can do about a no, a sentence for the model to pass on.
    """

    def __init__(self, decision: Decision = "deny", advice: str = "") -> None:
        self._decision: Decision = decision
        self.advice = advice

    async def approve(self, question: Approval) -> Decision:
        """The standing decision."""
        del question
        return self._decision

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """Nobody is there to fill a form."""
        del question
        return ElicitationAnswer("cancel")


HEADLESS: Asker = Standing("deny")


@dataclass(frozen=True)
class CallContext:
    """One call's circumstances.

    Args:
        on_progress: awaited with (progress, total, message) whenever the server reports.
        asker: who is asked for approval and for what the server wants to know.
        tokens: secrets by the name that a ``headers_template`` gives them; held for this call only.
        conversation_id: whose call it is; empty when it belongs to none.
        request: the user's words that the call is to serve; empty when there are none.
        pause: entered while the call waits for a person or for our own model, which its time limit does not count.
    """

    on_progress: OnProgress | None = None
    asker: Asker = HEADLESS
    tokens: Mapping[str, str] = field(default_factory=_nothing, repr=False)
    conversation_id: str = ""
    request: str = ""
    pause: Callable[[], AbstractContextManager[None]] = nullcontext


NO_CONTEXT = CallContext()


@dataclass(frozen=True)
class SamplingRequest:
    """What a server asks our model, in the middle of a call.

    Args:
        server: who asks.
        messages: the turns to answer, of the user and the assistant.
        system: the system text it wishes; empty when it wishes none.
        max_tokens: the longest answer it wishes, tokens.
        stop: texts that end the answer; not part of it.
    """

    server: str
    messages: tuple[Message, ...]
    system: str = ""
    max_tokens: int = 512
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class SamplingAnswer:
    """What our model said to a server.

    Args:
        text: the answer.
        model: the model's name.
        ending: why it ended: by itself, at one of ``stop``, or at the limit of tokens.
    """

    text: str
    model: str
    ending: Literal["end", "stop", "length"] = "end"


class Sampler(Protocol):
    """Our model, for servers that may ask it."""

    async def sample(self, request: SamplingRequest) -> SamplingAnswer:
        """Answer, in the one NPU's queue.

        Raises:
            GenerationError: the answer failed.
        """
        ...
