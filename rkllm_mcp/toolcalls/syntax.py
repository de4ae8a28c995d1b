"""Call formats as data, the decision if an opener begins a call, and the tags around thinking."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from rkllm_mcp.toolcalls.lenient_json import ParsedCall
from rkllm_mcp.toolcalls.markers import SPACE, Markers, Shape, literal
from rkllm_mcp.toolcalls.scanners import Scanner

# Extra brackets and white space between a body and its closer.
_EXTRA = r"[\s}\]]{0,72}"
_EXTRA_RUN = re.compile(_EXTRA)

# Misspelt closers, such as </tool_cal>, <|/toolcall|> and [end_tool_call].
_WORD = ("[tTfF]", "[oOuU]", r"[\w\-]{0,20}")
_ANY_CLOSER = (
    ("<", r"\|?", "/", r"\|?", *_WORD, r"\|?", r"[>\s]"),
    (r"\[", "/", *_WORD, r"\]"),
    (r"\[", "[eE]", "[nN]", "[dD]", "[_ ]?", *_WORD, r"\]"),
)

# More than any confirmation needs: a few stretches of white space, a fence and a name.
CONFIRM_CHARACTERS = 512

# Placeholder in an opener for the name of any declared tool.
TOOL_NAME = "{name}"

NEVER = re.compile(r"(?!)")

Confirmation = Callable[[str, frozenset[str]], "bool | None"]
"""From the text behind an opener and the declared names: True for a call, False for none, None if more is needed."""


@dataclass(frozen=True)
class Another:
    """The text between two bodies after one opener."""

    separator: Shape  # belongs to the first body
    begins: Shape  # the beginning of the second body, right after the separator

    def at(self, text: str, start: int) -> int | Literal[False] | None:
        """Return the position where the second body begins; False for none; None if more text is needed."""
        position = self.separator.match(text, start)
        if position is None:
            return None if self.separator.at(text, start) is None else False
        verdict = self.begins.at(text, position)
        return position if verdict else verdict


@dataclass(frozen=True, eq=False)
class CallFormat:
    """One way of writing calls."""

    name: str  # in explanations
    openers: tuple[str, ...]  # texts that may begin a call; ``TOOL_NAME`` in one stands for each declared name
    # Decides if the text after an opener makes it a call; gets at most ``CONFIRM_CHARACTERS`` of it.
    confirm: Confirmation
    # Makes the scanner of one body, given the markers that cannot occur outside strings and values.
    scanner: Callable[[Markers], Scanner]
    # Parses a body into calls; raises UnreadableError if the body is not written in this form.
    read: Callable[[str], tuple[ParsedCall, ...]]
    example: str  # the format in one line, for a model that made a mistake
    # Texts that may follow the body and belong to the call; none if the body's own structure ends it.
    closers: tuple[str, ...] = ()
    another: tuple[Another, ...] = ()  # separators that may lead to a further body before the closer
    # Where a call whose structure never ends may be cut: a closer in a position where calls end, not where
    # text is quoted. The match is the closer.
    gives_up: re.Pattern[str] = NEVER
    keeps: int | None = 0  # number of the opener's last characters that belong to the body; None for all
    begins: str = ""  # beginning of the body itself, where that could be taken for another call
    # The format has no marker. It is a call only for declared names, at the beginning of the answer or on lines of
    # its own, or anywhere for a family without another format (``Syntax.bare_anywhere``).
    bare: bool = False
    # As its own line it is a call only at the beginning or the end of the answer: programs have such lines too.
    ends_turn: bool = False
    fenced: bool = False  # the opener is a code fence, which must begin a line

    @cached_property
    def closer_shapes(self) -> tuple[Shape, ...]:
        """The closers as they may follow a body: after white space, extra brackets, the end of a code fence."""
        closers = (*(literal(closer) for closer in self.closers), *_ANY_CLOSER)
        # Some models write a line break as the two characters of its escape.
        befores = ((), literal("```"), literal("\\n"))
        return tuple(Shape(_EXTRA, *before, SPACE, *closer) for closer in closers for before in befores)

    def body_begins(self, opener: str, start: int) -> int:
        """Return the position where the body begins, for a call whose ``opener`` is at ``start``."""
        return start + (0 if self.keeps is None else len(opener) - self.keeps)


class Openers:
    """Decides which call format an opener begins; formats are tried in the given order."""

    def __init__(self, formats: Iterable[CallFormat], names: frozenset[str]) -> None:
        self._names = names
        self._pairs: list[tuple[CallFormat, str]] = []
        for call_format in formats:
            for opener in call_format.openers:
                tool_names = sorted(names) if TOOL_NAME in opener else [""]
                texts = dict.fromkeys(opener.replace(TOOL_NAME, name) for name in tool_names)
                self._pairs += [(call_format, text) for text in texts]
        self.markers = Markers(text for _, text in self._pairs)
        self._prefix_cache: dict[str, list[tuple[CallFormat, str]]] = {}

    def decide(self, text: str, start: int, *, final: bool) -> tuple[CallFormat, int] | Literal[False] | None:
        """Return the format of the call at ``start`` and its body position; False for no call, None if more is needed.

        With ``final``, no more text will follow.
        """
        match = self.markers.match(text, start)
        if match is None:
            return False
        opening, is_whole = match
        if not final and (not is_whole or start + len(opening) == len(text)):
            return None
        for call_format, opener in self._prefixes(opening):
            body_start = start + len(opener)
            verdict = call_format.confirm(text[body_start : body_start + CONFIRM_CHARACTERS], self._names)
            if verdict:
                return call_format, call_format.body_begins(opener, start)
            if verdict is None and not final:
                return None
        return False

    def _prefixes(self, text: str) -> list[tuple[CallFormat, str]]:
        """Return the formats with an opener that ``text`` begins with, in their order."""
        if text not in self._prefix_cache:
            self._prefix_cache[text] = [pair for pair in self._pairs if text.startswith(pair[1])]
        return self._prefix_cache[text]

    def standing(self, text: str, start: int) -> list[CallFormat]:
        """Return the formats whose whole openers are at ``start``."""
        match = self.markers.match(text, start)
        return [] if match is None else [call_format for call_format, _ in self._prefixes(match[0])]

    def next_call(self, text: str, start: int = 0) -> int | None:
        """Return the position in ``text`` where a call begins, assuming that the text is complete."""
        match = self.markers.search(text, start)
        while match is not None and not self.decide(text, match[0], final=True):
            match = self.markers.search(text, match[0] + 1)
        return None if match is None else match[0]


# Every answer needs the same few, and making one for hundreds of texts takes milliseconds.
openers_of = lru_cache(maxsize=64)(Openers)
"""Return the ``Openers`` of a tuple of formats and the declared names."""


@dataclass(frozen=True)
class Ending:
    """The end of a body."""

    at: int  # position where the call, or this part of it, ends
    another: bool = False  # a further body begins there


def find_ending(call_format: CallFormat, text: str, start: int, *, final: bool) -> Ending | None:
    """Return the ending of the body that ends at ``start``; None if more text is needed."""
    bodies = [another.at(text, start) for another in call_format.another]
    may_close = any(shape.at(text, start) is None for shape in call_format.closer_shapes)
    if (may_close or None in bodies) and not final:
        return None
    if may_close:
        # The answer ended inside a closer; half a closer is not shown.
        return Ending(len(text))
    for shape in call_format.closer_shapes:
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
    """The marks of thinking of one family."""

    opener: str
    closer: str
    header: str = ""  # a line right after the opener that is not part of the thinking
    # The model also thinks in the middle of an answer, and a closer without opener has no meaning. For other
    # families the marks count only at the beginning of the answer, and are text later.
    anywhere: bool = False


THINKING: dict[str, ThinkingTags] = {
    # Qwen3, DeepSeek R1, SmolLM3, GLM-4.5, RWKV7, LFM2.5
    "think": ThinkingTags("<think>", "</think>"),
    "gemma4": ThinkingTags("<|channel>", "<channel|>", header="thought\n", anywhere=True),
    "minicpm3": ThinkingTags("<|thought_start|>", "<|thought_end|>"),
    "mistral": ThinkingTags("[THINK]", "[/THINK]", anywhere=True),
    "seed": ThinkingTags("<seed:think>", "</seed:think>"),
    "apriel": ThinkingTags("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),
}
"""Every family's marks by name; ``Syntax.thinking`` selects one."""


