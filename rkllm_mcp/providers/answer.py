"""``TurnBuilder``: stream parts of a remote model -> events and, at the end, the assistant message.

Local services often leave thinking in the text, between tags; the detector separates it as on the NPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rkllm_mcp.events import ModelEvent, Status, Text, Thinking, ToolCallDetected, ToolCallFailed
from rkllm_mcp.messages import Conversation, Message, ToolCall, ToolSpec
from rkllm_mcp.providers.calls import CallParts
from rkllm_mcp.providers.pieces import CallPart, Counted, Piece, Said, Stopped, Thought
from rkllm_mcp.providers.turns import WireNames
from rkllm_mcp.toolcalls.detector import Detector
from rkllm_mcp.toolcalls.payload import Catalogue

WITHHELD = "[Model: the service withheld the rest of this answer; rephrase the question]"


class Answer:
    """One turn under construction.

    Without tools no calls are parsed; ``single_call`` accepts the first call only.
    """

    def __init__(
        self, conversation: Conversation, tools: Sequence[ToolSpec], names: WireNames, *, single_call: bool = False
    ) -> None:
        self._conversation = conversation
        self._parts = CallParts(Catalogue(tools), names)
        self._has_tools = bool(tools)
        self._single_call = single_call
        self._detector = Detector((), None, "auto")
        self._text: list[str] = []
        self._thinking: list[str] = []
        self.calls: list[ToolCall] = []
        self.counted: Counted | None = None
        self.stopped: Stopped | None = None

    @property
    def has_content(self) -> bool:
        """True once the model has produced text, thinking or a call."""
        return bool(self._text or self._thinking or self.calls or self._parts)

    def take(self, piece: Piece) -> list[ModelEvent]:
        """Add a part; return the events that are certain."""
        match piece:
            case Said():
                return self._collect(self._detector.feed(piece.text))
            case Thought():
                return self._collect([Thinking(piece.text)])
            case CallPart():
                if self._has_tools:
                    self._parts.add(piece)
            case Counted():
                self.counted = piece
            case Stopped():
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
