"""Whether a place in Markdown text is quoted: inside a code fence or right behind a backtick.

A marker there is somebody showing how a call is written. Kept in constant space: of every line only its beginning.
"""

from __future__ import annotations

import re

# Up to three spaces and a run of at least three backticks open a fence; at least as many close it (CommonMark 0.31).
_FENCE = re.compile(r" {0,3}(`{3,})")
# Enough of a line to see its fence; longer runs than a dozen backticks are counted as a dozen.
_LINE_CHARACTERS = 16


class Quoting:
    """Follows the fences of a text that is fed piece by piece."""

    def __init__(self) -> None:
        self._fence = 0
        self._line = ""
        self._last = ""

    def feed(self, text: str) -> None:
        """Take the next piece."""
        if not text:
            return
        self._last = text[-1]
        first, *others = text.split("\n") if "\n" in text else (text,)
        self._extend(first)
        for line in others:
            self._fence = self._fence_after_line()
            self._line = ""
            self._extend(line)

    @property
    def quotes(self) -> bool:
        """Whether what comes next is quoted."""
        return self._last == "`" or self._fence_after_line() > 0

    @property
    def may_open_fence(self) -> bool:
        """Whether a fence that comes next would open one: no other is open, and only white space precedes it."""
        return not self._line.strip() and self._fence_after_line() == 0

    def _extend(self, text: str) -> None:
        if len(self._line) < _LINE_CHARACTERS:
            self._line += text[: _LINE_CHARACTERS - len(self._line)]

    def _fence_after_line(self) -> int:
        """The length of the fence that is open when the current line is taken into account; 0 for none."""
        found = _FENCE.match(self._line)
        if found is None:
            return self._fence
        run = len(found.group(1))
        if not self._fence:
            return run
        return 0 if run >= self._fence else self._fence
