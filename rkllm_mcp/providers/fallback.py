"""``FallbackModel``: the first model answers; the second takes over in the configured cases only.

    first ─▶ events ─────────────────────────▶ events
      └─ failed, too long, silent, busy ─▶ second

Text of the first model is not repeated: the second continues after it. After a tool call nothing is handed over, so
that a call is never made twice. The second model finishes the answer; the next question starts with the first again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from rkllm_mcp.catalogue import status_line
from rkllm_mcp.config.sections import Occasion
from rkllm_mcp.errors import GenerationError, PromptTooLongError, RuntimeUnusableError
from rkllm_mcp.events import Event, Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.generation import ModelOptions
from rkllm_mcp.messages import Conversation, Message, ToolSpec
from rkllm_mcp.protocols import EventSink, StatefulModel, Turn
from rkllm_mcp.providers.remote import RemoteModel

GO_ON = "[Your answer was cut off here. Go on right where it ends; do not repeat what is there.]"


@dataclass(eq=False)
class FallbackModel:
    """A ``StatefulModel`` on two models, with the rules that hand over from the first to the second."""

    _first: StatefulModel
    _second: RemoteModel
    _rules: Collection[Occasion]
    _answering: int = 0
    _handed_over: set[str] = field(default_factory=set[str])

    async def respond(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions, sink: EventSink
    ) -> Turn:
        """See ``ChatModel.respond``."""
        if options.continues:
            return await self._first.respond(conversation, tools, options, sink)
        length = len(conversation.messages)
        if conversation.id not in self._handed_over:
            because: Turn | str = "the first model is busy with another answer"
            if not self._answering or "busy" not in self._rules:
                because = await self._run_first(conversation, tools, options, sink)
            if isinstance(because, Turn):
                return because
            self._handed_over.add(conversation.id)
            host = self._second.service.host
            sink.feed([status_line("handing_over", name=self._second.name, host=host, reason=because)])
        # The first model's turn, if it produced one, becomes part of the second's.
        added = conversation.messages[length:]
        del conversation.messages[length:]
        first = added[0] if added else Message("assistant")
        view = replace(conversation, messages=list(conversation.messages))
        if first.text.strip():
            view.messages += [replace(first, thinking=""), Message("user", GO_ON)]
        length = len(view.messages)
        joined = first
        try:
            turn = await self._second.respond(view, tools, options, _NewEvents(first.text, sink))
        finally:
            conversation.calls_made, conversation.unpaid_tokens = view.calls_made, view.unpaid_tokens
            added = view.messages[length:]
            if added or first.text:
                second = added[0] if added else Message("assistant")
                text = first.text + new_part(first.text, second.text)
                joined = replace(second, text=text, thinking=f"{first.thinking}{second.thinking}")
                conversation.add(joined)
        return replace(turn, message=joined, has_text=turn.has_text or bool(first.text.strip()))

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
        """See ``StatefulModel.branch``."""
        self._first.branch(conversation_id, new_id)
        self._second.branch(conversation_id, new_id)

    async def _run_first(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions, sink: EventSink
    ) -> Turn | str:
        """Run the first model; return its turn, or the reason for handing over if the rules allow it.

        Of an error that is the problem alone: its remedy has become unnecessary.
        """
        first = _FirstAnswer(sink)
        self._answering += 1
        try:
            turn = await self._first.respond(conversation, tools, options, first)
        except PromptTooLongError as error:
            if "too_long" not in self._rules:
                raise
            return error.problem
        except (GenerationError, RuntimeUnusableError) as error:
            if "failed" not in self._rules or first.has_calls:
                raise
            return error.problem
        finally:
            self._answering -= 1
        if not turn.has_text and not first.has_calls and "no_answer" in self._rules:
            return "the first model gave no answer"
        return turn


def new_part(earlier: str, text: str) -> str:
    """Return ``text`` without a leading repetition of the earlier text; empty while it is only a prefix of it."""
    return "" if earlier.startswith(text) else text.removeprefix(earlier)


class _FirstAnswer:
    """The sink of the first model; notes whether it has called a tool."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink
        self.has_calls = False
        self.drain = sink.drain

    def feed(self, batch: Sequence[Event]) -> None:
        """Pass on the events."""
        self.has_calls = self.has_calls or any(isinstance(event, (ToolCallDetected, ToolCallFailed)) for event in batch)
        self._sink.feed(batch)


class _NewEvents:
    """The sink of the second model; removes a repetition of the first one's text from the start."""

    def __init__(self, earlier: str, sink: EventSink) -> None:
        self._earlier = earlier if earlier.strip() else ""
        self._buffer = ""
        self._sink = sink
        self.drain = sink.drain

    def feed(self, batch: Sequence[Event]) -> None:
        """Pass on what is new."""
        new: list[Event] = []
        for event in batch:
            if isinstance(event, Text) and self._earlier:
                self._buffer += event.text
                event = Text(new_part(self._earlier, self._buffer))
                if event.text:
                    self._earlier = ""
            if not isinstance(event, Text) or event.text:
                new.append(event)
        if new:
            self._sink.feed(new)
