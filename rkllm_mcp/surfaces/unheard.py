"""Calls of tools in an answer that has none: a person reads a sentence about them instead of their markup.

A model that was trained on tools may write a call though no tool was shown to it. Only what stands in a family's
markers is taken for one; JSON and programs are what many people ask for. The conversation keeps what was written, and
so does the event in its place.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from rkllm_mcp.events import DetectorEvent, End, Event, Text, ToolCallFailed, Usage
from rkllm_mcp.messages import ToolSpec

if TYPE_CHECKING:
    from rkllm_mcp.toolcalls.detector import Detector

NO_TOOLS = "[The model wanted to call a tool, and none is switched on; switch one on, or ask in other words.]"
_REASON = "no tool is switched on for this answer, which has "
# Something has to be declared for calls to be looked for; no model can name it.
_NOTHING = ToolSpec("")


async def without_markup(
    events: AsyncGenerator[Event, None], has_tools: Callable[[], bool]
) -> AsyncGenerator[Event, None]:
    """An answer in which calls that nobody can run are no text.

    Args:
        events: the answer.
        has_tools: whether the answer has tools; asked once, when its first words come.
    """
    reading = _Reading(has_tools)
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Text):
                for read in reading.read(event):
                    yield read
                continue
            if isinstance(event, (Usage, End)):
                for read in reading.over():
                    yield read
            yield event


class _Reading:
    """The words of one answer, looked through where it has no tools."""

    def __init__(self, has_tools: Callable[[], bool]) -> None:
        self._has_tools = has_tools
        self._looks: bool | None = None
        self._detector: Detector | None = None
        self._has_words = self._has_calls = False

    def read(self, event: Text) -> Sequence[Event]:
        """What is certain of the words so far."""
        from rkllm_mcp.toolcalls.detector import Detector

        if self._looks is None:
            self._looks = not self._has_tools()
        if not self._looks:
            return [event]
        if self._detector is None:
            self._detector = Detector((_NOTHING,))
        return self._seen(self._detector.feed(event.text))

    def over(self) -> Sequence[Event]:
        """What was held back, and the sentence where nothing else is left to be read."""
        if self._detector is None:
            return []
        found = self._seen(self._detector.finish())
        self._detector = None
        if self._has_calls and not self._has_words:
            found.append(Text(NO_TOOLS))
        return found

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
