"""Sampling requests of servers: its own conversation, without tools, in the NPU's queue.

The answer whose tool call caused the request waits for that call. Its conversation is prefilled again afterwards, as
far as the request displaced it from the KV cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from rkllm_mcp.agent.usage import AnswerUsage, UsageCounter
from rkllm_mcp.events import Event, Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.generation import ModelOptions
from rkllm_mcp.messages import Conversation, Message
from rkllm_mcp.protocols import SamplingAnswer, SamplingRequest, StatefulModel
from rkllm_mcp.toolcalls.stop_strings import StopMatcher


@dataclass(eq=False)
class ModelSampler:
    """A ``Sampler`` on a chat model, whose ``name`` is part of the response.

    ``limit_tokens`` is the upper limit of an answer, regardless of the request; ``bill`` counts the tokens.
    """

    model: StatefulModel
    name: str
    limit_tokens: int
    bill: UsageCounter = field(default_factory=UsageCounter)
    tenant: str = ""
    sees: bool = field(default=False, kw_only=True)

    async def sample(self, request: SamplingRequest) -> SamplingAnswer:
        """Return the model's answer, up to the first stop string.

        Raises:
            GenerationError: the answer failed, or the request does not fit the context window.
        """
        # Consecutive turns of one role are joined, as templates expect.
        turns = [Message("system", request.system)] if request.system else []
        for message in request.messages:
            if turns and turns[-1].role == message.role:
                before = turns.pop()
                pictures = (*before.pictures, *message.pictures)
                message = Message(message.role, f"{before.text}\n\n{message.text}", pictures=pictures)
            turns.append(message)
        conversation = Conversation(messages=turns, tenant=self.tenant)
        model, name = self.model, self.name
        options = ModelOptions(max_new_tokens=min(request.max_tokens, self.limit_tokens))
        scope, usage = anyio.CancelScope(), AnswerUsage(conversation, self.bill)
        reader = _SampleReader(StopMatcher(request.stop), usage, scope)
        try:
            with scope:
                await model.respond(conversation, (), options, reader)
        finally:
            usage.close()
            model.forget(conversation.id)
        if reader.is_stopped:
            return SamplingAnswer(reader.text, name, "stop")
        text = f"{reader.text}{reader.matcher.finish()}".strip()
        return SamplingAnswer(text, name, "length" if conversation.messages[-1].cut else "end")


@dataclass(eq=False)
class _SampleReader:
    """The sink of one sampled answer: its text up to a stop string, at which ``scope`` is cancelled."""

    matcher: StopMatcher
    usage: AnswerUsage
    scope: anyio.CancelScope
    text: str = ""
    is_stopped: bool = False

    def feed(self, batch: Sequence[Event]) -> None:
        """Count the events and add their text."""
        for event in self.usage.feed(batch):
            if isinstance(event, (Text, ToolCallDetected, ToolCallFailed)) and not self.is_stopped:
                # Without tools the text of a call is part of the answer.
                text, stop = self.matcher.feed(event.text if isinstance(event, Text) else event.raw)
                self.text += text
                self.is_stopped = stop is not None
        if self.is_stopped:
            self.scope.cancel()

    async def drain(self) -> None:
        """Return at once: the text is taken here."""
