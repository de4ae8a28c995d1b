"""Stop strings: find the text that ends an answer in a stream, however the stream is divided into pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(eq=False)
class StopMatcher:
    """Search a stream of text for the stop string that ends first; of several that end together the longest counts.

    ``stops`` holds no empty string.
    """

    stops: Sequence[str]
    _buffer: str = ""

    def feed(self, text: str) -> tuple[str, str | None]:
        """Return the text that is certainly part of the answer, and the stop string if it was found.

        Text is buffered only while it may be the beginning of a stop string.
        """
        if not self.stops:
            return text, None
        text = self._buffer + text
        ends = [(at + len(stop), -len(stop), stop) for stop in self.stops if (at := text.find(stop)) >= 0]
        if ends:
            end, _, stop = min(ends)
            self._buffer = ""
            return text[: end - len(stop)], stop
        beginnings = (stop[:length] for stop in self.stops for length in range(1, min(len(stop) - 1, len(text)) + 1))
        certain = len(text) - max(map(len, filter(text.endswith, beginnings)), default=0)
        self._buffer = text[certain:]
        return text[:certain], None

    def finish(self) -> str:
        """Return the buffered text, which nothing will follow."""
        buffered, self._buffer = self._buffer, ""
        return buffered
