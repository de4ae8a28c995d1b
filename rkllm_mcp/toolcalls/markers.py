"""Literals and short shapes that may be cut anywhere by a stream: found whole, or recognised as possibly beginning.

``Markers`` searches for any of several literals; ``Shape`` tests one short pattern at one place. Both answer with the
third value that ``re`` does not have: "not yet, the text ends inside it". Nothing here knows what a tool call is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# White space between the parts of a call, with the byte order mark that some tokenizers leave. It is bounded so that
# what waits for a decision stays short whatever the model writes.
SPACE = r"[\s\ufeff]{0,64}"

_NOTHING = re.compile(r"(?!)")


def _beginning(atoms: Iterable[str]) -> str:
    """A pattern for every proper beginning of ``atoms`` that reaches the end of the text."""
    pattern = ""
    for atom in reversed(list(atoms)):
        pattern = f"(?:{atom}{pattern})?"
    return f"{pattern}\\Z"


def literal(text: str) -> tuple[str, ...]:
    """``text`` as atoms of a ``Shape``, one for each character."""
    return tuple(re.escape(character) for character in text)


class Markers:
    """Any of several literals, found in a text that may end inside one of them.

    Args:
        literals: the texts to look for; of two that match at one place the longer is meant.
    """

    def __init__(self, literals: Iterable[str]) -> None:
        self.literals = tuple(sorted(set(literals), key=lambda text: (-len(text), text)))
        self.first_characters = frozenset(text[0] for text in self.literals)
        self._pattern = _NOTHING
        if self.literals:
            whole = "|".join(re.escape(text) for text in self.literals)
            # The first character is demanded, or every end of a text would be the beginning of a marker.
            begun = "|".join(
                f"{re.escape(text[0])}{_beginning(literal(text[1:-1]))}" for text in self.literals if len(text) > 1
            )
            self._pattern = re.compile(f"(?P<whole>{whole})|{begun}" if begun else f"(?P<whole>{whole})")

    def search(self, text: str, start: int) -> tuple[int, bool] | None:
        """The first place from ``start`` on where a literal stands (True) or the text ends inside one (False)."""
        found = self._pattern.search(text, start)
        return None if found is None else (found.start(), found.lastgroup == "whole")

    def at(self, text: str, start: int) -> bool | None:
        """Whether a literal stands exactly at ``start``; None when the text ends inside one."""
        found = self._pattern.match(text, start)
        if found is None:
            return False
        return True if found.lastgroup == "whole" else None


class Shape:
    """A short pattern that also knows its own beginnings.

    Args:
        atoms: regular expressions of one character or character class each, with a quantifier from ``?`` or ``{0,n}``
            at most, so that every beginning of a match is a match of the first atoms.
    """

    def __init__(self, *atoms: str) -> None:
        self._whole = re.compile("".join(atoms))
        self._begun = re.compile(_beginning(atoms))

    def match(self, text: str, start: int) -> int | None:
        """Where the shape that stands at ``start`` ends."""
        found = self._whole.match(text, start)
        return None if found is None else found.end()

    def at(self, text: str, start: int) -> bool | None:
        """Whether the shape stands at ``start``; None when the text ends before that can be said."""
        if self._whole.match(text, start) is not None:
            return True
        return None if self._begun.match(text, start) is not None else False
