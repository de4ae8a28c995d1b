"""Where a call ends that is written like one in a program: ``[f(k='v')]``, ``f(k=1)``, ``call:f{k:<|"|>v<|"|>}``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rkllm_mcp.toolcalls.markers import Markers
from rkllm_mcp.toolcalls.scan import QUOTES, QuotedText, Verdict


class PythonScanner:
    """Follows one call, or one list of calls, in Python's spelling by brackets and strings.

    Args:
        boundary: what can stand neither inside a value nor, outside strings, anywhere before its end.
    """

    def __init__(self, boundary: Markers) -> None:
        self._boundary = boundary
        self._stops = re.compile("[" + re.escape("".join(sorted(boundary.first_characters | set("{}[]()\"'")))) + "]")
        self._depth = 0
        self._string = QuotedText()
        self._inner_closed = False

    def scan(self, text: str, start: int) -> tuple[Verdict, int]:
        """Go on at ``start``."""
        at = start
        while at < len(text):
            if self._string.quote:
                went_to = self._string.follow(text, at)
                if went_to == at:
                    return Verdict.MORE, at
                at = went_to
                continue
            found = self._stops.search(text, at)
            if found is None:
                break
            at = found.start()
            if text[at] in self._boundary.first_characters:
                marker = self._boundary.at(text, at)
                if marker is not False:
                    return (Verdict.BROKEN if marker else Verdict.MORE), at
            if text[at] in QUOTES and self._depth:
                quote = self._quote_at(text, at)
                if quote is None:
                    return Verdict.MORE, at
                self._string.quote, self._inner_closed = quote, False
                at += len(quote)
                continue
            at += 1
            if self._meets(text[at - 1]):
                return Verdict.COMPLETE, at
        return Verdict.MORE, len(text)

    def may_end(self) -> bool:
        """Only the last bracket of a list is missing, and the call before it was closed."""
        return not self._string.quote and self._depth == 1 and self._inner_closed

    def _quote_at(self, text: str, at: int) -> str | None:
        """The quote that opens a string here: one character or three; None when that is not clear yet."""
        mark = text[at]
        if text.startswith(mark * 3, at):
            return mark * 3
        return None if len(text) - at < 3 and text[at:] == mark * (len(text) - at) else mark

    def _meets(self, character: str) -> bool:
        """Take one structural character; True when it ends the call."""
        if character in "{[(":
            self._depth += 1
            self._inner_closed = False
        elif character in "}])":
            self._depth -= 1
            self._inner_closed = self._depth == 1
            return self._depth <= 0
        return False


class BraceScanner:
    """Follows one call in Gemma's spelling: a name, and braces whose strings stand between delimiters.

    Args:
        delimiters: what stands at both ends of a string, such as ``<|"|>``.
        boundary: what can stand neither inside a value nor, outside strings, anywhere before its end.
    """

    def __init__(self, delimiters: Sequence[str], boundary: Markers) -> None:
        self._boundary = boundary
        self._delimiters = Markers(delimiters)
        self._closing = {mark: Markers((mark,)) for mark in delimiters}
        self._stops = re.compile(r"[" + re.escape("".join(sorted(boundary.first_characters | set("{}[],:")))) + "]")
        self._depth = 0
        # Where a value begins, quotes mean strings; an apostrophe in the middle of one means nothing.
        self._fresh = False
        self._string = QuotedText()
        self._delimiter = ""

    def scan(self, text: str, start: int) -> tuple[Verdict, int]:
        """Go on at ``start``."""
        at = start
        while at < len(text):
            if self._string.quote or self._delimiter:
                went_to = self._in_string(text, at)
            elif self._fresh:
                went_to = self._value_begins(text, at)
            else:
                found = self._stops.search(text, at)
                if found is None:
                    break
                at = found.start()
                if text[at] in self._boundary.first_characters:
                    marker = self._boundary.at(text, at)
                    if marker is not False:
                        return (Verdict.BROKEN if marker else Verdict.MORE), at
                went_to = at + 1
                if self._meets(text[at]):
                    return Verdict.COMPLETE, went_to
            if went_to is None:
                return Verdict.MORE, at
            at = went_to
        return Verdict.MORE, len(text)

    def may_end(self) -> bool:
        """Never: the brace that is missing may have been that of a longer value."""
        return False

    def _value_begins(self, text: str, at: int) -> int | None:
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text):
            return at
        found = self._delimiters.at(text, at)
        if found is None:
            return None
        self._fresh = False
        if found:
            self._delimiter = next(mark for mark in self._delimiters.literals if text.startswith(mark, at))
            return at + len(self._delimiter)
        if text[at] in QUOTES:
            self._string.quote = text[at]
            return at + 1
        return at

    def _in_string(self, text: str, at: int) -> int | None:
        if not self._delimiter:
            return self._string.follow(text, at)
        closing = self._closing[self._delimiter].search(text, at)
        if closing is None:
            return len(text)
        place, whole = closing
        if not whole:
            return place if place > at else None
        length, self._delimiter = len(self._delimiter), ""
        return place + length

    def _meets(self, character: str) -> bool:
        if character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
            return self._depth <= 0
        self._fresh = character in "{[,:" and self._depth > 0
        return False
