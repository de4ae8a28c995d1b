"""Chat models. ``ChatModel`` turns a conversation into events: text, thinking, tool calls, usage."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rkllm_mcp.events import ModelEvent
from rkllm_mcp.generation import SamplingWish
from rkllm_mcp.messages import Conversation, ToolSpec


@dataclass(frozen=True)
class ResponseOptions:
    """Options of one response."""

    max_new_tokens: int | None = None  # None: the model's own limit
    forced_tool: str | None = None  # the response begins with a call of this tool
    others: tuple[ToolSpec, ...] = ()  # callable tools that are not in the tool list, but were described in a turn
    sampling: SamplingWish | None = None  # ignored by a runtime that cannot set it per run
    stop: tuple[str, ...] = ()  # end the answer; matched in its text only, not in thinking or calls
    any_tool: bool = False  # the response begins with a call of any tool
    single_call: bool = False  # the response ends after its first call
    no_calls: bool = (
        False  # nothing is parsed as a call; the tool list stays in the prompt to preserve the cached prefix
    )
    thinking: bool | None = None  # None: the model's own setting; also ignored by models that cannot choose


class ChatModel(Protocol):
    """A model that answers a conversation."""

    def respond(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ResponseOptions | None = None
    ) -> AsyncGenerator[ModelEvent, None]:
        """Generate one assistant turn; yield its events and add the turn to the conversation.

        The turn is added however the round ends, with the output so far, so that the conversation stays consistent.
        Each call gets its id from ``Conversation.next_call_id``.

        Raises:
            PromptTooLongError: the prompt does not fit; no turn is added.
            GenerationError: the round failed; the output so far stays in the conversation.
        """
        ...


class LastingModel(ChatModel, Protocol):
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
