"""Where a call ends that is written in tags: ``<function=f><parameter=k>v</parameter></function>`` and its relatives.

One scanner for all of them; a ``Tags`` says which elements there are. A value may hold anything, the text of its own
closing tag too: the real one is followed by the next argument or by the end of the call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from rkllm_mcp.toolcalls.markers import SPACE, Markers, Shape, literal
from rkllm_mcp.toolcalls.scan import Verdict

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

    def scan(self, text: str, start: int) -> tuple[Verdict, int]:
        """Go on at ``start``."""
        at = start
        while True:
            verdict, went_to = self.step(text, at)
            if verdict is not None:
                return verdict, went_to
            at = went_to

    def step(self, text: str, at: int) -> tuple[Verdict | None, int]:
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

    def _before(self, text: str, at: int) -> tuple[Verdict | None, int]:
        begins = self._tags.begins
        place = text.find(begins, at)
        if place < 0:
            # Its beginning may stand at the end of the text.
            return Verdict.MORE, max(at, len(text) - len(begins) + 1)
        self._state = self._in_head
        self._begin = place + len(begins)
        return None, self._begin

    def _in_head(self, text: str, at: int) -> tuple[Verdict | None, int]:
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
        return Verdict.MORE, len(text)

    def _in_plain_head(self, text: str, at: int) -> tuple[Verdict | None, int]:
        end = self._tags.head_ends if self._argument else ">"
        place = text.find(end, at)
        if place < 0:
            return Verdict.MORE, max(at, len(text) - len(end) + 1)
        return self._head_ended((self._begin, place), place + len(end), self_closing=False)

    def _head_ended(self, span: Span, at: int, self_closing: bool) -> tuple[Verdict | None, int]:
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
                return Verdict.COMPLETE, at
        self._state = self._between
        return None, at

    def _between(self, text: str, at: int) -> tuple[Verdict | None, int]:
        at = text.find("<", at)
        if at < 0:
            return Verdict.MORE, len(text)
        for shape in self._tags.endings:
            ended = shape.match(text, at)
            if ended is not None:
                return Verdict.COMPLETE, ended
        for argument in self._tags.arguments:
            if argument.opening.match(text, at) is not None:
                self._argument, self._state, self._begin = argument, self._in_head, at + len(argument.opens)
                return None, self._begin
        if self._boundary.at(text, at):
            return Verdict.BROKEN, at
        return self._wait(
            text, at, (*self._tags.endings, *(each.opening for each in self._tags.arguments), self._boundary)
        )

    def _in_value(self, text: str, at: int) -> tuple[Verdict | None, int]:
        argument = self._argument or self._tags.arguments[0]
        found = self._tags.value_marks[argument].search(text, at)
        if found is None:
            return Verdict.MORE, len(text)
        at, whole = found
        if not whole:
            return Verdict.MORE, at
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

    def _wait(self, text: str, at: int, shapes: Sequence[Shape | Markers]) -> tuple[Verdict | None, int]:
        """Wait for more where a shape may have begun; go on behind the bracket otherwise."""
        return (Verdict.MORE, at) if any(shape.at(text, at) is None for shape in shapes) else (None, at + 1)

    def _in_cdata(self, text: str, at: int) -> tuple[Verdict | None, int]:
        end = text.find("]]>", at)
        if end < 0:
            # The last two characters may be the beginning of the end.
            return Verdict.MORE, max(at, len(text) - 2)
        self._state = self._in_value
        return None, end + 3
