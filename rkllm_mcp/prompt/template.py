"""Where system text and tool list stand in front of a conversation.

Families differ in this: one system turn for both, a turn for each, or no system turn at all, so that the text goes into
the first user turn. Each way is a function in ``LAYOUTS``, and a family names the one it uses. A head may end inside a
user turn that is still open; the first question goes on there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rkllm_mcp.messages import Message, ToolSpec
from rkllm_mcp.prompt.tokenizer import ControlText, PlainText, Segment
from rkllm_mcp.prompt.tool_list import ToolForm

Layout = Literal["system_turn", "tools_first", "tools_turn", "tools_in_user_turn", "user_turn"]
"""system_turn: system text, then tools; tools_first: the other way round, in the same turn; tools_turn: a turn for
each; tools_in_user_turn: a system turn, the tools before the first question; user_turn: both before it."""

_BLANK_LINE = "\n\n"


@dataclass(frozen=True)
class PrefixLayout:
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


PLAIN_PREFIX = PrefixLayout()


@dataclass(frozen=True)
class PrefixParts:
    """What a head is made of: the strings of a template, and the contents."""

    system_opening: str
    system_closing: str
    user_opening: str
    form: PrefixLayout
    preface: str
    system: str
    listing: Sequence[Segment]

    @property
    def system_text(self) -> list[Segment]:
        """The owner's text and what follows it; nothing when there is none."""
        return [PlainText(self.system), ControlText(self.form.after_system)] if self.system else []

    @property
    def leading_listing(self) -> list[Segment]:
        """The tool list without the blank line that keeps it apart from a text before it."""
        if not self.listing:
            return []
        return [ControlText(self.listing[0].text.lstrip("\n")), *self.listing[1:]]


@dataclass(frozen=True)
class PromptPrefix:
    """The front of a prompt.

    Args:
        segments: its text.
        is_open: it ends inside a user turn.
    """

    segments: list[Segment]
    is_open: bool = False


def build_prefix(parts: PrefixParts) -> PromptPrefix:
    """The front of every prompt, by the family's layout."""
    segments = LAYOUTS[parts.form.layout](parts)
    is_open = bool(segments) and _OPEN[parts.form.layout](parts)
    return PromptPrefix([*([ControlText(parts.form.beginning)] if parts.form.beginning else []), *segments], is_open)


def _system_turn(parts: PrefixParts) -> list[Segment]:
    if not (parts.preface or parts.system or parts.listing):
        return []
    listing = parts.listing if parts.system else parts.leading_listing
    closing = parts.system_closing + (parts.form.tools_closing if parts.listing else "")
    return [ControlText(parts.system_opening + parts.preface), *parts.system_text, *listing, ControlText(closing)]


def _tools_first(parts: PrefixParts) -> list[Segment]:
    if not (parts.preface or parts.system or parts.listing):
        return []
    between = _BLANK_LINE if parts.system and parts.listing else ""
    opening = ControlText(parts.system_opening + parts.preface)
    return [
        opening,
        *parts.leading_listing,
        ControlText(between),
        *parts.system_text,
        ControlText(parts.system_closing),
    ]


def _system_alone(parts: PrefixParts) -> list[Segment]:
    if not (parts.preface or parts.system):
        return []
    return [ControlText(parts.system_opening + parts.preface), *parts.system_text, ControlText(parts.system_closing)]


def _tools_turn(parts: PrefixParts) -> list[Segment]:
    form = parts.form
    tools = (
        [ControlText(form.tools_opening), *parts.leading_listing, ControlText(form.tools_closing)]
        if parts.listing
        else []
    )
    return [*_system_alone(parts), *tools]


def _tools_in_user_turn(parts: PrefixParts) -> list[Segment]:
    tools = [ControlText(parts.user_opening), *parts.leading_listing] if parts.listing else []
    return [*_system_alone(parts), *tools]


def _user_turn(parts: PrefixParts) -> list[Segment]:
    if not (parts.system or parts.listing):
        return []
    return [ControlText(parts.user_opening), *parts.system_text, *parts.leading_listing]


LAYOUTS: Mapping[Layout, Callable[[PrefixParts], list[Segment]]] = {
    "system_turn": _system_turn,
    "tools_first": _tools_first,
    "tools_turn": _tools_turn,
    "tools_in_user_turn": _tools_in_user_turn,
    "user_turn": _user_turn,
}

# Whether a head that is not empty leaves a user turn open.
_OPEN: Mapping[Layout, Callable[[PrefixParts], bool]] = {
    "system_turn": lambda _: False,
    "tools_first": lambda _: False,
    "tools_turn": lambda _: False,
    "tools_in_user_turn": lambda parts: bool(parts.listing),
    "user_turn": lambda _: True,
}


Before = Literal["start", "open_user_turn", "user", "assistant", "calls", "tool"]
"""What stands before a turn: a closed head, a head that left a user turn open, or a turn of that role; ``calls`` is an
assistant's turn that ends in calls."""


def before_next(message: Message) -> Before:
    """What ``message`` is to the turn behind it."""
    if message.role == "system":
        return "start"
    return "calls" if message.calls else message.role


