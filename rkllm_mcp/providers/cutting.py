"""End an answer at a stop string or after its first call.

    detector events ─▶ Cut ─▶ the same events, up to the end

A stop string is matched in text only and is not part of the answer, however the text is split into events. Text is
buffered only while it may be the beginning of a stop string; thinking or a call between two texts separates them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rkllm_mcp.events import DetectorEvent, Text, ToolCallDetected


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
