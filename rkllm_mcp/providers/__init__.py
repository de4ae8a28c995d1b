"""Who answers: one port, several adapters.

A ``ChatModel`` turns a conversation into events: text, thinking, tool calls, usage. The loop knows this port alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rkllm_mcp.events import ModelEvent
from rkllm_mcp.generation import SamplingWish
from rkllm_mcp.messages import Conversation, ToolSpec


@dataclass(frozen=True)
class ResponseOptions:
    """One response's wishes.

    Args:
        max_new_tokens: the longest answer; None for the model's own limit.
        forced_tool: the response is to begin with a call of this tool.
        others: tools that may be called though they are not among the listed ones: the model heard of them in a turn.
        sampling: how the next token is chosen, as far as this request says; a runtime that cannot for each run keeps
            what the model was loaded with.
        stop: texts that end the answer and are no part of it; looked for in its words, not in thinking and in calls.
        any_tool: the response is to begin with a call of any tool.
        single_call: the response ends behind its first call.
        no_calls: nothing is read as a call, though tools are listed: they stand at the front, before what was said.
        thinking: the model is to think before it answers, or not; None for its own setting, also where it cannot.
    """

    max_new_tokens: int | None = None
    forced_tool: str | None = None
    others: tuple[ToolSpec, ...] = ()
    sampling: SamplingWish | None = None
    stop: tuple[str, ...] = ()
    any_tool: bool = False
    single_call: bool = False
    no_calls: bool = False
    thinking: bool | None = None


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

    def branch(self, conversation_id: str, new_id: str) -> None:
        """A conversation begins as another one did, and goes on in its own way; what is kept for one serves both."""
        ...
