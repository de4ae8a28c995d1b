"""Scanners that find the end of a call body: JSON, Python calls, braces, tags."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Literal, Protocol

from rkllm_mcp.toolcalls.markers import SPACE, Markers, Shape, literal


class ScanState(Enum):
    """What a scanner knows about the body."""

    MORE = "more"
    COMPLETE = "complete"
    BROKEN = "broken"


class Scanner(Protocol):
    """Follows the structure of one body."""

    def scan(self, text: str, start: int) -> tuple[ScanState, int]:
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

    def scan(self, text: str, start: int) -> tuple[ScanState, int]:
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
                    return (ScanState.BROKEN if marker else ScanState.MORE), at
            at += 1
            if self._meets(text[at - 1]):
                return ScanState.COMPLETE, at
        return ScanState.MORE, len(text)

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

    def scan(self, text: str, start: int) -> tuple[ScanState, int]:
        """Go on at ``start``."""
        if self._json is None:
            brace = text.find("{", start)
            marker = self._boundary.search(text, start)
            if marker is not None and not 0 <= brace < marker[0]:
                return (ScanState.BROKEN if marker[1] else ScanState.MORE), marker[0]
            if brace < 0:
                return ScanState.MORE, len(text)
            self._json, start = JsonScanner(self._boundary), brace
        return self._json.scan(text, start)

    def may_end(self) -> bool:
        """Only the last bracket is missing, and what it holds was closed."""
        return self._json is not None and self._json.may_end()


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

    def scan(self, text: str, start: int) -> tuple[ScanState, int]:
        """Go on at ``start``."""
        at = start
        while at < len(text):
            if self._string.quote:
                went_to = self._string.follow(text, at)
                if went_to == at:
                    return ScanState.MORE, at
                at = went_to
                continue
            found = self._stops.search(text, at)
            if found is None:
                break
            at = found.start()
            if text[at] in self._boundary.first_characters:
                marker = self._boundary.at(text, at)
                if marker is not False:
                    return (ScanState.BROKEN if marker else ScanState.MORE), at
            if text[at] in QUOTES and self._depth:
                quote = self._quote_at(text, at)
                if quote is None:
                    return ScanState.MORE, at
                self._string.quote, self._inner_closed = quote, False
                at += len(quote)
                continue
            at += 1
            if self._meets(text[at - 1]):
                return ScanState.COMPLETE, at
        return ScanState.MORE, len(text)

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

    def scan(self, text: str, start: int) -> tuple[ScanState, int]:
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
                        return (ScanState.BROKEN if marker else ScanState.MORE), at
                went_to = at + 1
                if self._meets(text[at]):
                    return ScanState.COMPLETE, went_to
            if went_to is None:
                return ScanState.MORE, at
            at = went_to
        return ScanState.MORE, len(text)

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


Span = tuple[int, int]


@dataclass(frozen=True)
class Argument:
    """The element of one argument.

    Args:
        opens: how it begins, such as ``<parameter=``.
        closes: its closing tag without the last bracket.
        behind: what may follow ``opens`` for it to be one; a character class, or nothing.
    """

    opens: str
    closes: str
    behind: str = ""

    @cached_property
    def opening(self) -> Shape:
        """Where an argument begins."""
        return Shape(*literal(self.opens), *((self.behind,) if self.behind else ()))

    @cached_property
    def closing(self) -> Shape:
        """A closing tag."""
        return Shape(*literal(self.closes), SPACE, ">")


@dataclass(frozen=True)
class Tags:
    """The elements of one way of writing calls.

    Args:
        begins: what the call's own element begins with; empty when the call is the name followed by arguments.
        ends: the closing tags of the call without the last bracket; any of them ends it.
        arguments: the elements arguments may have; the first is the right one, the others are what models drift to.
        head_ends: what ends the head of an argument.
        quoted: heads are attributes, whose quotes may hold a bracket, and an element may close itself (``/>``).
        cdata: values may have CDATA sections.
    """

    begins: str
    ends: tuple[str, ...]
    arguments: tuple[Argument, ...]
    head_ends: str = ">"
    quoted: bool = False
    cdata: bool = False

    @cached_property
    def endings(self) -> tuple[Shape, ...]:
        """Where the call ends."""
        return tuple(Shape(*literal(end), SPACE, ">") for end in self.ends)

    @cached_property
    def value_ends(self) -> dict[Argument, tuple[Shape, ...]]:
        """Where a value really ends."""
        behind = [literal(end) for end in self.ends]
        return {
            argument: tuple(
                Shape(*literal(argument.closes), SPACE, ">", SPACE, *then)
                for then in (
                    *behind,
                    *((*literal(other.opens), *((other.behind,) if other.behind else ())) for other in self.arguments),
                )
            )
            for argument in self.arguments
        }

    @cached_property
    def value_marks(self) -> dict[Argument, Markers]:
        """What in a value may be more than its text."""
        cdata = (_CDATA_OPENS,) if self.cdata else ()
        return {argument: Markers((argument.opens, argument.closes, *cdata)) for argument in self.arguments}


_CDATA_OPENS = "<![CDATA["
_HEAD_STOPS = re.compile(r"[\"'>]")


class TagScanner:
    """Follows one call in tags, from ``Tags.begins`` to behind its end.

    ``head`` and ``arguments`` hold the places of the call's own head and of each argument's head and value. They are
    right when the scanner was given the whole body in one piece, as the readers do.
    """

    def __init__(self, tags: Tags, boundary: Markers) -> None:
        self._tags = tags
        self._boundary = boundary
        self._state = self._before if tags.begins else self._between
        self._quote = ""
        self._slash = False
        self._argument: Argument | None = None
        self._nested = 0
        self._begin = 0
        self._argument_head: Span = (0, 0)
        self.head: Span = (0, 0)
        self.arguments: list[tuple[Span, Span]] = []

    def scan(self, text: str, start: int) -> tuple[ScanState, int]:
        """Go on at ``start``."""
        at = start
        while True:
            verdict, went_to = self.step(text, at)
            if verdict is not None:
                return verdict, went_to
            at = went_to

    def step(self, text: str, at: int) -> tuple[ScanState | None, int]:
        """Go on at ``at`` within the part of the call that stands there; None when there may be more in ``text``."""
        return self._state(text, at)

    @property
    def part(self) -> Literal["before", "head", "between", "argument_head", "value"]:
        """Which part of the call comes next."""
        if self._state == self._before:
            return "before"
        if self._state == self._between:
            return "between"
        if self._state == self._in_head:
            return "argument_head" if self._argument else "head"
        return "value"

    def may_end(self) -> bool:
        """Never: without its closing tag nobody knows whether another argument was to come."""
        return False

    # Each state returns (None, place) to go on, or a verdict.

    def _before(self, text: str, at: int) -> tuple[ScanState | None, int]:
        begins = self._tags.begins
        place = text.find(begins, at)
        if place < 0:
            # Its beginning may stand at the end of the text.
            return ScanState.MORE, max(at, len(text) - len(begins) + 1)
        self._state = self._in_head
        self._begin = place + len(begins)
        return None, self._begin

    def _in_head(self, text: str, at: int) -> tuple[ScanState | None, int]:
        if not self._tags.quoted:
            return self._in_plain_head(text, at)
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
                return self._head_ended((self._begin, at - 1 - slash), at, slash)
            self._quote = found.group()
        return ScanState.MORE, len(text)

    def _in_plain_head(self, text: str, at: int) -> tuple[ScanState | None, int]:
        end = self._tags.head_ends if self._argument else ">"
        place = text.find(end, at)
        if place < 0:
            return ScanState.MORE, max(at, len(text) - len(end) + 1)
        return self._head_ended((self._begin, place), place + len(end), self_closing=False)

    def _head_ended(self, span: Span, at: int, self_closing: bool) -> tuple[ScanState | None, int]:
        self._slash = False
        if self._argument:
            self._argument_head = span
            if not self_closing:
                self._state, self._begin, self._nested = self._in_value, at, 0
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
            text, at, (*self._tags.endings, *(each.opening for each in self._tags.arguments), self._boundary)
        )

    def _in_value(self, text: str, at: int) -> tuple[ScanState | None, int]:
        argument = self._argument or self._tags.arguments[0]
        found = self._tags.value_marks[argument].search(text, at)
        if found is None:
            return ScanState.MORE, len(text)
        at, whole = found
        if not whole:
            return ScanState.MORE, at
        if text.startswith(_CDATA_OPENS, at):
            self._state = self._in_cdata
            return None, at + 1
        if argument.opening.match(text, at):
            self._nested += 1
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
        """Wait for more where a shape may have begun; go on behind the bracket otherwise."""
        return (ScanState.MORE, at) if any(shape.at(text, at) is None for shape in shapes) else (None, at + 1)

    def _in_cdata(self, text: str, at: int) -> tuple[ScanState | None, int]:
        end = text.find("]]>", at)
        if end < 0:
            # The last two characters may be the beginning of the end.
            return ScanState.MORE, max(at, len(text) - 2)
        self._state = self._in_value
        return None, end + 3
