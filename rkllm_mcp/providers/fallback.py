"""``FallbackModel``: the first model answers; the second takes over in the configured cases only.

    first ─▶ events ─────────────────────────▶ events
      └─ failed, too long, silent, busy ─▶ second

Text of the first model is not repeated: the second continues after it. After a tool call nothing is handed over, so
that a call is never made twice. The second model finishes the answer; the next question starts with the first again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from dataclasses import replace

from rkllm_mcp.config.sections import Occasion
from rkllm_mcp.errors import GenerationError, PromptTooLongError, RuntimeUnusableError
from rkllm_mcp.events import ModelEvent, Status, Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.messages import Conversation, Message, ToolSpec
from rkllm_mcp.protocols import ResponseOptions, StatefulModel
from rkllm_mcp.providers.remote import RemoteModel

GO_ON = "[Your answer was cut off here. Go on right where it ends; do not repeat what is there.]"


class FallbackModel:
    """A ``LastingModel`` on two models, with the ``rules`` that hand over from the first to the second."""

    def __init__(self, first: StatefulModel, second: RemoteModel, rules: Collection[Occasion]) -> None:
        self._first = first
        self._second = second
        self._rules = frozenset(rules)
        self._answering = 0
        self._handed_over: set[str] = set()

    async def respond(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ResponseOptions | None = None
    ) -> AsyncGenerator[ModelEvent, None]:
        """See ``ChatModel.respond``."""
        options = options or ResponseOptions()
        first = _FirstTry(conversation)
        because = ""
        if conversation.id not in self._handed_over:
            if self._answering and "busy" in self._rules:
                because = "the first model is busy with another answer"
            else:
                async with aclosing(self._run_first(first, tools, options)) as events:
                    async for event in events:
                        yield event
                because = first.because
                if not because:
                    return
            self._handed_over.add(conversation.id)
            second = f"'{self._second.name}' at {self._second.service.host}"
            # Only the problem: the remedy after the semicolon has become unnecessary.
            yield Status(f"[Model: handing over to {second} because {because.partition('; ')[0]}]")
        async with aclosing(self._continue_with_second(first.take_back(), conversation, tools, options)) as events:
            async for event in events:
                yield event

    def over(self, conversation_id: str) -> None:
        """Note the end of an answer; the next question goes to the first model."""
        self._handed_over.discard(conversation_id)
        self._first.over(conversation_id)
        self._second.over(conversation_id)

    def forget(self, conversation_id: str) -> None:
        """Drop the state of a conversation that will not continue."""
        self.over(conversation_id)
        self._first.forget(conversation_id)
        self._second.forget(conversation_id)

    def branch(self, conversation_id: str, new_id: str) -> None:
        """See ``LastingModel.branch``."""
        self._first.branch(conversation_id, new_id)
        self._second.branch(conversation_id, new_id)

    async def _run_first(
        self, first: _FirstTry, tools: Sequence[ToolSpec], options: ResponseOptions
    ) -> AsyncGenerator[ModelEvent, None]:
        """Run the first model; sets ``first.because`` if the answer is handed over.

        Raises:
            RkllmMcpError: it failed and the rules do not hand over.
        """
        self._answering += 1
        try:
            async with aclosing(self._first.respond(first.conversation, tools, options)) as events:
                async for event in events:
                    first.see(event)
                    yield event
            if not first.has_words and not first.has_calls and "no_answer" in self._rules:
                first.because = "the first model gave no answer"
        except PromptTooLongError as error:
            if "too_long" not in self._rules:
                raise
            first.because = str(error)
        except (GenerationError, RuntimeUnusableError) as error:
            if "failed" not in self._rules or first.has_calls:
                raise
            first.because = str(error)
        finally:
            self._answering -= 1

    async def _continue_with_second(
        self, said: Message, conversation: Conversation, tools: Sequence[ToolSpec], options: ResponseOptions
    ) -> AsyncGenerator[ModelEvent, None]:
        """Run the second model after the text of the first; both become one turn."""
        view = replace(conversation, messages=list(conversation.messages))
        if said.text.strip():
            view.messages += [replace(said, thinking=""), Message("user", GO_ON)]
        length = len(view.messages)
        unrepeated = _RepetitionFilter(said.text)
        try:
            async with aclosing(self._second.respond(view, tools, options)) as events:
                async for event in events:
                    if isinstance(event, Text):
                        event = Text(unrepeated.rest(event.text))
                        if not event.text:
                            continue
                    yield event
        finally:
            conversation.calls_made, conversation.unpaid_tokens = view.calls_made, view.unpaid_tokens
            added = view.messages[length:]
            if added or said.text:
                turn = added[0] if added else Message("assistant")
                thinking = f"{said.thinking}{turn.thinking}"
                conversation.add(replace(turn, text=said.text + new_part(said.text, turn.text), thinking=thinking))


class _FirstTry:
    """Output of the first model."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.has_words = False
        self.has_calls = False
        self.because = ""
        self._length = len(conversation.messages)

    def see(self, event: ModelEvent) -> None:
        """Record an event."""
        self.has_words = self.has_words or (isinstance(event, Text) and bool(event.text.strip()))
        self.has_calls = self.has_calls or isinstance(event, (ToolCallDetected, ToolCallFailed))

    def take_back(self) -> Message:
        """Remove the first model's turn from the conversation and return it."""
        said = self.conversation.messages[self._length :]
        del self.conversation.messages[self._length :]
        return said[0] if said else Message("assistant")


def new_part(said: str, text: str) -> str:
    """Return ``text`` without a leading repetition of the earlier text; empty while it is only a prefix of it."""
    return "" if said.startswith(text) else text.removeprefix(said)


class _RepetitionFilter:
    """Removes a repetition of earlier text from the start of streamed text."""

    def __init__(self, said: str) -> None:
        self._said = said if said.strip() else ""
        self._buffer = ""

    def rest(self, text: str) -> str:
        """Return the new part of the next piece of text."""
        if not self._said:
            return text
        self._buffer += text
        new = new_part(self._said, self._buffer)
        if new:
            self._said = ""
        return new