@dataclass(frozen=True)
class ChatTemplate:
    """The strings around the turns of one family.

    Args:
        system_opening, system_closing: around the system text and the tool list.
        user_opening, user_closing: around what the user says.
        results_opening, results_closing: around the results of a round.
        assistant_opening: what the model continues.
        assistant_closing: what follows an answer; begins with ``end_of_turn``.
        end_of_turn: the control token that ends an answer; the model usually writes it itself. Empty for families
            that have none.
        stop: further control tokens that end an answer.
        tool_form: how tools are spelled.
        no_thinking: what follows ``assistant_opening`` when the model is not to think; empty for models that never do.
        open_thinking: what follows ``assistant_opening`` when the model is to think; empty where it opens the block
            itself.
        head_form: what is special about the front of its prompts.
        calls_end_turn: what follows an answer that ends in calls, where it is not ``assistant_closing``.
        results_stay_in_turn: results are part of the assistant's turn, which the model then goes on with.
        before_answer: what stands between ``assistant_opening`` and an answer, where the model writes it itself.
        stop_texts: ordinary text that ends an answer, where it is a single token of the vocabulary.
        clean: what is done to foreign text, where the family's turns are told apart by ordinary text.
    """

    system_opening: str
    system_closing: str
    user_opening: str
    user_closing: str
    results_opening: str
    results_closing: str
    assistant_opening: str
    assistant_closing: str
    end_of_turn: str
    stop: tuple[str, ...]
    tool_form: ToolForm
    no_thinking: str = ""
    open_thinking: str = ""
    head_form: PrefixLayout = PLAIN_PREFIX
    calls_end_turn: str | None = None
    results_stay_in_turn: bool = False
    before_answer: str = ""
    stop_texts: tuple[str, ...] = ()
    clean: Callable[[str], str] | None = None

    @property
    def answer_markers(self) -> tuple[str, ...]:
        """Text around and within calls: its control tokens are part of an answer, because the detector reads them."""
        form = self.tool_form
        around = (form.calls_opening, form.call_opening, form.call_closing, form.calls_closing)
        within = (segment.text for segment in form.spelling.rest({"k": "v"}) if isinstance(segment, ControlText))
        return (*around, *within)

    def head(self, system: str, tools: Sequence[ToolSpec], *, thinking: bool = False) -> list[Segment]:
        """The front of every prompt: system text and tool list; nothing when both are empty, for most families."""
        return self._cleaned(self._head(system, tools, thinking=thinking).segments)

    def before_first(self, system: str, tools: Sequence[ToolSpec]) -> Before:
        """What the head of such a conversation leaves for its first turn."""
        return "open_user_turn" if self._head(system, tools, thinking=False).is_open else "start"

    def turn(self, message: Message, before: Before = "start") -> list[Segment]:
        """One whole turn, closed.

        Args:
            message: whose turn, and what it holds.
            before: what stands before it.

        Raises:
            ValueError: a system turn behind the head; templates have one system text, at the front.
        """
        if message.role == "user":
            opening = "" if before == "open_user_turn" else self._closed(before) + self.user_opening
            context = self.tool_form.without_markers(message.context)
            words = f"{context}\n\n{message.text}" if context else message.text
            return self._cleaned([ControlText(opening), PlainText(words), ControlText(self.user_closing)])
        if message.role == "tool":
            results = self.tool_form.results(message.results, message.text)
            opening = ("" if before == "calls" else self._closed(before)) + self.results_opening
            return self._cleaned([ControlText(opening), *results, ControlText(self.results_closing)])
        if message.role == "assistant":
            calls = self.tool_form.calls(message.calls, after_text=bool(message.text))
            opening = self._assistant_opening(before) + (self.before_answer if message.text or calls else "")
            return self._cleaned([ControlText(opening), PlainText(message.text), *calls, *self.closing(message)])
        raise ValueError("a system message can only be the first of a conversation")

    def closing(self, message: Message) -> list[Segment]:
        """What follows the answer ``message``."""
        ends_in_calls = bool(message.calls) and self.calls_end_turn is not None
        return [ControlText(self.calls_end_turn or "" if ends_in_calls else self.assistant_closing)]

    def opening(self, *, thinking: bool, before: Before = "user") -> list[Segment]:
        """What the model is to continue: the assistant's turn, opened, or gone on with behind its results."""
        if self._goes_on(before):
            return [ControlText(self.open_thinking if thinking else "")]
        return [
            ControlText(self._assistant_opening(before)),
            ControlText(self.open_thinking if thinking else self.no_thinking),
        ]

    def _head(self, system: str, tools: Sequence[ToolSpec], *, thinking: bool) -> PromptPrefix:
        form = self.head_form
        preface = form.whole_preface(tools=bool(tools), thinking=thinking)
        listing = self.tool_form.listing(tools)
        strings = (self.system_opening, self.system_closing, self.user_opening)
        return build_prefix(PrefixParts(*strings, form, preface, system, listing))

    def _assistant_opening(self, before: Before) -> str:
        return "" if self._goes_on(before) else self._closed(before) + self.assistant_opening

    def _goes_on(self, before: Before) -> bool:
        return before == "tool" and self.results_stay_in_turn

    def _closed(self, before: Before) -> str:
        """What closes a turn that was left open, where somebody else speaks: a head's, or an answer's with calls."""
        if before == "open_user_turn":
            return self.user_closing
        is_open = self._goes_on(before) or (before == "calls" and self.calls_end_turn is not None)
        return self.assistant_closing if is_open else ""

    def _cleaned(self, segments: Sequence[Segment]) -> list[Segment]:
        if self.clean is None:
            return list(segments)
        return [PlainText(self.clean(s.text)) if isinstance(s, PlainText) else s for s in segments]
