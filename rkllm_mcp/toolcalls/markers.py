"""Search for literals that a stream may cut at any point, and the state of code fences around them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

# White space between the parts of a call, with the byte order mark that some tokenizers leave. It is bounded, so
# the text that waits for a decision stays short for any output.
SPACE = r"[\s\ufeff]{0,64}"

_NOTHING = re.compile(r"(?!)")


def literal(text: str) -> tuple[str, ...]:
    """Return ``text`` as atoms of a ``Shape``, one for each character."""
    return tuple(re.escape(character) for character in text)


class Markers:
    """A set of literals, found in a text that may end inside one of them; the longest match counts."""

    def __init__(self, literals: Iterable[str]) -> None:
        self.literals = tuple(sorted(set(literals), key=lambda text: (-len(text), text)))
        self.first_characters = frozenset(text[0] for text in self.literals)
        self._longest = len(self.literals[0]) if self.literals else 0

    # Made on first use: the openers of an answer are searched for together, and most by themselves never.
    @cached_property
    def _compiled(self) -> tuple[re.Pattern[str], frozenset[str]]:
        return _compile(self.literals)

    @property
    def first(self) -> Callable[[str], object]:
        """A quick ``search`` from the beginning: what it returns None for has no literal and no beginning of one."""
        return self._compiled[0].search

    def search(self, text: str, start: int) -> tuple[int, bool] | None:
        """Return the first position with a literal (True) or, at the end of the text, the beginning of one (False)."""
        pattern, beginnings = self._compiled
        match = pattern.search(text, start)
        while match is not None:
            at = match.start()
            # The text ends in what may become a longer literal.
            if len(text) - at < self._longest and text[at:] in beginnings:
                return at, False
            if match.lastindex is not None:
                return at, True
            match = pattern.search(text, at + 1)
        return None

    def match(self, text: str, start: int) -> tuple[str, bool] | None:
        """Return the literal at ``start`` and True, or the rest of the text and False where it may be continued."""
        pattern, beginnings = self._compiled
        if len(text) - start < self._longest and text[start:] in beginnings:
            return text[start:], False
        match = pattern.match(text, start)
        return None if match is None or match.lastindex is None else (match.group(), True)

    def at(self, text: str, start: int) -> bool | None:
        """Return True if a literal is at ``start``; None if the text ends where one may continue."""
        match = self.match(text, start)
        return False if match is None else match[1] or None


@lru_cache(maxsize=256)
def markers_of(*sets: tuple[str, ...]) -> Markers:
    """Return the markers of several sets of literals."""
    return Markers(text for literals in sets for text in literals)


# So much of a beginning is looked for by the pattern, and the rest in the set: to compile the pattern of each beginning
# takes ten times as long, and every new set of tools needs one before its first token.
_BEGINNING_CHARACTERS = 3


# Answers share a handful of these, and compiling one takes milliseconds.
@lru_cache(maxsize=256)
def _compile(literals: tuple[str, ...]) -> tuple[re.Pattern[str], frozenset[str]]:
    """Return a pattern for literals, and their beginnings.

    The pattern has a group where a literal is, and none where the end of the text may begin one.
    """
    if not literals:
        return _NOTHING, frozenset()
    all_beginnings = frozenset(text[:end] for text in literals for end in range(1, len(text)))
    # Each alternative starts with a character, so that the search skips to one of those quickly.
    alternatives = [f"{branch}()" for branch in _branches(literals)]
    beginnings = {text for text in all_beginnings if len(text) <= _BEGINNING_CHARACTERS}
    longest = {text for text in beginnings if len(text) == _BEGINNING_CHARACTERS}
    alternatives += [rf"{branch}[\s\S]{{0,{len(literals[0])}}}\Z" for branch in _branches(longest)]
    alternatives += [rf"{branch}\Z" for branch in _branches(beginnings - longest)]
    return re.compile("|".join(alternatives)), all_beginnings


def _branches(literals: Iterable[str]) -> list[str]:
    """Return patterns that branch where the literals differ, this many of them cost hardly more than one."""
    endings: dict[str, list[str]] = {}
    for text in literals:
        endings.setdefault(text[:1], []).append(text[1:])
    # The end of a literal comes last, so that the longest one matches.
    is_end = endings.pop("", None) is not None
    branches: list[str] = []
    for first, endings_after in endings.items():
        inner = _branches(endings_after)
        branches.append(re.escape(first) + (f"(?:{'|'.join(inner)})" if len(inner) > 1 else "".join(inner)))
    return [*branches, ""] if is_end else branches


class Shape:
    """A short pattern that also matches its own beginnings.

    Each atom is a regular expression for one character or character class, with at most a quantifier ``?`` or
    ``{0,n}``, so every beginning of a match is a match of the first atoms.
    """

    def __init__(self, *atoms: str) -> None:
        self._atoms = atoms

    # Compiled on first use: of hundreds of shapes an answer needs few.
    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("".join(self._atoms))

    @cached_property
    def _prefix_pattern(self) -> re.Pattern[str]:
        """Pattern for every proper beginning of the atoms that reaches the end of the text."""
        pattern = ""
        for atom in reversed(self._atoms):
            pattern = f"(?:{atom}{pattern})?"
        return re.compile(f"{pattern}\\Z")

    def match(self, text: str, start: int) -> int | None:
        """Return the end of the shape at ``start``; None if it does not match."""
        match = self._pattern.match(text, start)
        return None if match is None else match.end()

    def at(self, text: str, start: int) -> bool | None:
        """Return True if the shape is at ``start``; None if the text ends too early to decide."""
        if self._pattern.match(text, start) is not None:
            return True
        return None if self._prefix_pattern.match(text, start) is not None else False


# Up to three spaces and a run of at least three backticks open a fence; at least as many close it (CommonMark 0.31).
_FENCE = re.compile(r" {0,3}(`{3,})")
_SPAN_PIECES = re.compile(r"`+|\n|[^`\n]+")
_SENTENCE_ENDS = re.compile(r"[^\"'][.:;!?。：！？…]\s\Z|[。：！？]\Z")
# Enough of a line to recognise its fence; longer runs of backticks count as this many.
_LINE_CHARACTERS = 16


@dataclass(eq=False)
class CodeFenceState:
    """State of the code fences of a text that is fed in chunks."""

    _fence: int = 0
    _line: str = ""
    _last: str = ""
    # The lengths of the backtick run that opened a code span on this line, and of a run at the end of the text.
    _span: int = 0
    _run: int = 0

    def feed(self, text: str) -> None:
        """Process the next chunk."""
        if not text:
            return
        self._last = (self._last + text)[-3:]
        pieces: list[str] = _SPAN_PIECES.findall(text) if self._span or self._run or "`" in text else []
        for piece in pieces:
            if piece[0] == "`":
                self._run += len(piece)
                continue
            if self._run:
                opens = self._run if self._run < 3 else 0  # Longer runs are fences.
                self._span = opens if not self._span else 0 if self._span == self._run else self._span
                self._run = 0
            if piece == "\n":
                self._span = 0
        for number, line in enumerate(text.split("\n") if "\n" in text else (text,)):
            if number:
                self._fence, self._line = self._fence_after_line(), ""
            if len(self._line) < _LINE_CHARACTERS:
                self._line += line[: _LINE_CHARACTERS - len(self._line)]

    @property
    def is_quoted(self) -> bool:
        """True if the next character is inside a code fence or after a backtick."""
        return self._span > 0 or self._last[-1:] == "`" or self._fence_after_line() > 0

    @property
    def is_in_span(self) -> bool:
        """True if the next character is inside a code span on its line."""
        return self._span > 0 or (self._span == 0 < self._run < 3)

    @property
    def is_after_sentence(self) -> bool:
        """True if a sentence or a colon and white space end here; a colon after a quote belongs to JSON."""
        return _SENTENCE_ENDS.search(self._last) is not None

    @property
    def may_open_fence(self) -> bool:
        """True if a fence here would open one: no other is open, and only white space precedes it on the line."""
        return not self._line.strip() and self._fence_after_line() == 0

    @property
    def is_line_start(self) -> bool:
        """True if at most three spaces precede the next character on its line."""
        return not self._line.strip(" ") and len(self._line) <= 3

    def _fence_after_line(self) -> int:
        """Return the length of the fence that is open after the current line; 0 for none."""
        match = _FENCE.match(self._line)
        if match is None:
            return self._fence
        run = len(match.group(1))
        if not self._fence:
            return run
        return 0 if run >= self._fence else self._fence
