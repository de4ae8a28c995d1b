"""``MarkupFilter``: replace tool calls in an answer that has no tools by a sentence.

A model that was trained on tools may write a call although no tool was declared. Only text within a family's call
markers is treated as one: many users ask for JSON and programs. The model's own conversation keeps the original text;
events and stored answers do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rkllm_mcp.catalogue import translate
from rkllm_mcp.events import DetectorEvent, Event, Text, ToolCallFailed, Usage
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.protocols import Step
from rkllm_mcp.text import Language
from rkllm_mcp.toolcalls.detector import Detector

_REASON = "no tool is switched on for this answer, which has "
# The detector looks for calls only if a tool is declared; no model can name this one.
_NOTHING = ToolSpec("")


class MarkupFilter(Step):
    """Filter for the events of one answer; ``language`` is the user's, ``en`` or ``ja``.

    Without ``has_tools``, calls become ``ToolCallFailed`` and leave the text.
    """

    def __init__(self, language: Language) -> None:
        # Replaces an answer that consists of calls only.
        self._sentence = translate("answer.no_tool_on", language)
        self.has_tools = True
        self._reading = _Reading(self._sentence)

    def feed(self, batch: Sequence[Event]) -> Sequence[Event]:
        """Return the events without the markup of calls, as far as they are certain."""
        if self.has_tools:
            return batch
        return [certain for event in batch for certain in self._reading.read(event)]

    def finish(self) -> Sequence[Event]:
        """Return the text that could have begun a call."""
        return self._reading.finish()

    def words(self, text: str) -> str:
        """Return the filtered text of a whole answer."""
        if self.has_tools:
            return text
        reading = _Reading(self._sentence)
        events = [*reading.read(Text(text)), *reading.finish()]
        return "".join(event.text for event in events if isinstance(event, Text))


@dataclass(eq=False)
class _Reading:
    """Filter state of one answer."""

    sentence: str
    _detector: Detector | None = None
    _has_words: bool = False
    _has_calls: bool = False

    def read(self, event: Event) -> Sequence[Event]:
        """Return the events that are certain."""
        if isinstance(event, Text):
            self._detector = self._detector or Detector((_NOTHING,))
            return self._visible_events(self._detector.feed(event.text))
        # The end of a round.
        return [*self.finish(), event] if isinstance(event, Usage) else [event]

    def finish(self) -> list[Event]:
        """Return the events that were held back."""
        if self._detector is None:
            return []
        remaining = self._visible_events(self._detector.finish())
        self._detector = None
        if self._has_calls and not self._has_words:
            remaining.append(Text(self.sentence))
        return remaining

    def _visible_events(self, events: Sequence[DetectorEvent]) -> list[Event]:
        visible: list[Event] = []
        for event in events:
            if isinstance(event, Text):
                self._has_words = self._has_words or bool(event.text.strip())
                visible.append(event)
            else:
                self._has_calls = True
                raw = getattr(event, "raw", "")
                visible.append(ToolCallFailed(raw, f"{_REASON}{' '.join(raw.split())}"))
        return visible
