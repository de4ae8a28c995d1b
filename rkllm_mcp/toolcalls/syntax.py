"""Call formats as data, and the tags around thinking."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from rkllm_mcp.toolcalls.markers import SPACE, Markers, Shape, literal
from rkllm_mcp.toolcalls.parsers import ParsedCall
from rkllm_mcp.toolcalls.scanners import Scanner

# Brackets too many and white space between a body and its closer.
_EXTRA = r"[\s}\]]{0,72}"
_EXTRA_RUN = re.compile(_EXTRA)

# More than every confirmation may need: a few stretches of white space, a fence and a name.
CONFIRM_CHARACTERS = 512

# In an opener this stands for the name of any declared tool.
TOOL_NAME = "{name}"

NEVER = re.compile(r"(?!)")

Confirmation = Callable[[str, frozenset[str]], "bool | None"]
"""Given what follows an opener and the declared names: it is a call, it is none, or (None) more has to be seen."""


@dataclass(frozen=True)
class Another:
    """What stands between two bodies behind one opener.

    Args:
        separator: belongs to the first.
        begins: the beginning of the second, right behind the separator.
    """

    separator: Shape
    begins: Shape

    def at(self, text: str, start: int) -> int | Literal[False] | None:
        """Where the second body begins; False when there is none; None when more has to be seen."""
        place = self.separator.match(text, start)
        if place is None:
            return None if self.separator.at(text, start) is None else False
        begun = self.begins.at(text, place)
        return place if begun else begun


@dataclass(frozen=True, eq=False)
class CallFormat:
    """One way of writing calls.

    Args:
        name: what explanations call it.
        openers: texts that may begin a call; ``TOOL_NAME`` in one stands for each declared name.
        confirm: whether what follows an opener makes it a call; asked with at most ``CONFIRM_CHARACTERS`` of it.
        scanner: makes the scanner of one body, given the markers that no body can hold outside strings and values.
        read: the calls a body spells.
        example: the form in a line, for a model that got it wrong.
        spells: how a body spells arguments, for those who follow them while they are written.
        closers: texts that may follow the body and belong to the call; none where the body's own structure ends it.
        another: what may lead to a further body before the closer.
        gives_up: where a call whose structure never ends may be cut: a closer that stands like an end, not like a
            quotation. The match is the closer.
        keeps: how many of the opener's last characters belong to the body; all of them for None.
        begins: what the body itself begins with, where that could be taken for another call.
        bare: the form has no marker of its own. It is a call only for declared names, and at the beginning of the
            answer, or anywhere for a family that has no other form (``Syntax.bare_anywhere``).
        fenced: the opener is a code fence, which must stand at the beginning of a line.
    """

    name: str
    openers: tuple[str, ...]
    confirm: Confirmation
    scanner: Callable[[Markers], Scanner]
    read: Callable[[str], tuple[ParsedCall, ...]]
    example: str
    spells: Literal["json", "named_json", "other"] = "other"
    closers: tuple[str, ...] = ()
    another: tuple[Another, ...] = ()
    gives_up: re.Pattern[str] = NEVER
    keeps: int | None = 0
    begins: str = ""
    bare: bool = False
    fenced: bool = False

    @cached_property
    def closer_shapes(self) -> tuple[Shape, ...]:
        """The closers as they may follow a body: behind white space, brackets too many, the end of a code fence."""
        return tuple(
            Shape(_EXTRA, *fence, SPACE, *literal(closer)) for closer in self.closers for fence in ((), literal("```"))
        )

    def body_begins(self, opener: str, start: int) -> int:
        """Where the body of a call begins whose ``opener`` stands at ``start``."""
        return start + (0 if self.keeps is None else len(opener) - self.keeps)


class Openers:
    """The one place where the beginnings of calls are told apart.

    Args:
        forms: the enabled forms, first asked first.
        names: the names calls may be made under.
    """

    def __init__(self, forms: Iterable[CallFormat], names: frozenset[str]) -> None:
        self._names = names
        self._pairs: dict[str, list[tuple[CallFormat, str]]] = {}
        for form in forms:
            for opener in form.openers:
                named = sorted(names) if TOOL_NAME in opener else [""]
                for text in dict.fromkeys(opener.replace(TOOL_NAME, name) for name in named):
                    self._pairs.setdefault(text[0], []).append((form, text))
        self.markers = Markers(opener for pairs in self._pairs.values() for _, opener in pairs)

    def decide(self, text: str, start: int, *, final: bool) -> tuple[CallFormat, int] | Literal[False] | None:
        """What the opener at ``start`` begins.

        Args:
            text: the text so far.
            start: where an opener stands or begins.
            final: nothing will follow.

        Returns:
            The form and where its body begins; False when no call begins here; None when more has to be seen.
        """
        for form, opener in self._pairs.get(text[start], ()):
            behind = start + len(opener)
            verdict: bool | None = False
            if behind == len(text) and not final and text.startswith(opener, start):
                return None
            if text.startswith(opener, start):
                verdict = form.confirm(text[behind : behind + CONFIRM_CHARACTERS], self._names)
            elif opener.startswith(text[start:behind]):
                verdict = None
            if verdict:
                return form, form.body_begins(opener, start)
            if verdict is None and not final:
                return None
        return False

    def standing(self, text: str, start: int) -> list[str]:
        """The names of the forms whose openers stand whole at ``start``."""
        return [form.name for form, opener in self._pairs.get(text[start], ()) if text.startswith(opener, start)]

    def next_call(self, text: str, start: int = 0) -> int | None:
        """Where in ``text`` a call begins, nothing following it."""
        found = self.markers.search(text, start)
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


def find_ending(form: CallFormat, text: str, start: int, *, final: bool) -> Ending | None:
    """What follows the body that ends at ``start``; None when more has to be seen."""
    bodies = [another.at(text, start) for another in form.another]
    may_close = any(shape.at(text, start) is None for shape in form.closer_shapes)
    if (may_close or None in bodies) and not final:
        return None
    if may_close:
        # An answer that ends inside a closer ended there; half a closer is nothing to show.
        return Ending(len(text))
    for shape in form.closer_shapes:
        end = shape.match(text, start)
        if end is not None:
            return Ending(end)
    for body in bodies:
        if body is not None and body is not False:
            return Ending(body, another=True)
    run = _EXTRA_RUN.match(text, start)
    if run is not None and run.end() == len(text) and not final:
        return None
    return Ending(start + len(run.group().rstrip() if run else ""))


@dataclass(frozen=True, eq=False)
class ThinkingTags:
    """The marks of one family.

    Args:
        opener: what begins thinking.
        closer: what ends it.
        header: a line right behind the opener that is not part of what is thought.
        anywhere: the model thinks in the middle of an answer too, and a closer that closes nothing means nothing.
            Elsewhere the marks count only where the answer begins, and are text behind that.
    """

    opener: str
    closer: str
    header: str = ""
    anywhere: bool = False

    def at_the_beginning(self) -> ThinkingTags:
        """The same marks, counting only where the answer begins."""
        return replace(self, anywhere=False)


THINKING: dict[str, ThinkingTags] = {
    # Qwen3, DeepSeek R1, SmolLM3, GLM-4.5, RWKV7, LFM2.5
    "think": ThinkingTags("<think>", "</think>"),
    "gemma4": ThinkingTags("<|channel>", "<channel|>", header="thought\n", anywhere=True),
    "minicpm3": ThinkingTags("<|thought_start|>", "<|thought_end|>"),
    "mistral": ThinkingTags("[THINK]", "[/THINK]", anywhere=True),
    "seed": ThinkingTags("<seed:think>", "</seed:think>"),
    "apriel": ThinkingTags("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),
}
"""Every family's marks by name; a syntax names its own."""


