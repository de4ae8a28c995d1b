"""Where an answer is to end: at a text of the request's, or behind its first call.

    events of the detector ─▶ Cut ─▶ the same events, up to the end that was asked for

Rules: a stop text is looked for in the answer's words alone, and is no part of them; words are held back only while
they may still be the beginning of one, and how they are cut into events makes no difference. What stands between two
stretches of words, thinking or a call, parts them. It knows no engine: whoever runs one asks ``is_over``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rkllm_mcp.events import DetectorEvent, Text, ToolCallDetected


class Cut:
    """Watches one answer.

    Args:
        stops: the texts that end it; none of them empty.
        single_call: its first call ends it.

    Attributes:
        is_over: the end came; nothing that follows is part of the answer.
    """

    def __init__(self, stops: Sequence[str] = (), *, single_call: bool = False) -> None:
        self._stops = tuple(stops)
        self._single_call = single_call
        self._held = ""
        self.is_over = False

    def passed(self, events: Iterable[DetectorEvent]) -> Iterator[DetectorEvent]:
        """The events that are certain now."""
        for event in events:
            if self.is_over:
                return
            if isinstance(event, Text):
                yield from self._words(event.text)
            else:
                yield from self.rest()
                self.is_over = self._single_call and isinstance(event, ToolCallDetected)
                yield event

    def rest(self) -> Iterator[DetectorEvent]:
        """The words that were held back: no more will follow them."""
        held, self._held = self._held, ""
        if held:
            yield Text(held)

    def _words(self, words: str) -> Iterator[DetectorEvent]:
        if not self._stops:
            yield Text(words)
            return
        text = self._held + words
        places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        self.is_over = bool(places)
        certain = min(places) if places else len(text) - self._begun(text)
        self._held = "" if places else text[certain:]
        if certain:
            yield Text(text[:certain])

    def _begun(self, text: str) -> int:
        """How many characters at the end of the text may be the beginning of a stop text."""
        lengths = (
            length
            for stop in self._stops
            for length in range(1, min(len(stop) - 1, len(text)) + 1)
            if text.endswith(stop[:length])
        )
        return max(lengths, default=0)
