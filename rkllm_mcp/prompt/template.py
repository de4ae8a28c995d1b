"""Chat templates: turns and the prompt prefix as segments of control tokens and plain text.

Families place system text and tool list differently: one system turn for both, a turn for each, or the first user turn
(``Layout``). A prefix may end inside an open user turn, which the first question continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rkllm_mcp.messages import Message, Picture, ToolSpec
from rkllm_mcp.prompt.tokenizer import ControlText, PlainText, Segment
from rkllm_mcp.prompt.tool_list import ToolForm

Layout = Literal["system_turn", "tools_first", "tools_turn", "tools_in_user_turn", "user_turn"]
"""system_turn: system text, then tools; tools_first: the other way round, in the same turn; tools_turn: a turn for
each; tools_in_user_turn: a system turn, the tools before the first question; user_turn: both before it."""


@dataclass(frozen=True)
class PrefixLayout:
    """Position and extra texts of the prompt prefix of a family; the defaults are ChatML's."""

    layout: Layout = "system_turn"
    beginning: str = ""  # of every prompt: the beginning-of-text token, if the family has one
    # Around the tool list if it is its own turn; otherwise ``tools_closing`` follows a system turn with tools.
    tools_opening: str = ""
    tools_closing: str = ""
    # In the system turn before the owner's text, the first only with tools; with a preface there is always such a turn.
    before_tools_preface: str = ""
    preface: str = ""
    # Last part of the preface, with thinking on or off.
    thinking_preface: str = ""
    no_thinking_preface: str = ""
    after_system: str = ""  # after the owner's text, if there is one, within its turn


PLAIN_PREFIX = PrefixLayout()

# In place of a picture that the model does not see
IMAGE_LINE = "[image, not shown]\n"


@dataclass(frozen=True)
class PictureText:
    """The text of pictures in a prompt."""

    shown: str = ""  # text of one picture, in control tokens: tags, and a token for each row of its embedding
    digests: frozenset[str] = frozenset()  # the pictures that the model sees; of others there is a line

    def segments(self, pictures: Sequence[Picture]) -> list[Segment]:
        """Return the text of these pictures of a person."""
        return [
            ControlText(self.shown) if picture.digest in self.digests else PlainText(IMAGE_LINE) for picture in pictures
        ]


NO_PICTURES = PictureText()


Before = Literal["start", "open_user_turn", "user", "assistant", "calls", "tool"]
"""The text before a turn: a closed prefix, a prefix with an open user turn, or a turn of that role; ``calls`` is an
assistant's turn that ends in calls."""


def before_next(message: Message) -> Before:
    """Return the role of ``message`` for the turn after it."""
    if message.role == "system":
        return "start"
    return "calls" if message.calls else message.role


