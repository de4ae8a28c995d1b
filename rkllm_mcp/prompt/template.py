"""How a model family spells a conversation: turns as segments of trusted and foreign text.

A ``ChatTemplate`` is data: the strings around each kind of turn. It renders one turn at a time, because a ledger only
ever appends; nothing that was sent is rendered again. Template strings are trusted (control tokens in them are
meant), what people, tools and servers wrote is foreign. It knows no token ids and no files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rkllm_mcp.messages import Message, ToolSpec
from rkllm_mcp.prompt.heads import PLAIN_HEAD, Head, HeadForm, HeadParts, build_head
from rkllm_mcp.prompt.tools import ToolForm
from rkllm_mcp.prompt.vocabulary import Foreign, Segment, Trusted

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
    head_form: HeadForm = PLAIN_HEAD
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
        within = (segment.text for segment in form.spelling.rest({"k": "v"}) if isinstance(segment, Trusted))
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
            return self._cleaned([Trusted(opening), Foreign(words), Trusted(self.user_closing)])
        if message.role == "tool":
            results = self.tool_form.results(message.results, message.text)
            opening = ("" if before == "calls" else self._closed(before)) + self.results_opening
            return self._cleaned([Trusted(opening), *results, Trusted(self.results_closing)])
        if message.role == "assistant":
            calls = self.tool_form.calls(message.calls, after_text=bool(message.text))
            opening = self._assistant_opening(before) + (self.before_answer if message.text or calls else "")
            return self._cleaned([Trusted(opening), Foreign(message.text), *calls, *self.closing(message)])
        raise ValueError("a system message can only be the first of a conversation")

    def closing(self, message: Message) -> list[Segment]:
        """What follows the answer ``message``."""
        ends_in_calls = bool(message.calls) and self.calls_end_turn is not None
        return [Trusted(self.calls_end_turn or "" if ends_in_calls else self.assistant_closing)]

    def opening(self, *, thinking: bool, before: Before = "user") -> list[Segment]:
        """What the model is to continue: the assistant's turn, opened, or gone on with behind its results."""
        if self._goes_on(before):
            return [Trusted(self.open_thinking if thinking else "")]
        return [Trusted(self._assistant_opening(before)), Trusted(self.open_thinking if thinking else self.no_thinking)]

    def _head(self, system: str, tools: Sequence[ToolSpec], *, thinking: bool) -> Head:
        form = self.head_form
        preface = form.whole_preface(tools=bool(tools), thinking=thinking)
        listing = self.tool_form.listing(tools)
        strings = (self.system_opening, self.system_closing, self.user_opening)
        return build_head(HeadParts(*strings, form, preface, system, listing))

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
        return [Foreign(self.clean(s.text)) if isinstance(s, Foreign) else s for s in segments]
