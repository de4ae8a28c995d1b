"""How models write a tool call: one declaration for each syntax.

A declaration says what opens a call and what must follow for it to be one, which scanner finds the end of its body,
what may close it, and which reader says what calls it spells. The detector executes the table and knows no syntax; a
new family of models is a new entry here. Openers that clash (``<tool_call>`` and ``<tool_call name=``, ``[TOOL_CALL]``
and ``[TOOL_CALLS]``) are told apart by what follows them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from rkllm_mcp.errors import UsageError
from rkllm_mcp.toolcalls.markers import SPACE, Markers, Shape, literal
from rkllm_mcp.toolcalls.scan import JsonScanner, Scanner, XmlScanner
from rkllm_mcp.toolcalls.spelling import SpelledCall, read_json_calls, read_xml_calls

# Brackets too many and white space between a body and its closer.
_EXTRA = r"[\s}\]]{0,72}"
_EXTRA_RUN = re.compile(_EXTRA)

Confirmation = Callable[[str, frozenset[str]], "bool | None"]
"""Given what follows an opener and the declared names: it is a call, it is none, or (None) more has to be seen."""


@dataclass(frozen=True)
class Syntax:
    """One way of writing calls.

    Args:
        name: what configuration and ``--syntax`` call it.
        openers: texts that may begin a call.
        confirm: whether what follows an opener makes it a call; asked with at most ``CONFIRM_CHARACTERS`` of it.
        scanner: makes the scanner of one body, given the markers that no body can hold outside strings and values.
        read: the calls a body spells.
        example: the form in a line, for a model that got it wrong.
        closers: texts that may follow the body and belong to the call; none where the body's own structure ends it.
        another: what begins a further body before the closer.
        gives_up: where a call whose structure never ends may be cut: a closer that stands like an end, not like a
            quotation. The match is the closer.
        only_first: a call only where the answer begins, for forms that have no marker of their own.
    """

    name: str
    openers: tuple[str, ...]
    confirm: Confirmation
    scanner: Callable[[Markers], Scanner]
    read: Callable[[str], tuple[SpelledCall, ...]]
    example: str
    closers: tuple[str, ...] = ()
    another: Shape | None = None
    gives_up: re.Pattern[str] = re.compile(r"(?!)")
    only_first: bool = False

    @cached_property
    def closer_shapes(self) -> tuple[Shape, ...]:
        """The closers as they may follow a body: behind white space, brackets too many, the end of a code fence."""
        return tuple(
            Shape(_EXTRA, *fence, SPACE, *literal(closer)) for closer in self.closers for fence in ((), literal("```"))
        )


# More than every confirmation below may need: three stretches of white space, a fence and a name.
CONFIRM_CHARACTERS = 512


def followed_by(*shapes: Shape) -> Confirmation:
    """A confirmation by any of several shapes, whatever the declared names."""

    def confirm(text: str, _names: frozenset[str]) -> bool | None:
        verdicts = [shape.at(text, 0) for shape in shapes]
        return True if True in verdicts else None if None in verdicts else False

    return confirm


_FENCE = (*literal("```"), r"[a-zA-Z]{0,10}")
# A key in any quotes or none. What else may follow a brace (``{json}``, ``{...}``) is somebody explaining the form.
_OBJECT = (
    (r"\{", SPACE, "[\"'“”{}]"),
    (r"\{", SPACE, r"[A-Za-z_]", r"\w{0,31}", SPACE, "[:=\"']"),
)
_JSON_FOLLOWS = followed_by(
    *(
        Shape(SPACE, *fence, SPACE, *bracket, *begun)
        for fence in ((), _FENCE)
        for bracket in ((), (r"\[", SPACE))
        for begun in _OBJECT
    )
)
_ANOTHER_OBJECT = Shape(SPACE, "[,;]?", SPACE, r"\{")
_JSON_FORM = '{"name": "TOOL", "arguments": {…}}'


def _json_between(name: str, opener: str, *closers: str) -> Syntax:
    """A syntax of JSON objects between two markers."""
    return Syntax(
        name=name,
        openers=(opener,),
        confirm=_JSON_FOLLOWS,
        scanner=JsonScanner,
        read=read_json_calls,
        example=f"{opener}{_JSON_FORM}{closers[0]}",
        closers=closers,
        another=_ANOTHER_OBJECT,
        # Behind a bracket a closer ends the call; anywhere else in an open string it may be quoted text.
        gives_up=re.compile(r"(?<=[}\]])\s{0,64}(" + "|".join(re.escape(closer) for closer in closers) + ")"),
    )


SYNTAXES: dict[str, Syntax] = {
    syntax.name: syntax
    for syntax in (
        _json_between("project_json", "[TOOL_CALL]", "[END_TOOL_CALL]", "[/TOOL_CALL]"),
        Syntax(
            name="project_xml",
            openers=("<tool_call",),
            confirm=followed_by(Shape(r"\s", SPACE, r"[A-Za-z_]", r"[\w-]{0,31}", SPACE, "=", SPACE, "[\"'\\w]")),
            scanner=XmlScanner,
            read=read_xml_calls,
            example='<tool_call name="TOOL"><argument name="KEY">VALUE</argument></tool_call>',
            # Behind a tag, or before the end or another call; between words of a value it may be quoted text.
            gives_up=re.compile(
                r"(?<=>)\s{0,64}</tool_call\s{0,64}>|</tool_call\s{0,64}>(?=\s{0,64}(?:\Z|<tool_call\s))"
            ),
        ),
        _json_between("hermes", "<tool_call>", "</tool_call>"),
    )
}
"""Every syntax, in the order in which openers that clash are asked."""


def chosen_syntaxes(names: Sequence[str | Syntax] | None) -> tuple[Syntax, ...]:
    """The syntaxes of these names, all of them for None; a declaration stands for itself.

    Raises:
        UsageError: there is no syntax of a name.
    """
    if names is None:
        return tuple(SYNTAXES.values())
    unknown = [name for name in names if isinstance(name, str) and name not in SYNTAXES]
    if unknown:
        raise UsageError(f"unknown syntax '{unknown[0]}'; choose from {', '.join(SYNTAXES)}")
    return tuple(SYNTAXES[name] if isinstance(name, str) else name for name in names)


class Openers:
    """The one place where the beginnings of calls are told apart.

    Args:
        syntaxes: the enabled syntaxes, first asked first.
        names: the names calls may be made under.
    """

    def __init__(self, syntaxes: Sequence[Syntax], names: frozenset[str]) -> None:
        self._pairs = [(syntax, opener) for syntax in syntaxes for opener in syntax.openers]
        self._names = names
        self.markers = Markers(opener for _, opener in self._pairs)

    def decide(self, text: str, start: int, *, final: bool) -> tuple[Syntax, int] | Literal[False] | None:
        """What the opener at ``start`` begins.

        Args:
            text: the text so far.
            start: where an opener stands or begins.
            final: nothing will follow.

        Returns:
            The syntax and where its body begins; False when no call begins here; None when more has to be seen.
        """
        for syntax, opener in self._pairs:
            begins = start + len(opener)
            verdict: bool | None = False
            if text.startswith(opener, start):
                verdict = syntax.confirm(text[begins : begins + CONFIRM_CHARACTERS], self._names)
            elif opener.startswith(text[start:begins]):
                verdict = None
            if verdict:
                return syntax, begins
            if verdict is None and not final:
                return None
        return False

    def next_call(self, text: str) -> int | None:
        """Where in ``text`` a call begins, nothing following it."""
        found = self.markers.search(text, 0)
        while found is not None and not self.decide(text, found[0], final=True):
            found = self.markers.search(text, found[0] + 1)
        return None if found is None else found[0]


@dataclass(frozen=True)
class Ending:
    """What follows a body.

    Args:
        at: where the call, or this part of it, ends.
        another: a further body begins there.
    """

    at: int
    another: bool = False


def find_ending(syntax: Syntax, text: str, start: int, *, final: bool) -> Ending | None:
    """What follows the body that ends at ``start``; None when more has to be seen."""
    closers, another = syntax.closer_shapes, syntax.another
    if any(shape.at(text, start) is None for shape in (*closers, *((another,) if another else ()))):
        # An answer that ends inside a closer ended there; half a closer is nothing to show.
        return Ending(len(text)) if final else None
    for shape in closers:
        end = shape.match(text, start)
        if end is not None:
            return Ending(end)
    if another and another.match(text, start) is not None:
        return Ending(text.index("{", start), another=True)
    run = _EXTRA_RUN.match(text, start)
    return Ending(start + len(run.group().rstrip() if run else ""))
