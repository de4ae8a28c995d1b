"""Scanners that find the end of a call body: JSON, Python calls, braces, tags."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Protocol

from rkllm_mcp.toolcalls.markers import SPACE, Markers, Shape, literal


class ScanState(Enum):
    """State of the scan of one body."""

    MORE = "more"
    COMPLETE = "complete"
    BROKEN = "broken"


class Scanner(Protocol):
    """Finds the end of one body that arrives in chunks."""

    def scan(self, text: str, start: int) -> tuple[ScanState, int]:
        """Continue at ``start``; the position returned with ``MORE`` is where the next text must begin."""
        ...

    def may_end(self) -> bool:
        """Return True if the body may be complete when the stream ends here, although its structure did not end.

        By default it is not: what is missing may belong to a longer value, or lead to another argument.
        """
        return False


# Single quotes count in JSON too: small models write Python literals.
QUOTES = "\"'"
_STRING_STOPS = {quote * length: re.compile(rf"[{quote}\\]") for quote in QUOTES for length in (1, 3)}


@dataclass(eq=False)
class QuotedText:
    """A string between quotes of one character or three, in which only the quote and the backslash have a meaning.

    ``quote`` is the text that ends it; empty outside a string, and set by the scanner that meets a quote.
    """

    quote: str = ""
    _escaped: bool = False

    def follow(self, text: str, at: int) -> int:
        """Continue inside the string; return ``at`` unchanged if the first of three quotes needs more text."""
        if self._escaped:
            self._escaped = False
            return at + 1
        stop = _STRING_STOPS[self.quote].search(text, at)
        if stop is None:
            return len(text)
        if stop.group() == "\\":
            self._escaped = True
            return stop.end()
        end = stop.start() + len(self.quote)
        closing = text[stop.start() : end]
        if closing == self.quote:
            self.quote = ""
            return end
        # The text may end with the first of three quotes.
        return stop.end() if closing.strip(self.quote) else stop.start()


class BracketScanner:
    """Scanner of one value or call by brackets and strings; accepts text that is not quite valid.

    ``boundary``: markers that cannot occur inside values or, outside strings, anywhere before the end.
    """

    def __init__(self, boundary: Markers, brackets: Sequence[str], *, triple_quotes: bool) -> None:
        self._boundary = boundary
        self._opening, self._closing = brackets
        self._triple_quotes = triple_quotes
        stops = boundary.first_characters | set(self._opening + self._closing + QUOTES)
        self._stops = re.compile("[" + re.escape("".join(sorted(stops))) + "]")
        self._depth = 0
        self._string = QuotedText()
        self._inner_closed = False

    def scan(self, text: str, start: int) -> tuple[ScanState, int]:
        """Continue at ``start``."""
        at = start
        while at < len(text):
            if self._string.quote:
                went_to = self._string.follow(text, at)
                if went_to == at:
                    return ScanState.MORE, at
                at = went_to
                continue
            stop = self._stops.search(text, at)
            if stop is None:
                break
            at = stop.start()
            if text[at] in self._boundary.first_characters:
                marker = self._boundary.at(text, at)
                if marker is not False:
                    return (ScanState.BROKEN if marker else ScanState.MORE), at
            if text[at] in QUOTES and self._depth:
                quote = text[at]
                if self._triple_quotes:
                    # Up to three quotes in a row open one string; those at the end of the text may go on.
                    start_of_string = text[at : at + 3]
                    if start_of_string == quote * 3:
                        quote = start_of_string
                    elif len(start_of_string) < 3 and not start_of_string.strip(quote):
                        return ScanState.MORE, at
                self._string.quote, self._inner_closed = quote, False
                at += len(quote)
                continue
            if text[at] in self._opening:
                self._depth += 1
                self._inner_closed = False
            elif text[at] in self._closing:
                self._depth -= 1
                self._inner_closed = self._depth == 1
                if self._depth <= 0:
                    return ScanState.COMPLETE, at + 1
            at += 1
        return ScanState.MORE, len(text)

    def may_end(self) -> bool:
        """Return True if only the last bracket is missing, and everything inside it is closed."""
        return not self._string.quote and self._depth == 1 and self._inner_closed


json_scanner = partial(BracketScanner, brackets=("{[", "}]"), triple_quotes=False)
"""Return the scanner of one JSON value, given its boundary."""

python_scanner = partial(BracketScanner, brackets=("{[(", "}])"), triple_quotes=True)
"""Return the scanner of one Python-like call, or of a list of calls."""


class NamedJsonScanner(BracketScanner):
    """Scanner of one JSON object after a head that names the tool: ``get_weather[ARGS]{…}``."""

    def __init__(self, boundary: Markers) -> None:
        super().__init__(boundary, ("{[", "}]"), triple_quotes=False)
        self._is_in_head = True

    def scan(self, text: str, start: int) -> tuple[ScanState, int]:
        """Continue at ``start``."""
        if self._is_in_head:
            brace = text.find("{", start)
            marker = self._boundary.search(text, start)
            if marker is not None and not 0 <= brace < marker[0]:
                return (ScanState.BROKEN if marker[1] else ScanState.MORE), marker[0]
            if brace < 0:
                return ScanState.MORE, len(text)
            self._is_in_head, start = False, brace
        return super().scan(text, start)


class BraceScanner(Scanner):
    """Scanner of one call in Gemma's notation: a name and braces, with strings between delimiters such as ``<|"|>``.

    ``boundary``: markers that cannot occur inside values or, outside strings, anywhere before the end.
    """

    def __init__(self, delimiters: Sequence[str], boundary: Markers) -> None:
        self._boundary = boundary
        self._delimiters = Markers(delimiters)
        self._closing = {mark: Markers((mark,)) for mark in delimiters}
        self._stops = re.compile(r"[" + re.escape("".join(sorted(boundary.first_characters | set("{}[],:")))) + "]")
        self._depth = 0
        # Quotes begin strings only at the beginning of a value; an apostrophe inside one has no meaning.
        self._fresh = False
        self._string = QuotedText()
        self._delimiter = ""

    def scan(self, text: str, start: int) -> tuple[ScanState, int]:
        """Continue at ``start``."""
        at = start
        while at < len(text):
            if self._string.quote or self._delimiter:
                went_to = self._in_string(text, at)
            elif self._fresh:
                went_to = self._value_begins(text, at)
            else:
                stop = self._stops.search(text, at)
                if stop is None:
                    break
                at = stop.start()
                if text[at] in self._boundary.first_characters:
                    marker = self._boundary.at(text, at)
                    if marker is not False:
                        return (ScanState.BROKEN if marker else ScanState.MORE), at
                went_to = at + 1
                if text[at] in "{[":
                    self._depth += 1
                elif text[at] in "}]":
                    self._depth -= 1
                    if self._depth <= 0:
                        return ScanState.COMPLETE, went_to
                self._fresh = text[at] in "{[,:" and self._depth > 0
            if went_to is None:
                return ScanState.MORE, at
            at = went_to
        return ScanState.MORE, len(text)

    def _value_begins(self, text: str, at: int) -> int | None:
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text):
            return at
        delimiter = self._delimiters.at(text, at)
        if delimiter is None:
            return None
        self._fresh = False
        if delimiter:
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
        position, is_complete = closing
        if not is_complete:
            return position if position > at else None
        length, self._delimiter = len(self._delimiter), ""
        return position + length


Span = tuple[int, int]


@dataclass(eq=False)
class Argument:
    """The element of one argument."""

    opens: str  # its beginning, such as ``<parameter=``
    closes: str  # its closing tag without the last bracket
    behind: str = ""  # character class that must follow ``opens``; empty for any text
    begins: tuple[str, ...] = field(init=False)  # the atoms of its beginning
    opening: Shape = field(init=False)
    closing: Shape = field(init=False)

    def __post_init__(self) -> None:
        self.begins = (*literal(self.opens), *((self.behind,) if self.behind else ()))
        self.opening, self.closing = Shape(*self.begins), Shape(*literal(self.closes), SPACE, ">")


@dataclass(eq=False)
class Tags:
    """The elements of one call format in tags."""

    begins: str  # beginning of the call's own element; empty if the call is the name followed by arguments
    ends: tuple[str, ...]  # closing tags of the call without the last bracket; any of them ends it
    # Elements of arguments; the first is the documented one, the others are variants that models produce.
    arguments: tuple[Argument, ...]
    head_ends: str = ">"  # end of an argument's head
    # Heads are attributes, whose quotes may contain a bracket, and an element may close itself (``/>``).
    quoted: bool = False
    cdata: bool = False  # values may contain CDATA sections
    has_long_heads: bool = field(init=False)  # a head ends with its own tag, so that no other text begins like one
    endings: tuple[Shape, ...] = field(init=False)  # of the call
    # The real ends of a value: a closing tag followed by another argument or the end of the call.
    value_ends: dict[Argument, tuple[Shape, ...]] = field(init=False)
    value_marks: dict[Argument, Markers] = field(init=False)  # texts in a value that may be more than text

    def __post_init__(self) -> None:
        self.has_long_heads = self.head_ends != ">"
        self.endings = tuple(Shape(*literal(end), SPACE, ">") for end in self.ends)
        followers = (*map(literal, self.ends), *(other.begins for other in self.arguments))
        self.value_ends = {
            argument: tuple(Shape(*literal(argument.closes), SPACE, ">", SPACE, *then) for then in followers)
            for argument in self.arguments
        }
        cdata = (_CDATA_OPENS,) if self.cdata else ()
        self.value_marks = {argument: Markers((argument.opens, argument.closes, *cdata)) for argument in self.arguments}


_CDATA_OPENS = "<![CDATA["
_HEAD_STOPS = re.compile(r"[\"'>]")


class TagScanner(Scanner):
    """Scanner of one call in tags, from ``Tags.begins`` to its end.

    ``head`` and ``arguments`` hold the positions of the call's head and of each argument's head and value. They are
    correct if the scanner was given the whole body in one piece, as the parsers do.
    """

    def __init__(self, tags: Tags, boundary: Markers) -> None:
        self._tags = tags
        self._boundary = boundary
        self._state = self._before if tags.begins else self._between
        self._quote = ""
        self._slash = False
        self._argument: Argument | None = None
        self._nested = 0
        # Only white space is before this position in its line, or in its value.
        self._is_line_start = True
        self._begin = 0
        self._argument_head: Span = (0, 0)
        self.head: Span = (0, 0)
        self.arguments: list[tuple[Span, Span]] = []

    def scan(self, text: str, start: int) -> tuple[ScanState, int]:
        """Continue at ``start``."""
        at = start
        while True:
            verdict, went_to = self._state(text, at)
            if verdict is not None:
                return verdict, went_to
            at = went_to

    # Each state returns (None, place) to continue, or a verdict.

    def _before(self, text: str, at: int) -> tuple[ScanState | None, int]:
        begins = self._tags.begins
        position = text.find(begins, at)
        if position < 0:
            # The text may end with the beginning of the marker.
            return ScanState.MORE, max(at, len(text) - len(begins) + 1)
        self._state = self._in_head
        self._begin = position + len(begins)
        return None, self._begin

    def _in_head(self, text: str, at: int) -> tuple[ScanState | None, int]:
        if not self._tags.quoted:
            end = self._tags.head_ends if self._argument else ">"
            position = text.find(end, at)
            if position < 0:
                return ScanState.MORE, max(at, len(text) - len(end) + 1)
            return self._head_ended((self._begin, position), position + len(end), self_closing=False)
        while at < len(text):
            if self._quote:
                closing = text.find(self._quote, at)
                if closing < 0:
                    break
                self._quote, self._slash, at = "", False, closing + 1
                continue
            stop = _HEAD_STOPS.search(text, at)
            if stop is None:
                self._slash = text[-1] == "/"
                break
            slash = text[stop.start() - 1] == "/" if stop.start() > at else self._slash
            at = stop.end()
            if stop.group() == ">":
                return self._head_ended((self._begin, at - 1 - slash), at, slash)
            self._quote = stop.group()
        return ScanState.MORE, len(text)

    def _head_ended(self, span: Span, at: int, self_closing: bool) -> tuple[ScanState | None, int]:
        self._slash = False
        if self._argument:
            self._argument_head = span
            if not self_closing:
                self._state, self._begin, self._nested, self._is_line_start = self._in_value, at, 0, True
                return None, at
            self.arguments.append((span, (at, at)))
            self._argument = None
        else:
            self.head = span
            if self_closing:
                return ScanState.COMPLETE, at
        self._state = self._between
        return None, at

    def _between(self, text: str, at: int) -> tuple[ScanState | None, int]:
        at = text.find("<", at)
        if at < 0:
            return ScanState.MORE, len(text)
        for shape in self._tags.endings:
            ended = shape.match(text, at)
            if ended is not None:
                return ScanState.COMPLETE, ended
        for argument in self._tags.arguments:
            if argument.opening.match(text, at) is not None:
                self._argument, self._state, self._begin = argument, self._in_head, at + len(argument.opens)
                return None, self._begin
        if self._boundary.at(text, at):
            return ScanState.BROKEN, at
        return self._wait(
            text, at, (*self._tags.endings, *(argument.opening for argument in self._tags.arguments), self._boundary)
        )

    def _in_value(self, text: str, at: int) -> tuple[ScanState | None, int]:
        verdict, went_to = self._read_value(text, at)
        self._is_line_start = self._begins_line(text[at:went_to])
        return verdict, went_to

    def _begins_line(self, text: str) -> bool:
        """Return True if only white space is before the end of the next ``text`` of a value in its line."""
        _, newline, last_line = text.rpartition("\n")
        return (bool(newline) or self._is_line_start) and not last_line.strip()

    def _read_value(self, text: str, at: int) -> tuple[ScanState | None, int]:
        argument, begin = self._argument or self._tags.arguments[0], at
        marker = self._tags.value_marks[argument].search(text, at)
        if marker is None:
            return ScanState.MORE, len(text)
        at, is_complete = marker
        if not is_complete:
            return ScanState.MORE, at
        if text.startswith(_CDATA_OPENS, at):
            self._state = self._in_cdata
            return None, at + 1
        if argument.opening.match(text, at):
            # In the middle of a line a value mentions an argument; only at the beginning of one it can have one.
            self._nested += self._tags.has_long_heads or self._begins_line(text[begin:at])
            return None, at + 1
        closed, ends = argument.closing.match(text, at), self._tags.value_ends[argument]
        if closed is not None and self._nested:
            self._nested -= 1
            return None, closed
        if closed is not None and any(end.match(text, at) for end in ends):
            self.arguments.append((self._argument_head, (self._begin, at)))
            self._state, self._argument = self._between, None
            return None, closed
        return self._wait(text, at, (argument.opening, argument.closing, *(() if self._nested else ends)))

    def _wait(self, text: str, at: int, shapes: Sequence[Shape | Markers]) -> tuple[ScanState | None, int]:
        """Wait for more text where a shape may have begun; otherwise continue after the bracket."""
        return (ScanState.MORE, at) if any(shape.at(text, at) is None for shape in shapes) else (None, at + 1)

    def _in_cdata(self, text: str, at: int) -> tuple[ScanState | None, int]:
        end = text.find("]]>", at)
        if end < 0:
            # The last two characters may be the beginning of the end.
            return ScanState.MORE, max(at, len(text) - 2)
        self._state = self._in_value
        return None, end + 3
