"""Sampling requests of servers: a conversation of its own, without tools, in the NPU's queue.

The answer whose tool call caused the request waits for that call. Its conversation is prefilled again afterwards, as
far as the request displaced it from the KV cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import anyio.lowlevel

from rkllm_mcp.agent.usage import UsageCounter
from rkllm_mcp.events import Event, Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.generation import ModelOptions
from rkllm_mcp.messages import Conversation, Message
from rkllm_mcp.protocols import SamplingAnswer, SamplingRequest, StatefulModel
from rkllm_mcp.toolcalls.stop_strings import StopMatcher


class ModelSampler:
    """A ``Sampler`` on a chat model, whose ``name`` is part of the response.

    ``limit_tokens`` is the upper limit of an answer, regardless of the request; ``bill`` counts the tokens.
    """

    def __init__(
        self, model: StatefulModel, name: str, limit_tokens: int, bill: UsageCounter | None = None, tenant: str = ""
    ) -> None:
        self.use(model, name)
        self._limit_tokens = limit_tokens
        self._bill = bill or UsageCounter()
        self._tenant = tenant

    def use(self, model: StatefulModel, name: str) -> None:
        """Take another model from the next request on."""
        self._model, self._name = model, name

    async def sample(self, request: SamplingRequest) -> SamplingAnswer:
        """Return the model's answer, up to the first stop string.

        Raises:
            GenerationError: the answer failed, or the request does not fit the context window.
        """
        conversation = Conversation(messages=_turns(request), tenant=self._tenant)
        model, name = self._model, self._name
        options = ModelOptions(max_new_tokens=min(request.max_tokens, self._limit_tokens))
        matcher, text, found = StopMatcher(request.stop), "", None

        async def read(events: Sequence[Event]) -> None:
            nonlocal text, found
            for event in events:
                count(event)
                if isinstance(event, (Text, ToolCallDetected, ToolCallFailed)) and found is None:
                    # Without tools the text of a call is part of the answer.
                    released, found = matcher.feed(event.text if isinstance(event, Text) else event.raw)
                    text += released
            if found is not None:
                scope.cancel()
                await anyio.lowlevel.checkpoint()

        try:
            with self._bill.of(conversation) as count, anyio.CancelScope() as scope:
                await model.respond(conversation, (), options, read)
        finally:
            model.forget(conversation.id)
        if found is not None:
            return SamplingAnswer(text, name, "stop")
        is_cut = conversation.messages[-1].cut
        return SamplingAnswer(f"{text}{matcher.finish()}".strip(), name, "length" if is_cut else "end")


def _turns(request: SamplingRequest) -> list[Message]:
    """Return the request's turns; consecutive turns of one role are joined, as templates expect."""
    turns = [Message("system", request.system)] if request.system else []
    for message in request.messages:
        if turns and turns[-1].role == message.role:
            message = Message(message.role, f"{turns.pop().text}\n\n{message.text}")
        turns.append(message)
    return turns