class ThinkingMarks:
    """The marks that count in one answer.

    Args:
        families: the families they are of; none when nothing is thinking.
    """

    def __init__(self, families: Sequence[ThinkingTags]) -> None:
        self._families = families
        self._anywhere = tuple(mark for tags in families if tags.anywhere for mark in (tags.opener, tags.closer))
        self._owners = {mark: tags for tags in families for mark in (tags.opener, tags.closer)}
        self._closing: dict[ThinkingTags | None, Markers] = {}

    def closers(self, tags: ThinkingTags | None) -> tuple[str, ...]:
        """What ends the thinking that ``tags`` began, or the prompt did for None."""
        return tuple(each.closer for each in self._families) if tags is None else (tags.closer,)

    def closing(self, tags: ThinkingTags | None) -> Markers:
        """``closers``, to search for."""
        if tags not in self._closing:
            self._closing[tags] = Markers(self.closers(tags))
        return self._closing[tags]

    def anywhere(self) -> tuple[str, ...]:
        """What begins or ends thinking in the middle of text."""
        return self._anywhere

    def of(self, mark: str) -> ThinkingTags:
        """Whose ``mark`` it is."""
        return self._owners[mark]

    def standing(self, text: str, *, openers_only: bool) -> ThinkingTags | None:
        """Whose mark ``text`` begins with."""
        return next((self._owners[mark] for mark in self._leading(openers_only) if text.startswith(mark)), None)

    def may_begin(self, text: str, *, openers_only: bool) -> bool:
        """Whether ``text`` may be the beginning of a mark."""
        return any(mark.startswith(text) for mark in self._leading(openers_only))

    def _leading(self, openers_only: bool) -> list[str]:
        return [mark for mark, tags in self._owners.items() if mark == tags.opener or not openers_only]