@dataclass(frozen=True)
class ChatTemplate:
    """The strings around the turns of one family."""

    # Around the system text and the tool list.
    system_opening: str
    system_closing: str
    # Around a user message.
    user_opening: str
    user_closing: str
    # Around the results of a round.
    results_opening: str
    results_closing: str
    assistant_opening: str  # the text that the model continues
    assistant_closing: str  # text after an answer; begins with ``end_of_turn``
    # Control token that ends an answer, usually written by the model; empty if the family has none.
    end_of_turn: str
    stop: tuple[str, ...]  # further control tokens that end an answer
    tool_form: ToolForm
    # Text after ``assistant_opening`` with thinking off; empty for models that never think.
    no_thinking: str = ""
    # Text after ``assistant_opening`` with thinking on; empty if the model opens the block itself.
    open_thinking: str = ""
    head_form: PrefixLayout = PLAIN_PREFIX
    calls_end_turn: str | None = None  # text after an answer that ends in calls, if it is not ``assistant_closing``
    results_stay_in_turn: bool = False  # results are part of the assistant's turn, which the model continues
    before_answer: str = ""  # between ``assistant_opening`` and an answer, if the model writes it itself
    stop_texts: tuple[str, ...] = ()  # plain text that ends an answer, if it is a single token of the vocabulary
    # Texts before, after and in place of a picture's tokens; empty if models of the family usually see nothing.
    picture_tags: tuple[str, ...] = ()
    around_picture: tuple[str, ...] = ("", "")  # text before and after a picture with its tags
    # Applied to untrusted text, if the family separates turns by plain text.
    clean: Callable[[str], str] | None = None

    @property
    def can_think(self) -> bool:
        """True if a prompt of the family can ask for thinking, or for none."""
        return bool(self.no_thinking or self.open_thinking or self.head_form.thinking_preface)

    @property
    def answer_markers(self) -> tuple[str, ...]:
        """Text around and within calls. Its control tokens are part of an answer, because the detector needs them."""
        form = self.tool_form
        around = (form.calls_opening, form.call_opening, form.call_closing, form.calls_closing)
        within = (segment.text for segment in form.call_style.rest({"k": "v"}) if isinstance(segment, ControlText))
        return (*around, *within)

    def head(
        self, system: str, tools: Sequence[ToolSpec], *, thinking: bool = False, person: str = ""
    ) -> list[Segment]:
        """Return the beginning of every prompt: system text and tool list; empty for most families if both are.

        ``person`` is a text about the person, which follows after both, so that they are the same for all people.
        """
        form = self.head_form
        preface = (form.before_tools_preface if tools else "") + form.preface
        preface += form.thinking_preface if thinking else form.no_thinking_preface
        words: list[Segment] = [PlainText(system), ControlText(form.after_system)] if system else []
        listing = self.tool_form.listing(tools)
        # Without the blank line that separates it from a text before it.
        leading = [ControlText(listing[0].text.lstrip("\n")), *listing[1:]] if listing else []
        # Plain text, in which a family that separates turns by blank lines has none.
        after: list[Segment] = [PlainText(f"\n\n{person}" if words or listing else person)] if person else []
        if form.layout == "system_turn":
            closing = form.tools_closing if listing else ""
            turns = self._system_turn(preface, [*words, *(listing if words else leading), *after], closing)
        elif form.layout == "tools_first":
            between = [ControlText("\n\n")] if words and listing else []
            turns = self._system_turn(preface, [*leading, *between, *words, *after])
        elif form.layout == "user_turn":
            content = [*words, *leading, *after, *([PlainText("\n\n")] if after else [])]
            turns = [ControlText(self.user_opening), *content] if content else []
        else:
            is_turn = form.layout == "tools_turn"
            opening, closing = (form.tools_opening, form.tools_closing) if is_turn else (self.user_opening, "")
            ending = [*after, PlainText("\n\n")] if after and not is_turn else after
            tool_turn = [ControlText(opening), *leading, *ending, ControlText(closing)] if listing else []
            turns = [*self._system_turn(preface, words if listing else [*words, *after]), *tool_turn]
        return self._clean_segments([ControlText(form.beginning), *turns] if form.beginning else turns)

    def _system_turn(self, preface: str, content: Sequence[Segment], closing: str = "") -> list[Segment]:
        if not (preface or content):
            return []
        opening = ControlText(self.system_opening + preface)
        return [opening, *content, ControlText(self.system_closing + closing)]

    def before_first(self, system: str, tools: Sequence[ToolSpec], person: str = "") -> Before:
        """Return the state in which the prefix leaves the first turn."""
        in_user_turn = {"tools_in_user_turn": tools, "user_turn": system or tools or person}
        return "open_user_turn" if in_user_turn.get(self.head_form.layout) else "start"

    def turn(self, message: Message, before: Before = "start", pictures: PictureText = NO_PICTURES) -> list[Segment]:
        """Return one whole turn, closed; ``before`` describes the text in front of it.

        Raises:
            ValueError: a system turn after the prefix; templates have one system text, at the beginning.
        """
        if any(self.around_picture):
            pictures = replace(pictures, shown=pictures.shown.join(self.around_picture))
        if message.role == "user":
            opening = "" if before == "open_user_turn" else self._closing_before(before) + self.user_opening
            words = f"{message.context}\n\n{message.text}" if message.context else message.text
            words += message.facts or ""
            cards = self.tool_form.cards(message.cards)
            picture_segments = pictures.segments(message.pictures)
            if picture_segments or cards:
                # Where a space separates the name of a role from its words, a picture follows without one.
                opening = opening.rstrip(" ")
            return self._clean_segments(
                [ControlText(opening), *picture_segments, *cards, PlainText(words), ControlText(self.user_closing)]
            )
        if message.role == "tool":
            results = self.tool_form.results(message.results, message.text)
            # A result's own text has a line about pictures that the model does not see.
            results += [ControlText(pictures.shown) for p in message.all_pictures if p.digest in pictures.digests]
            opening = ("" if before == "calls" else self._closing_before(before)) + self.results_opening
            return self._clean_segments([ControlText(opening), *results, ControlText(self.results_closing)])
        if message.role == "assistant":
            calls = self.tool_form.calls(message.calls, after_text=bool(message.text))
            goes_on = before == "tool" and self.results_stay_in_turn
            opening = "" if goes_on else self._closing_before(before) + self.assistant_opening
            opening += self.before_answer if message.text or calls else ""
            return self._clean_segments([ControlText(opening), PlainText(message.text), *calls, *self.closing(message)])
        raise ValueError("a system message can only be the first of a conversation")

    def closing(self, message: Message) -> list[Segment]:
        """Return the text after the answer ``message``."""
        ends_in_calls = bool(message.calls) and self.calls_end_turn is not None
        return [ControlText(self.calls_end_turn or "" if ends_in_calls else self.assistant_closing)]

    def opening(self, *, thinking: bool, before: Before = "user") -> list[Segment]:
        """Return the text that the model continues: a new assistant turn, or the open one after its results."""
        if before == "tool" and self.results_stay_in_turn:
            return [ControlText(self.open_thinking if thinking else "")]
        return [
            ControlText(self._closing_before(before) + self.assistant_opening),
            ControlText(self.open_thinking if thinking else self.no_thinking),
        ]

    def begun(self, message: Message, before: Before = "user") -> list[Segment]:
        """Return the open turn of an answer that the model goes on with."""
        opening = [*self.opening(thinking=False, before=before), ControlText(self.before_answer)]
        return self._clean_segments([*opening, PlainText(message.text)])

    def _closing_before(self, before: Before) -> str:
        """Return the closing of a turn left open by a prefix or by an answer with calls, before another role."""
        if before == "open_user_turn":
            return self.user_closing
        is_open = {"tool": self.results_stay_in_turn, "calls": self.calls_end_turn is not None}
        return self.assistant_closing if is_open.get(before) else ""

    def _clean_segments(self, segments: Sequence[Segment]) -> list[Segment]:
        if self.clean is None:
            return list(segments)
        return [PlainText(self.clean(s.text)) if isinstance(s, PlainText) else s for s in segments]