# A tool's response as the templates write it: the marks around it, invented by models that go on after their call.
RESPONSES: dict[str, str] = {
    "<tool_response>": "</tool_response>",
    "<|tool_response>": "<tool_response|>",
    "<|tool_response|>": "<|/tool_response|>",
    "<tool_result>": "</tool_result>",
    "<function_results>": "</function_results>",
    "[TOOL_RESULTS]": "[/TOOL_RESULTS]",
    "<｜tool▁outputs▁begin｜>": "<｜tool▁outputs▁end｜>",
}


class ThinkingMarks:
    """The marks of thinking that count in one answer; none if thinking is off."""

    def __init__(self, families: Sequence[ThinkingTags]) -> None:
        self._families = families
        # Marks that begin or end thinking in the middle of text.
        self.anywhere = tuple(mark for tags in families if tags.anywhere for mark in (tags.opener, tags.closer))
        # The family of each mark.
        self.owners = {mark: tags for tags in families for mark in (tags.opener, tags.closer)}
        self._openers = [mark for mark, tags in self.owners.items() if mark == tags.opener]

    def closers(self, tags: ThinkingTags | None) -> tuple[str, ...]:
        """Return the marks that end the thinking begun by ``tags``; None means that the prompt began it."""
        return tuple(family.closer for family in self._families) if tags is None else (tags.closer,)

    def standing(self, text: str, *, openers_only: bool) -> ThinkingTags | None:
        """Return the family of the mark that ``text`` begins with."""
        marks = self._openers if openers_only else self.owners
        return next((self.owners[mark] for mark in marks if text.startswith(mark)), None)

    def may_begin(self, text: str, *, openers_only: bool) -> bool:
        """Return True if ``text`` may be the beginning of a mark."""
        return any(mark.startswith(text) for mark in (self._openers if openers_only else self.owners))
