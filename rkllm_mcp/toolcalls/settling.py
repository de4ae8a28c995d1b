"""The text of a call that is over becomes its events; where its strings never closed, the place to cut it is found.

A part that ended as its structure says is read as it stands. One that did not (a quote is missing, the answer was cut
off) is cut where a closer stands like an end or where another call begins; what is behind the cut is read again by the
detector. Two rules above all: a string that may have been cut off is never passed to a tool, and a call that may be
quoted in one is never made.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from rkllm_mcp.events import Text, ToolCallDetected, ToolCallFailed
from rkllm_mcp.toolcalls.form import Form
from rkllm_mcp.toolcalls.payload import Catalogue, judge, unreadable

INTERRUPTED = "another call begins before this one is complete"
CUT_OFF = "the call was cut off before its end"


class RestReader(Protocol):
    """What a cut has to know about text that the detector would read again."""

    def next_call(self, text: str, start: int) -> int | None:
        """Where in ``text`` a call begins, from ``start`` on."""
        ...

    def only_calls(self, text: str) -> bool:
        """Whether ``text`` is complete calls and white space to its end."""
        ...


@dataclass(frozen=True)
class Part:
    """One body with the markers that belong to it.

    Args:
        lead: the opener; empty for a further body behind the same one.
        body: what the scanner went over.
        tail: closer and white space.
        unended: why the body has no end of its own; empty when it has one.
    """

    lead: str
    body: str
    tail: str
    unended: str = ""

    @cached_property
    def raw(self) -> str:
        """The whole text."""
        return f"{self.lead}{self.body}{self.tail}"


@dataclass(frozen=True)
class Outcome:
    """What a part came to: the text that is done with, its events, and the text to read again, None for none."""

    raw: str
    events: tuple[Text | ToolCallDetected | ToolCallFailed, ...]
    rest: str | None = None


def settle(part: Part, form: Form, catalogue: Catalogue, reader: RestReader | None) -> Outcome:
    """Read one part.

    Args:
        part: the text of a call, or of one of several in the same markers.
        form: how it is written.
        catalogue: the declared tools.
        reader: answers for the text behind a cut; None when no more cuts are allowed in this answer.
    """
    if part.unended:
        if form.bare and catalogue.named_in(part.body) is None:
            return Outcome(part.raw, (Text(part.raw),))
        events = (_failed(part.unended, part.raw, form, catalogue),)
    else:
        judgement = judge(form, part.body, part.raw, catalogue)
        if form.bare and not judgement.named:
            return Outcome(part.raw, (Text(part.raw),))
        # Brackets too many were left out of the body, which is a repair.
        has_extra = part.tail.lstrip()[:1] in {"}", "]"}
        events = tuple(_repaired(event) for event in judgement.events) if has_extra else judgement.events
        if judgement.sure:
            return Outcome(part.raw, events)
    cut = None if reader is None else _cut(part, form, catalogue, reader)
    return cut or Outcome(part.raw, events)


def _failed(rule: str, raw: str, form: Form, catalogue: Catalogue) -> ToolCallFailed:
    return ToolCallFailed(raw, unreadable(rule, raw, form, catalogue))


def _repaired(event: ToolCallDetected | ToolCallFailed) -> ToolCallDetected | ToolCallFailed:
    return replace(event, repaired=True) if isinstance(event, ToolCallDetected) else event


def _cut(part: Part, form: Form, catalogue: Catalogue, reader: RestReader) -> Outcome | None:
    """The part up to where it may be cut; None where a cut could take quoted text for calls."""
    behind_own = part.body.find(form.begins) + len(form.begins)
    opener = reader.next_call(part.body, behind_own)
    closer = form.gives_up.search(part.body, 0, len(part.body) if opener is None else opener)
    if closer is not None and not part.unended and closer.end() >= len(part.body.rstrip()):
        closer = None  # The part's own end is no place to cut it.
    if closer is not None:
        return _cut_at_closer(part, closer, opener, form, catalogue)
    if opener is None or part.unended != CUT_OFF:
        return None
    # An open string with a call in it: the string was abandoned for the call if nothing but calls follows, and
    # quotes it if anything else does. A quoted call must not be made.
    place = len(part.lead) + opener
    raw, rest = part.raw[:place], part.raw[place:]
    return Outcome(raw, (_failed(INTERRUPTED, raw, form, catalogue),), rest) if reader.only_calls(rest) else None


def _cut_at_closer(
    part: Part, closer: re.Match[str], opener: int | None, form: Form, catalogue: Catalogue
) -> Outcome | None:
    place = len(part.lead) + closer.end()
    raw, rest = part.raw[:place], part.raw[place:]
    if not rest.strip() or closer.end() + len(rest) - len(rest.lstrip()) == opener:
        # Where the end of a call is part of its body, the pattern has no group for a closer behind it.
        body = part.body[: closer.start(1) if closer.re.groups else closer.end()]
        judgement = judge(form, body, raw, catalogue)
        if judgement.sure:
            return Outcome(raw, judgement.events, rest)
    elif opener is not None:
        return None  # Prose and then a call: both may be quoted in a string that was cut off later.
    return Outcome(raw, (_failed("a string is not closed", raw, form, catalogue),), rest)
