"""Stop strings: find the text that ends an answer in a stream, however the stream is divided into pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from rkllm_mcp.generation import Token


class StopMatcher:
    """Search a stream of text for the stop string that ends first; of several that end together the longest counts.

    ``stops`` holds no empty string.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._buffer: str = ""

    def feed(self, text: str) -> tuple[str, str | None]:
        """Return the text that is certainly part of the answer, and the stop string if it was found.

        Text is buffered only while it may be the beginning of a stop string.
        """
        if not self._stops:
            return text, None
        text = self._buffer + text
        ends = [(at + len(stop), -len(stop), stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            end, _, stop = min(ends)
            self._buffer = ""
            return text[: end - len(stop)], stop
        certain = len(text) - self._partial_match(text)
        self._buffer = text[certain:]
        return text[:certain], None

    def finish(self) -> str:
        """Return the buffered text, which nothing will follow."""
        buffered, self._buffer = self._buffer, ""
        return buffered

    def _partial_match(self, text: str) -> int:
        """Return the number of characters at the end of ``text`` that may be the beginning of a stop string."""
        return max(
            (
                length
                for stop in self._stops
                for length in range(1, min(len(stop) - 1, len(text)) + 1)
                if text.endswith(stop[:length])
            ),
            default=0,
        )


class StopStrings:
    """A ``StopMatcher`` on tokens: a token leaves whole once all of its text is certain.

    Tokens that spell the stop string leave without that text: their ids are in the KV cache. ``found`` is the stop
    string, None before it came.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._matcher = StopMatcher(stops)
        self._buffer: deque[Token] = deque()
        self._certain = 0  # characters of the buffered tokens that are certain
        self.found: str | None = None

    def feed(self, token: Token) -> list[Token]:
        """Return the tokens that are certain now; behind the stop string all buffered ones, with the certain text."""
        released, self.found = self._matcher.feed(token.text)
        self._buffer.append(token)
        self._certain += len(released)
        tokens: list[Token] = []
        while self._buffer and (self.found is not None or len(self._buffer[0].text) <= self._certain):
            token = self._buffer.popleft()
            text = token.text[: self._certain]
            self._certain -= len(text)
            tokens.append(token if len(text) == len(token.text) else replace(token, text=text))
        return tokens

    def finish(self) -> list[Token]:
        """Return the buffered tokens, which nothing will follow."""
        tokens = list(self._buffer)
        self._buffer.clear()
        return tokens
