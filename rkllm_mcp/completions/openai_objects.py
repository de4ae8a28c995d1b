"""What POST /v1/chat/completions answers, as types: for ``/openapi.json`` and for tests. ``openai_reply`` writes it.

Followed: OpenAI's API reference, the chat completion object and the chat completion chunk object.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

FinishReason = Literal["stop", "length", "tool_calls"]


class Part(BaseModel):
    """A part of an answer, which holds nothing else."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Function(Part):
    """What a call calls; ``arguments`` are a JSON object as text."""

    name: str
    arguments: str


class Call(Part):
    """A call for the program to make."""

    id: str
    type: Literal["function"]
    function: Function


class ReplyMessage(Part):
    """The answer."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    reasoning_content: str | None = None
    tool_calls: list[Call] | None = None


class Choice(Part):
    """The only answer of a response."""

    index: Literal[0]
    message: ReplyMessage
    logprobs: None
    finish_reason: FinishReason


class PromptDetails(Part):
    """What of the prompt the KV cache held, tokens."""

    cached_tokens: int


class ReplyUsage(Part):
    """What the answer cost, tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class ChatCompletion(Part):
    """The response."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: ReplyUsage
    x_events: list[dict[str, Any]] | None = None


class DeltaFunction(Part):
    """A piece of what a call calls."""

    name: str | None = None
    arguments: str


class DeltaCall(Part):
    """A piece of a call."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: DeltaFunction


class Delta(Part):
    """A piece of the answer."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[DeltaCall] | None = None


class ChunkChoice(Part):
    """A piece of the only answer."""

    index: Literal[0]
    delta: Delta
    logprobs: None
    finish_reason: FinishReason | None


class ChatCompletionChunk(Part):
    """One record of a stream; the record behind the last is ``[DONE]``."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: ReplyUsage | None = None
    x_events: list[dict[str, Any]] | None = None
