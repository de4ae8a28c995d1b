"""The pieces of one round become its events and, at the end, the assistant's turn.

Local services often leave thinking in the text, between tags: it is taken out as on the NPU. It knows no service and
no clock.
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

WITHHELD = "[Model: the service held the rest of this answer back; ask in other words]"


class Answer:
    """One round in the making.

    Args:
        conversation: gives the calls their ids.
        tools: what may be called; with none, no call is read.
        names: how they were named to the service.
        single_call: only the first call counts.
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
        """Something of the model itself came."""
        return bool(self._text or self._thinking or self.calls or self._parts)

    def take(self, piece: Piece) -> list[ModelEvent]:
        """A piece came; returns what is certain now."""
        match piece:
            case Said():
                return self._kept(self._detector.feed(piece.text))
            case Thought():
                return self._kept([Thinking(piece.text)])
            case CallPart():
                if self._has_tools:
                    self._parts.add(piece)
            case Counted():
                self.counted = piece
            case Stopped():
                self.stopped = piece
        return []

    def finish(self) -> list[ModelEvent]:
        """The round is over, as a whole one; returns what was held back, the calls among it."""
        events = self._kept(self._detector.finish())
        is_cut = self.stopped is not None and self.stopped.why == "length"
        for event in self._parts.finish(is_cut=is_cut):
            events += self._kept([event])
            if self._single_call and self.calls:
                break
        if self.stopped is not None and self.stopped.why == "withheld":
            events.append(Status(WITHHELD))
        return events

    def message(self) -> Message:
        """The assistant's turn, of all that came."""
        # What was held back when the round broke off was never shown, and is told nobody.
        return Message(
            "assistant",
            "".join(self._text),
            calls=tuple(self.calls),
            thinking="".join(self._thinking),
            cut=self.stopped is not None and self.stopped.why == "length",
        )

    def _kept(self, events: Sequence[Text | Thinking | ToolCallDetected | ToolCallFailed]) -> list[ModelEvent]:
        """The events, kept for the turn; a call gets its id."""
        kept: list[ModelEvent] = []
        for event in events:
            if isinstance(event, Text):
                self._text.append(event.text)
            elif isinstance(event, Thinking):
                self._thinking.append(event.text)
            elif isinstance(event, ToolCallDetected):
                event = replace(event, id=self._conversation.next_call_id())
                self.calls.append(ToolCall(event.id, event.name, event.arguments, event.raw, event.repaired))
            else:
                # As on the NPU: the model finds in its turn what it is told about.
                self._text.append(event.raw)
            kept.append(event)
        return kept
