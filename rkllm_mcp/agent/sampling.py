"""A server's question to our model becomes an answer: a conversation of its own, without tools, in the NPU's queue.

The answer that made the call in which the server asks is not running meanwhile; it waits for the call. Afterwards its
conversation is prefilled again as far as the server's question has taken its place in the KV cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing

from rkllm_mcp.agent.usage import UsageCounter
from rkllm_mcp.events import Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.messages import Conversation, Message
from rkllm_mcp.protocols import ChatModel, ResponseOptions, SamplingAnswer, SamplingRequest


class ModelSampler:
    """A ``calling.Sampler`` on a chat model.

    Args:
        model: who answers.
        name: the model's name, which the server is told.
        limit_tokens: the longest answer, whatever the server wishes, tokens.
        forget: told the id of the conversation once it is over.
        bill: counts what it costs.
    """

    def __init__(
        self,
        model: ChatModel,
        name: str,
        limit_tokens: int,
        forget: Callable[[str], None] = lambda _: None,
        bill: UsageCounter | None = None,
        tenant: str = "",
    ) -> None:
        self._model = model
        self._name = name
        self._limit_tokens = limit_tokens
        self._forget = forget
        self._bill = bill or UsageCounter()
        self._tenant = tenant

    async def sample(self, request: SamplingRequest) -> SamplingAnswer:
        """The model's answer, up to the first of the request's ``stop`` texts.

        Raises:
            GenerationError: the answer failed, or the question does not fit the context window.
        """
        conversation = Conversation(messages=_turns(request), tenant=self._tenant)
        options = ResponseOptions(max_new_tokens=min(request.max_tokens, self._limit_tokens))
        text = ""
        try:
            with self._bill.of(conversation) as count:
                async with aclosing(self._model.respond(conversation, (), options)) as events:
                    async for event in events:
                        count(event)
                        if isinstance(event, Text):
                            text += event.text
                        elif isinstance(event, (ToolCallDetected, ToolCallFailed)):
                            # Without tools, what looks like a call of one is text.
                            text += event.raw
                        end = _first_stop(text, request.stop)
                        if end is not None:
                            return SamplingAnswer(text[:end], self._name, "stop")
            cut = conversation.messages[-1].cut
        finally:
            self._forget(conversation.id)
        return SamplingAnswer(text.strip(), self._name, "length" if cut else "end")


def _turns(request: SamplingRequest) -> list[Message]:
    """The request's turns; those of one speaker in a row become one, as templates expect."""
    turns = [Message("system", request.system)] if request.system else []
    for message in request.messages:
        if turns and turns[-1].role == message.role:
            message = Message(message.role, f"{turns.pop().text}\n\n{message.text}")
        turns.append(message)
    return turns


def _first_stop(text: str, stops: Sequence[str]) -> int | None:
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return min(places, default=None)
