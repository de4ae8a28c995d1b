"""Two models: the first answers, the second takes over by the owner's rules and by nothing else.

    first ─▶ events ─────────────────────────▶ events
      └─ failed, too long, silent, busy ─▶ second

Rules: without a rule nothing is handed over, and an error stays one. What the first said already stands and is not said
twice: the second goes on behind it. Calls that were made are not made again, so behind one nothing is handed over. Once
the second has taken over, it makes the rest of that answer; the next question begins with the first again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from dataclasses import replace

from rkllm_mcp.config.provider import Occasion
from rkllm_mcp.errors import GenerationError, PromptTooLongError, RuntimeUnusableError
from rkllm_mcp.events import ModelEvent, Status, Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.messages import Conversation, Message, ToolSpec
from rkllm_mcp.providers import LastingModel, ResponseOptions
from rkllm_mcp.providers.remote_model import RemoteModel

GO_ON = "[Your answer was cut off here. Go on right where it ends; do not repeat what is there.]"


class FallbackModel:
    """A ``LastingModel`` on two.

    Args:
        first: who answers.
        second: who takes over.
        rules: when.
    """

    def __init__(self, first: LastingModel, second: RemoteModel, rules: Collection[Occasion]) -> None:
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
                because = "the first model is answering somebody else"
            else:
                async with aclosing(self._tried(first, tools, options)) as events:
                    async for event in events:
                        yield event
                because = first.because
                if not because:
                    return
            self._handed_over.add(conversation.id)
            second = f"'{self._second.name}' at {self._second.service.host}"
            # What the reader could do about it is done.
            yield Status(f"[Model: handing over to {second} because {because.partition('; ')[0]}]")
        async with aclosing(self._gone_on(first.take_back(), conversation, tools, options)) as events:
            async for event in events:
                yield event

    def over(self, conversation_id: str) -> None:
        """The answer under way in a conversation ended; the first model is asked next."""
        self._handed_over.discard(conversation_id)
        self._first.over(conversation_id)
        self._second.over(conversation_id)

    def forget(self, conversation_id: str) -> None:
        """The conversation will not return."""
        self.over(conversation_id)
        self._first.forget(conversation_id)
        self._second.forget(conversation_id)

    def branch(self, conversation_id: str, new_id: str) -> None:
        """A conversation begins as another one did."""
        self._first.branch(conversation_id, new_id)
        self._second.branch(conversation_id, new_id)

    async def _tried(
        self, first: _FirstTry, tools: Sequence[ToolSpec], options: ResponseOptions
    ) -> AsyncGenerator[ModelEvent, None]:
        """What the first model makes of it; ``first.because`` says why it is handed over, if it is.

        Raises:
            RkllmMcpError: it failed, and that is not to be handed over.
        """
        self._answering += 1
        try:
            async with aclosing(self._first.respond(first.conversation, tools, options)) as events:
                async for event in events:
                    first.see(event)
                    yield event
            if not first.has_words and not first.has_calls and "no_answer" in self._rules:
                first.because = "the first model did not say a word"
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

    async def _gone_on(
        self, said: Message, conversation: Conversation, tools: Sequence[ToolSpec], options: ResponseOptions
    ) -> AsyncGenerator[ModelEvent, None]:
        """The second model's part, behind what the first one said; both become one turn."""
        view = replace(conversation, messages=list(conversation.messages))
        if said.text.strip():
            view.messages += [replace(said, thinking=""), Message("user", GO_ON)]
        length = len(view.messages)
        unsaid = _Unsaid(said.text)
        try:
            async with aclosing(self._second.respond(view, tools, options)) as events:
                async for event in events:
                    if isinstance(event, Text):
                        event = Text(unsaid.rest(event.text))
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
    """What the first model did."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.has_words = False
        self.has_calls = False
        self.because = ""
        self._length = len(conversation.messages)

    def see(self, event: ModelEvent) -> None:
        """An event came."""
        self.has_words = self.has_words or (isinstance(event, Text) and bool(event.text.strip()))
        self.has_calls = self.has_calls or isinstance(event, (ToolCallDetected, ToolCallFailed))

    def take_back(self) -> Message:
        """What it said, out of the conversation."""
        said = self.conversation.messages[self._length :]
        del self.conversation.messages[self._length :]
        return said[0] if said else Message("assistant")


def new_part(said: str, text: str) -> str:
    """What of ``text`` was not said: nothing while it only begins as that did, the rest where it repeats it whole."""
    return "" if said.startswith(text) else text.removeprefix(said)


class _Unsaid:
    """Takes away what was said already from words that come in pieces, where they begin with it in spite of all.

    Args:
        said: what was said; blank when nothing was.
    """

    def __init__(self, said: str) -> None:
        self._said = said if said.strip() else ""
        self._held = ""

    def rest(self, text: str) -> str:
        """What of the next piece is new."""
        if not self._said:
            return text
        self._held += text
        new = new_part(self._said, self._held)
        if new:
            self._said = ""
        return new
