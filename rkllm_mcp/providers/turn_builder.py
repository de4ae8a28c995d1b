"""``TurnBuilder``: generated text or stream parts -> events and, at the end, the assistant message.

    text ──▶ Detector ──▶ StopMatcher ──▶ events
    parts (remote) ─────────────────────▶ events

Local services often leave thinking in the text, between tags; the detector separates it as on the NPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from rkllm_mcp.catalogue import status_line
from rkllm_mcp.events import DetectorEvent, ModelEvent, Text, Thinking, ToolCallDetected, ToolCallFailed, Usage
from rkllm_mcp.messages import Conversation, Message, ToolCall
from rkllm_mcp.protocols import Turn
from rkllm_mcp.providers.stream_parts import (
    CallPart,
    CallParts,
    FinishPart,
    StreamPart,
    TextPart,
    ThinkingPart,
    UsagePart,
)
from rkllm_mcp.toolcalls.detector import Detector
from rkllm_mcp.toolcalls.stop_strings import StopMatcher


class TurnBuilder:
    """One turn under construction.

    Args:
        conversation: numbers the calls.
        detector: reads the text.
        stop: strings that end the turn; matched in its text only, and not across a call or thinking.
        single_call: the turn ends after its first valid call.
        call_parts: assembles calls that arrive as parts; None ignores them.
        earlier: the answer that this turn continues.
        reads_thoughts: makes a detector for thinking without an answer after it; None leaves calls in it unread.
    """

    def __init__(
        self,
        conversation: Conversation,
        detector: Detector,
        *,
        stop: Sequence[str] = (),
        single_call: bool = False,
        call_parts: CallParts | None = None,
        earlier: Message | None = None,
        reads_thoughts: Callable[[], Detector] | None = None,
    ) -> None:
        self._conversation = conversation
        self._detector = detector
        self._matcher = StopMatcher(stop) if stop else None
        self._single_call = single_call
        self._call_parts = call_parts
        self._reads_thoughts = reads_thoughts
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._failures: list[ToolCallFailed] = []
        self._earlier = earlier or Message("assistant")
        self._has_text, self._is_finished = earlier is not None, False
        self._is_cut = False  # the answer ended at the token limit
        self._stop_string = ""
        self.calls: list[ToolCall] = []
        self.usage_part: UsagePart | None = None
        self.finish_part: FinishPart | None = None
        self.is_over = False  # True once a stop string or the single call ended the turn

    @property
    def has_content(self) -> bool:
        """True once the model has produced text, thinking or a call."""
        return bool(self._text or self._thinking or self.calls or self._call_parts)

    def add_text(self, text: str) -> list[ModelEvent]:
        """Add generated text; return the events that are certain."""
        events = self._detector.feed(text)
        # Nearly every token is one piece of text.
        if len(events) == 1 and type(event := events[0]) is Text and self._matcher is None and not self.is_over:
            return [self._add_text(event)]
        return self._collect(events)

    def add(self, part: StreamPart) -> list[ModelEvent]:
        """Add a part; return the events that are certain."""
        match part:
            case TextPart():
                return self.add_text(part.text)
            case ThinkingPart():
                return self._collect([Thinking(part.text)])
            case CallPart():
                if self._call_parts is not None:
                    self._call_parts.add(part)
            case UsagePart():
                self.usage_part = part
            case FinishPart():
                self.finish_part, self._is_cut = part, part.why == "length"
        return []

    def finish(self) -> list[ModelEvent]:
        """End the turn; return the buffered events, including calls. Nothing if called again."""
        if self._is_finished:
            return []
        self._is_finished = True
        events = self._collect(self._detector.finish())
        if self._reads_thoughts is not None and not (self.calls or self._has_text or self._failures or self._is_cut):
            # A model that answers with nothing has made its call where it thought; one that goes on to answer has not.
            detector = self._reads_thoughts()
            thought_events = [*detector.feed("".join(self._thinking)), *detector.finish()]
            events += self._collect([event for event in thought_events if isinstance(event, ToolCallDetected)][-1:])
        if self._matcher is not None and (tail := self._matcher.finish()):
            events.append(self._add_text(Text(tail)))
        if self._call_parts is not None:
            events += self._collect(self._call_parts.finish(is_cut=self._is_cut))
        if self.finish_part is not None and self.finish_part.why == "withheld":
            events.append(status_line("withheld"))
        return events

    def message(self) -> Message:
        """Return the assistant message with the events returned so far."""
        return Message(
            "assistant",
            "".join([self._earlier.text, *self._text]),
            calls=tuple(self.calls),
            thinking="".join([self._earlier.thinking, *self._thinking]),
            cut=self._is_cut and not self.is_over,
        )

    def turn(self, usage: Usage | None = None) -> Turn:
        """Return the finished turn."""
        return Turn(self.message(), tuple(self._failures), usage, self._has_text, self._stop_string)

    def _collect(self, events: Iterable[DetectorEvent]) -> list[ModelEvent]:
        """Add the events to the turn, up to its end, and return them; a call gets its id."""
        collected: list[ModelEvent] = []
        for event in events:
            if self.is_over:
                break
            if isinstance(event, Text):
                if self._matcher is not None:
                    text, stop = self._matcher.feed(event.text)
                    self.is_over = stop is not None
                    self._stop_string = stop or ""
                    if not text:
                        continue
                    event = Text(text)
                collected.append(self._add_text(event))
                continue
            if self._matcher is not None and (tail := self._matcher.finish()):
                collected.append(self._add_text(Text(tail)))
            if isinstance(event, Thinking):
                self._thinking.append(event.text)
            elif isinstance(event, ToolCallDetected):
                event = replace(event, id=self._conversation.next_call_id())
                self.calls.append(ToolCall(event.id, event.name, event.arguments, event.raw, event.repaired))
                self.is_over = self._single_call
            else:
                # The turn contains the text of the failed call, which the repair message refers to.
                self._text.append(event.raw)
                self._failures.append(event)
            collected.append(event)
        return collected

    def _add_text(self, event: Text) -> Text:
        self._text.append(event.text)
        self._has_text = self._has_text or not event.text.isspace()
        return event
