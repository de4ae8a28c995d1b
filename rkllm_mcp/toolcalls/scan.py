"""Where the body of a call ends: scanners that see every character once and may be stopped anywhere.

A scanner is given a text and a place to go on from. It answers with a verdict and the place up to which it is done:
``MORE`` (it needs what follows, and has to be given again what it left), ``COMPLETE`` (the structure ended there) or
``BROKEN`` (a marker stands there, so the structure will not end). What is inside strings and values is never taken for
structure. A scanner neither keeps nor judges the text.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Protocol

from rkllm_mcp.toolcalls.markers import Markers


class Verdict(Enum):
    """What a scanner knows about the body."""

    MORE = "more"
    COMPLETE = "complete"
    BROKEN = "broken"


class Scanner(Protocol):
    """Follows the structure of one body."""

    def scan(self, text: str, start: int) -> tuple[Verdict, int]:
        """Go on at ``start``; the place returned with ``MORE`` is where the next text has to begin."""
        ...

    def may_end(self) -> bool:
        """Whether the body may stand as it is when the stream ends here, although its structure did not end."""
        ...


# Python's quote is one in JSON too: small models write literals.
QUOTES = "\"'"
_STRING_STOPS = {quote * length: re.compile(rf"[{quote}\\]") for quote in QUOTES for length in (1, 3)}


class QuotedText:
    """Follows a string between quotes of one character or three, in which only they and the backslash mean anything.

    Attributes:
        quote: what will end it; empty outside, and set by whoever meets one.
    """

    def __init__(self) -> None:
        self.quote = ""
        self._escaped = False

    def follow(self, text: str, at: int) -> int:
        """Go on inside it; the place up to which it is done is ``at`` where one of three quotes needs what follows."""
        if self._escaped:
            self._escaped = False
            return at + 1
        found = _STRING_STOPS[self.quote].search(text, at)
        if found is None:
            return len(text)
        if found.group() == "\\":
            self._escaped = True
            return found.end()
        behind = found.start() + len(self.quote)
        closing = text[found.start() : behind]
        if closing == self.quote:
            self.quote = ""
            return behind
        # The text may end with the first of three quotes.
        return found.end() if closing.strip(self.quote) else found.start()


class JsonScanner:
    """Follows one JSON value by depth, strings and escapes, also where it is not quite JSON.

    Args:
        boundary: what can stand neither inside a value nor, outside strings, anywhere before its end.
    """

    def __init__(self, boundary: Markers) -> None:
        self._boundary = boundary
        self._stops = re.compile("[" + re.escape("".join(sorted(boundary.first_characters | set("{}[]\"'")))) + "]")
        self._depth = 0
        self._string = QuotedText()
        self._inner_closed = False

    def scan(self, text: str, start: int) -> tuple[Verdict, int]:
        """Go on at ``start``."""
        at = start
        while at < len(text):
            if self._string.quote:
                at = self._string.follow(text, at)
                continue
            found = self._stops.search(text, at)
            if found is None:
                break
            at = found.start()
            if text[at] in self._boundary.first_characters:
                marker = self._boundary.at(text, at)
                if marker is not False:
                    return (Verdict.BROKEN if marker else Verdict.MORE), at
            at += 1
            if self._meets(text[at - 1]):
                return Verdict.COMPLETE, at
        return Verdict.MORE, len(text)

    def may_end(self) -> bool:
        """Only the last bracket is missing, and what it holds was closed: nothing that was begun is cut."""
        return not self._string.quote and self._depth == 1 and self._inner_closed

    def _meets(self, character: str) -> bool:
        """Take one structural character; True when it ends the value."""
        if character in "{[":
            self._depth += 1
            self._inner_closed = False
        elif character in "}]":
            self._depth -= 1
            self._inner_closed = self._depth == 1
            return self._depth <= 0
        elif character in QUOTES and self._depth:
            self._string.quote = character
            self._inner_closed = False
        return False


class NamedJsonScanner:
    """Follows one JSON object behind a head that names the tool: ``get_weather[ARGS]{…}``."""

    def __init__(self, boundary: Markers) -> None:
        self._boundary = boundary
        self._json: JsonScanner | None = None

    def scan(self, text: str, start: int) -> tuple[Verdict, int]:
        """Go on at ``start``."""
        if self._json is None:
            brace = text.find("{", start)
            marker = self._boundary.search(text, start)
            if marker is not None and not 0 <= brace < marker[0]:
                return (Verdict.BROKEN if marker[1] else Verdict.MORE), marker[0]
            if brace < 0:
                return Verdict.MORE, len(text)
            self._json, start = JsonScanner(self._boundary), brace
        return self._json.scan(text, start)

    def may_end(self) -> bool:
        """Only the last bracket is missing, and what it holds was closed."""
        return self._json is not None and self._json.may_end()
