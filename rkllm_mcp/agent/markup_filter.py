"""``MarkupFilter``: replace tool calls in an answer that has no tools by a sentence.

A model that was trained on tools may write a call although no tool was declared. Only text within a family's call
markers is treated as one: many users ask for JSON and programs. The model's own conversation keeps the original text;
events and stored answers do not.
"""

from __future__ import annotations

from collections.abc import Sequence

from rkllm_mcp.catalogue import translate
from rkllm_mcp.events import DetectorEvent, End, Event, Text, ToolCallFailed, Usage
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.protocols import EmitEvents
from rkllm_mcp.text import Language
from rkllm_mcp.toolcalls.detector import Detector

_REASON = "no tool is switched on for this answer, which has "
# The detector looks for calls only if a tool is declared; no model can name this one.
_NOTHING = ToolSpec("")


class MarkupFilter:
    """Filter for the events of one answer; ``language`` is the user's, ``en`` or ``ja``."""

    def __init__(self, language: Language) -> None:
        # Replaces an answer that consists of calls only.
        self._sentence = translate("answer.no_tool_on", language)
        self._has_tools = True

    def of(self, emit: EmitEvents, *, has_tools: bool) -> EmitEvents:
        """Return the function that takes the answer's events and passes them to ``emit``.

        Without tools, calls become ``ToolCallFailed`` and their markup is removed from the text.
        """
        self._has_tools = has_tools
        reading = _Reading(self._sentence)

        async def read(events: Sequence[Event]) -> None:
            if seen := [seen for event in events for seen in reading.read(event)]:
                await emit(seen)

        return emit if has_tools else read

    def words(self, text: str) -> str:
        """Return the filtered text of a whole answer."""
        if self._has_tools:
            return text
        events = _Reading(self._sentence).read(Text(text), is_over=True)
        return "".join(event.text for event in events if isinstance(event, Text))


class _Reading:
    """Filter state of one answer."""

    def __init__(self, sentence: str) -> None:
        self._sentence = sentence
        self._detector: Detector | None = None
        self._has_words = self._has_calls = False

    def read(self, event: Event, *, is_over: bool = False) -> Sequence[Event]:
        """Return the events that are certain; with ``is_over`` the buffered ones too."""
        found: list[Event] = []
        if isinstance(event, Text):
            self._detector = self._detector or Detector((_NOTHING,))
            found += self._seen(self._detector.feed(event.text))
        if self._detector is not None and (is_over or isinstance(event, (Usage, End))):
            found += self._seen(self._detector.finish())
            self._detector = None
            if self._has_calls and not self._has_words:
                found.append(Text(self._sentence))
        return found if isinstance(event, Text) else [*found, event]

    def _seen(self, events: Sequence[DetectorEvent]) -> list[Event]:
        seen: list[Event] = []
        for event in events:
            if isinstance(event, Text):
                self._has_words = self._has_words or bool(event.text.strip())
                seen.append(event)
            else:
                self._has_calls = True
                raw = getattr(event, "raw", "")
                seen.append(ToolCallFailed(raw, f"{_REASON}{' '.join(raw.split())}"))
        return seen
