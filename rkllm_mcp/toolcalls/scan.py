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

from rkllm_mcp.toolcalls.markers import SPACE, Markers, Shape, literal


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


# In a string only its quote and the backslash mean anything. Python's quote is one too: small models write literals.
_STRING_STOPS = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}


class JsonScanner:
    """Follows one JSON value by depth, strings and escapes, also where it is not quite JSON.

    Args:
        boundary: what can stand neither inside a value nor, outside strings, anywhere before its end.
    """

    def __init__(self, boundary: Markers) -> None:
        self._boundary = boundary
        self._stops = re.compile("[" + re.escape("".join(sorted(boundary.first_characters | set("{}[]\"'")))) + "]")
        self._depth = 0
        self._quote = ""
        self._escaped = False
        self._inner_closed = False

    def scan(self, text: str, start: int) -> tuple[Verdict, int]:
        """Go on at ``start``."""
        at = start
        while at < len(text):
            if self._quote:
                at = self._in_string(text, at)
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
        return not self._quote and self._depth == 1 and self._inner_closed

    def _in_string(self, text: str, at: int) -> int:
        if self._escaped:
            self._escaped = False
            return at + 1
        found = _STRING_STOPS[self._quote].search(text, at)
        if found is None:
            return len(text)
        if found.group() == "\\":
            self._escaped = True
        else:
            self._quote = ""
        return found.end()

    def _meets(self, character: str) -> bool:
        """Take one structural character; True when it ends the value."""
        if character in "{[":
            self._depth += 1
            self._inner_closed = False
        elif character in "}]":
            self._depth -= 1
            self._inner_closed = self._depth == 1
            return self._depth <= 0
        elif character in _STRING_STOPS and self._depth:
            self._quote = character
            self._inner_closed = False
        return False


ARGUMENT_TAGS = ("argument", "parameter", "arg")
"""How the element of one argument may be called; the first is the project's, the others are what models drift to."""

_HEAD_STOPS = re.compile(r"[\"'>]")
_CALL_END = Shape(*literal("</tool_call"), SPACE, ">")
_CDATA = Shape(*literal("<![CDATA["))
_ARGUMENT_OPENS = {tag: Shape(*literal(f"<{tag}"), r"[\s/>]") for tag in ARGUMENT_TAGS}
_ARGUMENT_CLOSES = {tag: Shape(*literal(f"</{tag}"), SPACE, ">") for tag in ARGUMENT_TAGS}
# A value may hold the text of its own closing tag; the real one is followed by the next argument or by the call's end.
_VALUE_ENDS = {
    tag: (
        Shape(*literal(f"</{tag}"), SPACE, ">", SPACE, *literal("</tool_call")),
        Shape(*literal(f"</{tag}"), SPACE, ">", SPACE, *literal(f"<{tag}"), r"[\s/>]"),
    )
    for tag in ARGUMENT_TAGS
}

Span = tuple[int, int]


class XmlScanner:
    """Follows one call of the project's XML style, from behind ``<tool_call`` to behind its end.

    ``head`` and ``arguments`` hold the places of the attributes and of each argument's attributes and value. They are
    right when the scanner was given the whole body in one piece, as the reader does.
    """

    def __init__(self, boundary: Markers) -> None:
        self._boundary = boundary
        self._state = self._in_head
        self._quote = ""
        self._slash = False
        self._tag = ""
        self._nested = 0
        self._begin = 0
        self._argument_head: Span = (0, 0)
        self.head: Span = (0, 0)
        self.arguments: list[tuple[Span, Span]] = []

    def scan(self, text: str, start: int) -> tuple[Verdict, int]:
        """Go on at ``start``."""
        at = start
        while True:
            verdict, went_to = self._state(text, at)
            if verdict is not None:
                return verdict, went_to
            at = went_to

    def may_end(self) -> bool:
        """Never: without its closing tag nobody knows whether another argument was to come."""
        return False

    # Each state returns (None, place) to go on, or a verdict.

    def _in_head(self, text: str, at: int) -> tuple[Verdict | None, int]:
        while at < len(text):
            if self._quote:
                closing = text.find(self._quote, at)
                if closing < 0:
                    break
                self._quote, self._slash, at = "", False, closing + 1
                continue
            found = _HEAD_STOPS.search(text, at)
            if found is None:
                self._slash = text[-1] == "/"
                break
            slash = text[found.start() - 1] == "/" if found.start() > at else self._slash
            at = found.end()
            if found.group() == ">":
                return self._head_ended(at, slash)
            self._quote = found.group()
        return Verdict.MORE, len(text)

    def _head_ended(self, at: int, self_closing: bool) -> tuple[Verdict | None, int]:
        span = (self._begin, at - 1 - self_closing)
        self._slash = False
        if self._tag:
            self._argument_head = span
            if not self_closing:
                self._state, self._begin, self._nested = self._in_value, at, 0
                return None, at
            self.arguments.append((span, (at, at)))
        else:
            self.head = span
            if self_closing:
                return Verdict.COMPLETE, at
        self._state = self._between
        return None, at

    def _between(self, text: str, at: int) -> tuple[Verdict | None, int]:
        at = text.find("<", at)
        if at < 0:
            return Verdict.MORE, len(text)
        ended = _CALL_END.match(text, at)
        if ended is not None:
            return Verdict.COMPLETE, ended
        for tag, opens in _ARGUMENT_OPENS.items():
            if opens.match(text, at) is not None:
                self._tag, self._state, self._begin = tag, self._in_head, at + len(tag) + 1
                return None, self._begin
        if self._boundary.at(text, at):
            return Verdict.BROKEN, at
        waiting = (_CALL_END, *_ARGUMENT_OPENS.values(), self._boundary)
        return (Verdict.MORE, at) if any(thing.at(text, at) is None for thing in waiting) else (None, at + 1)

    def _in_value(self, text: str, at: int) -> tuple[Verdict | None, int]:
        at = text.find("<", at)
        if at < 0:
            return Verdict.MORE, len(text)
        ends, opens, closes = _VALUE_ENDS[self._tag], _ARGUMENT_OPENS[self._tag], _ARGUMENT_CLOSES[self._tag]
        if _CDATA.match(text, at):
            self._state = self._in_cdata
            return None, at + 1
        if opens.match(text, at):
            self._nested += 1
            return None, at + 1
        closed = closes.match(text, at)
        if closed is not None and self._nested:
            self._nested -= 1
            return None, closed
        if closed is not None and any(end.match(text, at) for end in ends):
            self.arguments.append((self._argument_head, (self._begin, at)))
            self._state = self._between
            return None, closed
        waiting = (_CDATA, opens, closes, *(() if self._nested else ends))
        return (Verdict.MORE, at) if any(thing.at(text, at) is None for thing in waiting) else (None, at + 1)

    def _in_cdata(self, text: str, at: int) -> tuple[Verdict | None, int]:
        end = text.find("]]>", at)
        if end < 0:
            # The last two characters may be the beginning of the end.
            return Verdict.MORE, max(at, len(text) - 2)
        self._state = self._in_value
        return None, end + 3
