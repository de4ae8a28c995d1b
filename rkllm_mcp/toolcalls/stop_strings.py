"""Stop strings: a stream of tokens in, the same tokens out, up to the text that ends the answer.

A token is kept back only while its text may still be the beginning of a stop string, and comes out whole as soon as it
is not. Of the tokens that spell a stop string the ids come out, because they are in the KV cache, and the text does
not. How the text is cut into tokens makes no difference to the text that comes out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from rkllm_mcp.generation import Token


class StopStrings:
    """Watches one answer.

    Args:
        stops: the texts that end it; none of them empty.

    Attributes:
        found: the stop string that came; None as long as none did.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held: deque[Token] = deque()
        self._text = ""
        self.found: str | None = None

    def feed(self, token: Token) -> list[Token]:
        """The tokens that are certain now; the last ones there will be once ``found`` is set."""
        self._held.append(token)
        self._text += token.text
        ended = self._earliest()
        if ended is not None:
            end, self.found = ended
            return self._release(self._cut(end - len(self.found)))
        return self._released(len(self._text) - self._begun())

    def finish(self) -> list[Token]:
        """There will be no more tokens: what was held back, whole."""
        return self._release(list(self._held))

    def _earliest(self) -> tuple[int, str] | None:
        """Where the first stop string ends and which it is; the longest, where several end together."""
        found = [(at + len(stop), -len(stop), stop) for stop in self._stops if (at := self._text.find(stop)) >= 0]
        if not found:
            return None
        end, _, stop = min(found)
        return end, stop

    def _begun(self) -> int:
        """How many characters at the end of the text may be the beginning of a stop string."""
        text = self._text
        return max(
            (
                length
                for stop in self._stops
                for length in range(1, min(len(stop) - 1, len(text)) + 1)
                if text.endswith(stop[:length])
            ),
            default=0,
        )

    def _released(self, certain: int) -> list[Token]:
        """Let go of the tokens that lie within the first ``certain`` characters."""
        out: list[Token] = []
        while self._held and len(self._held[0].text) <= certain:
            token = self._held.popleft()
            certain -= len(token.text)
            self._text = self._text[len(token.text) :]
            out.append(token)
        return out

    def _cut(self, length: int) -> list[Token]:
        """The tokens held, with no more than ``length`` characters of text."""
        out: list[Token] = []
        for token in self._held:
            out.append(token if len(token.text) <= length else replace(token, text=token.text[:length]))
            length -= len(out[-1].text)
        return out

    def _release(self, tokens: list[Token]) -> list[Token]:
        self._held.clear()
        self._text = ""
        return tokens
