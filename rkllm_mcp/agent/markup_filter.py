"""Calls of tools in an answer that has none: a person reads a sentence about them instead of their markup.

A model that was trained on tools may write a call though no tool was shown to it. Only what stands in a family's
markers is taken for one; JSON and programs are what many people ask for. The conversation goes on with what the model
wrote, and so does the event in its place; what is kept and shown again has no markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rkllm_mcp.events import DetectorEvent, End, Event, Text, ToolCallFailed, Usage
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.protocols import EmitEvents
from rkllm_mcp.toolcalls.detector import Detector

# In the place of an answer that is nothing but calls, by the language of whoever reads it.
SENTENCES: Mapping[str, str] = {
    "en": "[The model wanted to call a tool, and none is switched on; switch one on, or ask in other words.]",
    "ja": "[モデルがツールを呼び出そうとしましたが、有効なツールがありません。"
    "ツールを有効にするか、別の言葉で質問してください]",
}
_REASON = "no tool is switched on for this answer, which has "
# Something has to be declared for calls to be looked for; no model can name it.
_NOTHING = ToolSpec("")


class MarkupFilter:
    """What a person hears of one answer.

    Args:
        language: of the person, ``en`` or ``ja``.
    """

    def __init__(self, language: str) -> None:
        self._sentence = SENTENCES[language]
        self._has_tools = True

    def of(self, emit: EmitEvents, *, has_tools: bool) -> EmitEvents:
        """Where the answer's events go.

        Args:
            emit: takes them; where there are no tools, calls as ``ToolCallFailed`` and their markup out of the words.
            has_tools: whether the answer has tools.
        """
        self._has_tools = has_tools
        reading = _Reading(self._sentence)

        async def read(events: Sequence[Event]) -> None:
            if seen := [seen for event in events for seen in reading.read(event)]:
                await emit(seen)

        return emit if has_tools else read

    def words(self, text: str) -> str:
        """The same for the words of the whole answer."""
        if self._has_tools:
            return text
        events = _Reading(self._sentence).read(Text(text), is_over=True)
        return "".join(event.text for event in events if isinstance(event, Text))


class _Reading:
    """The events of one answer."""

    def __init__(self, sentence: str) -> None:
        self._sentence = sentence
        self._detector: Detector | None = None
        self._has_words = self._has_calls = False

    def read(self, event: Event, *, is_over: bool = False) -> Sequence[Event]:
        """What is certain with this event, and what was held back where the words are over."""
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
