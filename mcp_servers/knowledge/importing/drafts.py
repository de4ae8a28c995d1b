"""Headings and text in reading order -> passages that know the headings above them.

A heading with nothing below it becomes a passage itself: nothing that a document says is lost for search.
"""

from __future__ import annotations

from mcp_servers.knowledge.values import Passage


class Draft:
    """A document while it is read from top to bottom.

    Attributes:
        passages: what was read so far; whole after ``finish``.
        title: the first heading of the highest level, empty when there is none.
    """

    def __init__(self) -> None:
        self.passages: list[Passage] = []
        self.title = ""
        self._levels: list[tuple[int, str]] = []
        self._bare: Passage | None = None

    def heading(self, level: int, text: str, page: int | None = None) -> None:
        """A heading begins; those of its level and below it have ended."""
        text = " ".join(text.split())
        if self._bare and self._levels and level <= self._levels[-1][0]:
            self.passages.append(self._bare)
        self._bare = None
        while self._levels and self._levels[-1][0] >= level:
            self._levels.pop()
        if text:
            self._bare = Passage(text, self._path, page)
            self._levels.append((level, text))
            if level == 1 and not self.title:
                self.title = text

    def add(self, text: str, page: int | None = None, *, is_whole: bool = False) -> None:
        """What stands below the headings so far; nothing when it is blank."""
        text = text.strip("\n")
        if text.strip():
            self._bare = None
            self.passages.append(Passage(text if is_whole else text.strip(), self._path, page, is_whole))

    def finish(self) -> list[Passage]:
        """Everything, in order."""
        if self._bare:
            self.passages.append(self._bare)
            self._bare = None
        return self.passages

    @property
    def _path(self) -> tuple[str, ...]:
        return tuple(text for _, text in self._levels)
