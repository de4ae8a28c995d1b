"""Search for literals that a stream may cut at any point, and the state of code fences around them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache

# White space between the parts of a call, with the byte order mark that some tokenizers leave. It is bounded, so
# the text that waits for a decision stays short for any output.
SPACE = r"[\s\ufeff]{0,64}"

_NOTHING = re.compile(r"(?!)")


def _beginning(atoms: Iterable[str]) -> str:
    """Return a pattern for every proper beginning of ``atoms`` that reaches the end of the text."""
    pattern = ""
    for atom in reversed(list(atoms)):
        pattern = f"(?:{atom}{pattern})?"
    return f"{pattern}\\Z"


def literal(text: str) -> tuple[str, ...]:
    """Return ``text`` as atoms of a ``Shape``, one for each character."""
    return tuple(re.escape(character) for character in text)


class Markers:
    """A set of literals, found in a text that may end inside one of them; the longest match counts."""

    def __init__(self, literals: Iterable[str]) -> None:
        self.literals = tuple(sorted(set(literals), key=lambda text: (-len(text), text)))
        self.first_characters = frozenset(text[0] for text in self.literals)
        self._pattern = _search_pattern(self.literals)

    @property
    def first(self) -> Callable[[str], object]:
        """``search`` from the beginning, for callers that only need to know if anything matches: None for no match."""
        return self._pattern.search

    def search(self, text: str, start: int) -> tuple[int, bool] | None:
        """Return the first position with a literal (True) or, at the end of the text, the beginning of one (False)."""
        match = self._pattern.search(text, start)
        return None if match is None else (match.start(), match.lastindex is not None)

    def match(self, text: str, start: int) -> re.Match[str] | None:
        """Return the match at ``start``; its ``lastindex`` is None if the text ends where a literal may continue."""
        return self._pattern.match(text, start)

    def at(self, text: str, start: int) -> bool | None:
        """Return True if a literal stands at ``start``; None if the text ends where one may continue."""
        match = self._pattern.match(text, start)
        if match is None:
            return False
        return True if match.lastindex is not None else None


@lru_cache(maxsize=256)
def markers_of(*sets: tuple[str, ...]) -> Markers:
    """Return the markers of several sets of literals."""
    return Markers(text for literals in sets for text in literals)


# Answers share a handful of these, and compiling one takes a millisecond.
@lru_cache(maxsize=256)
def _search_pattern(literals: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(_tree(literals, is_root=True)) if literals else _NOTHING


def _tree(literals: Iterable[str], *, is_root: bool = False) -> str:
    """Return a pattern that branches where the literals differ, so many of them cost hardly more than one.

    An empty group marks the end of a literal; a match without a group ended with the text, where a literal may
    continue.
    """
    branches: dict[str, list[str]] = {}
    for text in literals:
        branches.setdefault(text[:1], []).append(text[1:])
    is_end = branches.pop("", None) is not None
    patterns = [f"{re.escape(first)}(?:{_tree(endings)})" for first, endings in branches.items()]
    # Longer literals come first, including those with only their beginning in the text. The first character is
    # required, otherwise every end of a text would begin a marker.
    if branches and not is_root:
        patterns.append(r"\Z")
    if is_end:
        patterns.append("()")
    return "|".join(patterns)


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
        return re.compile(_beginning(self._atoms))

    def match(self, text: str, start: int) -> int | None:
        """Return the end of the shape at ``start``; None if it does not match."""
        match = self._pattern.match(text, start)
        return None if match is None else match.end()

    def at(self, text: str, start: int) -> bool | None:
        """Return True if the shape stands at ``start``; None if the text ends too early to decide."""
        if self._pattern.match(text, start) is not None:
            return True
        return None if self._prefix_pattern.match(text, start) is not None else False


# Up to three spaces and a run of at least three backticks open a fence; at least as many close it (CommonMark 0.31).
_FENCE = re.compile(r" {0,3}(`{3,})")
_SPAN_PIECES = re.compile(r"`+|\n|[^`\n]+")
_SENTENCE_ENDS = re.compile(r"[^\"'][.:;!?。：！？…]\s\Z|[。：！？]\Z")
# Enough of a line to recognise its fence; longer runs of backticks count as this many.
_LINE_CHARACTERS = 16


class CodeFenceState:
    """State of the code fences of a text that is fed in chunks."""

    def __init__(self) -> None:
        self._fence = 0
        self._line = ""
        self._last = ""
        # The lengths of the backtick run that opened a code span on this line, and of a run at the end of the text.
        self._span = self._run = 0

    def feed(self, text: str) -> None:
        """Process the next chunk."""
        if not text:
            return
        self._last = (self._last + text)[-3:]
        if self._span or self._run or "`" in text:
            self._follow_spans(text)
        for number, line in enumerate(text.split("\n") if "\n" in text else (text,)):
            if number:
                self._fence, self._line = self._fence_after_line(), ""
            if len(self._line) < _LINE_CHARACTERS:
                self._line += line[: _LINE_CHARACTERS - len(self._line)]

    @property
    def is_quoted(self) -> bool:
        """True if the next character is inside a code fence or behind a backtick."""
        return self._span > 0 or self._last[-1:] == "`" or self._fence_after_line() > 0

    @property
    def is_in_span(self) -> bool:
        """True if the next character is inside a code span on its line."""
        return self._span > 0 or (self._span == 0 < self._run < 3)

    @property
    def is_after_sentence(self) -> bool:
        """True if a sentence or a colon and white space end here; a colon behind a quote belongs to JSON."""
        return _SENTENCE_ENDS.search(self._last) is not None

    @property
    def may_open_fence(self) -> bool:
        """True if a fence here would open one: no other is open, and only white space precedes it on the line."""
        return not self._line.strip() and self._fence_after_line() == 0

    @property
    def is_line_start(self) -> bool:
        """True if at most three spaces precede the next character on its line."""
        return not self._line.strip(" ") and len(self._line) <= 3

    def _follow_spans(self, text: str) -> None:
        for piece in _SPAN_PIECES.findall(text):
            if piece[0] == "`":
                self._run += len(piece)
                continue
            if self._run:
                opens = self._run if self._run < 3 else 0  # Longer runs are fences.
                self._span = opens if not self._span else 0 if self._span == self._run else self._span
                self._run = 0
            if piece == "\n":
                self._span = 0

    def _fence_after_line(self) -> int:
        """Return the length of the fence that is open after the current line; 0 for none."""
        match = _FENCE.match(self._line)
        if match is None:
            return self._fence
        run = len(match.group(1))
        if not self._fence:
            return run
        return 0 if run >= self._fence else self._fence
