"""``TurnBuilder``: stream parts of a remote model -> events and, at the end, the assistant message.

Local services often leave thinking in the text, between tags; the detector separates it as on the NPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rkllm_mcp.events import DetectorEvent, ModelEvent, Status, Text, Thinking, ToolCallDetected, ToolCallFailed
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolSpec
from rkllm_mcp.providers.stream_parts import (
    CallPart,
    CallParts,
    FinishPart,
    StreamPart,
    TextPart,
    ThinkingPart,
    UsagePart,
)
from rkllm_mcp.providers.wire_messages import WireNames
from rkllm_mcp.toolcalls.detector import Detector
from rkllm_mcp.toolcalls.resolve import ToolCatalogue


class Cut:
    """Passes events on until the end of one answer; ``is_over`` becomes True there."""

    def __init__(self, stops: Sequence[str] = (), *, single_call: bool = False) -> None:
        self._stops = tuple(stops)
        self._single_call = single_call
        self._buffer = ""
        self.is_over = False

    def passed(self, events: Iterable[DetectorEvent]) -> Iterator[DetectorEvent]:
        """Yield the events that are certain."""
        for event in events:
            if self.is_over:
                return
            if isinstance(event, Text):
                yield from self._match(event.text)
            else:
                yield from self.rest()
                self.is_over = self._single_call and isinstance(event, ToolCallDetected)
                yield event

    def rest(self) -> Iterator[DetectorEvent]:
        """Yield the buffered text, which nothing will follow."""
        buffered, self._buffer = self._buffer, ""
        if buffered:
            yield Text(buffered)

    def _match(self, words: str) -> Iterator[DetectorEvent]:
        if not self._stops:
            yield Text(words)
            return
        text = self._buffer + words
        places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        self.is_over = bool(places)
        certain = min(places) if places else len(text) - self._partial_match(text)
        self._buffer = "" if places else text[certain:]
        if certain:
            yield Text(text[:certain])

    def _partial_match(self, text: str) -> int:
        """Return the number of characters at the end of ``text`` that may be the beginning of a stop string."""
        lengths = (
            length
            for stop in self._stops
            for length in range(1, min(len(stop) - 1, len(text)) + 1)
            if text.endswith(stop[:length])
        )
        return max(lengths, default=0)


WITHHELD = "[Model: the service withheld the rest of this answer; rephrase the question]"


class TurnBuilder:
    """One turn under construction.

    Without tools no calls are parsed; ``single_call`` accepts the first call only.
    """

    def __init__(
        self, conversation: Conversation, tools: Sequence[ToolSpec], names: WireNames, *, single_call: bool = False
    ) -> None:
        self._conversation = conversation
        self._parts = CallParts(ToolCatalogue(tools), names)
        self._has_tools = bool(tools)
        self._single_call = single_call
        self._detector = Detector((), None, "auto")
        self._text: list[str] = []
        self._thinking: list[str] = []
        self.calls: list[ToolCall] = []
        self.counted: UsagePart | None = None
        self.stopped: FinishPart | None = None

    @property
    def has_content(self) -> bool:
        """True once the model has produced text, thinking or a call."""
        return bool(self._text or self._thinking or self.calls or self._parts)

    def take(self, piece: StreamPart) -> list[ModelEvent]:
        """Add a part; return the events that are certain."""
        match piece:
            case TextPart():
                return self._collect(self._detector.feed(piece.text))
            case ThinkingPart():
                return self._collect([Thinking(piece.text)])
            case CallPart():
                if self._has_tools:
                    self._parts.add(piece)
            case UsagePart():
                self.counted = piece
            case FinishPart():
                self.stopped = piece
        return []

    def finish(self) -> list[ModelEvent]:
        """End a complete turn; return the buffered events, including calls."""
        events = self._collect(self._detector.finish())
        is_cut = self.stopped is not None and self.stopped.why == "length"
        for event in self._parts.finish(is_cut=is_cut):
            events += self._collect([event])
            if self._single_call and self.calls:
                break
        if self.stopped is not None and self.stopped.why == "withheld":
            events.append(Status(WITHHELD))
        return events

    def message(self) -> Message:
        """Return the assistant message with the output so far."""
        # Text that was still buffered when the round failed was never shown and is dropped.
        return Message(
            "assistant",
            "".join(self._text),
            calls=tuple(self.calls),
            thinking="".join(self._thinking),
            cut=self.stopped is not None and self.stopped.why == "length",
        )

    def _collect(self, events: Sequence[Text | Thinking | ToolCallDetected | ToolCallFailed]) -> list[ModelEvent]:
        """Add the events to the turn and return them; a call gets its id."""
        collected: list[ModelEvent] = []
        for event in events:
            if isinstance(event, Text):
                self._text.append(event.text)
            elif isinstance(event, Thinking):
                self._thinking.append(event.text)
            elif isinstance(event, ToolCallDetected):
                event = replace(event, id=self._conversation.next_call_id())
                self.calls.append(ToolCall(event.id, event.name, event.arguments, event.raw, event.repaired))
            else:
                # As on the NPU: the turn contains the text of the failed call, which the repair message refers to.
                self._text.append(event.raw)
            collected.append(event)
        return collected
