"""What accompanies a call of a tool: who is told how far it is, who is asked, which tokens it may use.

Values and ports only. A surface decides who its owner is (``Asker``); the loop hands a ``CallContext`` down with every
call; the tools layer uses it for that call and keeps none of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from rkllm_mcp.events import Approval, Elicitation

# once: this call; conversation: and the same tool for the rest of it; always: from now on; deny: no.
Decision: TypeAlias = Literal["once", "conversation", "always", "deny"]
DECISIONS: tuple[Decision, ...] = ("once", "conversation", "always", "deny")

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

    async def approve(self, question: Approval) -> Decision:
        """Whether a call may be made; bounded, and ``deny`` when nobody answers."""
        ...

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """What a server wants to know; bounded, and ``cancel`` when nobody answers."""
        ...


class Standing:
    """An asker whose answers stand beforehand, for runs that nobody watches.

    Args:
        decision: the answer to every question for approval.
    """

    def __init__(self, decision: Decision = "deny") -> None:
        self._decision: Decision = decision

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
    """

    on_progress: OnProgress | None = None
    asker: Asker = HEADLESS
    tokens: Mapping[str, str] = field(default_factory=_nothing, repr=False)
    conversation_id: str = ""


NO_CONTEXT = CallContext()
