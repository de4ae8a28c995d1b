"""Where system text and tool list stand in front of a conversation.

Families differ in this: one system turn for both, a turn for each, or no system turn at all, so that the text goes into
the first user turn. Each way is a function in ``LAYOUTS``, and a family names the one it uses. A head may end inside a
user turn that is still open; the first question goes on there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rkllm_mcp.prompt.vocabulary import Foreign, Segment, Trusted

Layout = Literal["system_turn", "tools_first", "tools_turn", "tools_in_user_turn", "user_turn"]
"""system_turn: system text, then tools; tools_first: the other way round, in the same turn; tools_turn: a turn for
each; tools_in_user_turn: a system turn, the tools before the first question; user_turn: both before it."""

_BLANK_LINE = "\n\n"


@dataclass(frozen=True)
class HeadForm:
    """What is special about the front of a family's prompts; the defaults are ChatML's.

    Args:
        layout: where the parts stand.
        beginning: what every prompt begins with: the beginning-of-text token where the family has one.
        tools_opening, tools_closing: around the tool list where it is a turn of its own; elsewhere the closing is what
            follows a system turn with tools.
        before_tools_preface, preface: what stands in the system turn before the owner's text: the first only when
            there are tools. A system turn with a preface is there even when nothing else is.
        thinking_preface, no_thinking_preface: the last part of the preface, by whether the model is to think.
        after_system: what follows the owner's text, when there is one, within its turn.
    """

    layout: Layout = "system_turn"
    beginning: str = ""
    tools_opening: str = ""
    tools_closing: str = ""
    before_tools_preface: str = ""
    preface: str = ""
    thinking_preface: str = ""
    no_thinking_preface: str = ""
    after_system: str = ""

    def whole_preface(self, *, tools: bool, thinking: bool) -> str:
        """The preface of a system turn."""
        first = self.before_tools_preface if tools else ""
        return first + self.preface + (self.thinking_preface if thinking else self.no_thinking_preface)


PLAIN_HEAD = HeadForm()


@dataclass(frozen=True)
class HeadParts:
    """What a head is made of: the strings of a template, and the contents."""

    system_opening: str
    system_closing: str
    user_opening: str
    form: HeadForm
    preface: str
    system: str
    listing: Sequence[Segment]

    @property
    def system_text(self) -> list[Segment]:
        """The owner's text and what follows it; nothing when there is none."""
        return [Foreign(self.system), Trusted(self.form.after_system)] if self.system else []

    @property
    def leading_listing(self) -> list[Segment]:
        """The tool list without the blank line that keeps it apart from a text before it."""
        if not self.listing:
            return []
        return [Trusted(self.listing[0].text.lstrip("\n")), *self.listing[1:]]


@dataclass(frozen=True)
class Head:
    """The front of a prompt.

    Args:
        segments: its text.
        is_open: it ends inside a user turn.
    """

    segments: list[Segment]
    is_open: bool = False


def build_head(parts: HeadParts) -> Head:
    """The front of every prompt, by the family's layout."""
    segments = LAYOUTS[parts.form.layout](parts)
    is_open = bool(segments) and _OPEN[parts.form.layout](parts)
    return Head([*([Trusted(parts.form.beginning)] if parts.form.beginning else []), *segments], is_open)


def _system_turn(parts: HeadParts) -> list[Segment]:
    if not (parts.preface or parts.system or parts.listing):
        return []
    listing = parts.listing if parts.system else parts.leading_listing
    closing = parts.system_closing + (parts.form.tools_closing if parts.listing else "")
    return [Trusted(parts.system_opening + parts.preface), *parts.system_text, *listing, Trusted(closing)]


def _tools_first(parts: HeadParts) -> list[Segment]:
    if not (parts.preface or parts.system or parts.listing):
        return []
    between = _BLANK_LINE if parts.system and parts.listing else ""
    opening = Trusted(parts.system_opening + parts.preface)
    return [opening, *parts.leading_listing, Trusted(between), *parts.system_text, Trusted(parts.system_closing)]


def _system_alone(parts: HeadParts) -> list[Segment]:
    if not (parts.preface or parts.system):
        return []
    return [Trusted(parts.system_opening + parts.preface), *parts.system_text, Trusted(parts.system_closing)]


def _tools_turn(parts: HeadParts) -> list[Segment]:
    form = parts.form
    tools = [Trusted(form.tools_opening), *parts.leading_listing, Trusted(form.tools_closing)] if parts.listing else []
    return [*_system_alone(parts), *tools]


def _tools_in_user_turn(parts: HeadParts) -> list[Segment]:
    tools = [Trusted(parts.user_opening), *parts.leading_listing] if parts.listing else []
    return [*_system_alone(parts), *tools]


def _user_turn(parts: HeadParts) -> list[Segment]:
    if not (parts.system or parts.listing):
        return []
    return [Trusted(parts.user_opening), *parts.system_text, *parts.leading_listing]


LAYOUTS: Mapping[Layout, Callable[[HeadParts], list[Segment]]] = {
    "system_turn": _system_turn,
    "tools_first": _tools_first,
    "tools_turn": _tools_turn,
    "tools_in_user_turn": _tools_in_user_turn,
    "user_turn": _user_turn,
}

# Whether a head that is not empty leaves a user turn open.
_OPEN: Mapping[Layout, Callable[[HeadParts], bool]] = {
    "system_turn": lambda _: False,
    "tools_first": lambda _: False,
    "tools_turn": lambda _: False,
    "tools_in_user_turn": lambda parts: bool(parts.listing),
    "user_turn": lambda _: True,
}
