"""Who answers: one port, several adapters.

A ``ChatModel`` turns a conversation into events: text, thinking, tool calls, usage. The loop knows this port alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rkllm_mcp.events import ModelEvent
from rkllm_mcp.messages import Conversation, ToolSpec


@dataclass(frozen=True)
class ResponseOptions:
    """One response's wishes.

    Args:
        max_new_tokens: the longest answer; None for the model's own limit.
        forced_tool: the response is to begin with a call of this tool.
        others: tools that may be called though they are not among the listed ones: the model heard of them in a turn.
    """

    max_new_tokens: int | None = None
    forced_tool: str | None = None
    others: tuple[ToolSpec, ...] = ()


class ChatModel(Protocol):
    """A model that answers a conversation."""

    def respond(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ResponseOptions | None = None
    ) -> AsyncGenerator[ModelEvent, None]:
        """One round: events as they come; then the conversation has one assistant turn more.

        The turn is added however the round ends, with what had come by then, so that the next question finds the
        conversation in order. Every call has an id, by ``Conversation.next_call_id``.

        Raises:
            PromptTooLongError: the round was refused before it began; no turn is added.
            GenerationError: the round failed; what had come stays in the conversation.
        """
        ...


class LastingModel(ChatModel, Protocol):
    """A chat model that keeps something for each conversation, and is told when it need not any more."""

    def over(self, conversation_id: str) -> None:
        """The answer under way in a conversation ended; another round of it is not to be expected."""
        ...

    def forget(self, conversation_id: str) -> None:
        """The conversation will not return."""
        ...
