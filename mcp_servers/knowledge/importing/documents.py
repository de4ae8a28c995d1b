"""The values of an import: what goes in, what comes out, and the limits in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from mcp_servers.knowledge.types import Passage

# done, total, what is being done; awaited, so that it may tell somebody over a connection.
Progress = Callable[[int, int, str], Awaitable[None]]

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Blob:
    """A document as it came.

    Args:
        content: all its bytes.
        name: a file name or the last part of an address; its ending tells the format where the bytes do not.
        media_type: what its sender calls it, e.g. ``text/html``; empty when nobody said.
        charset: the encoding its sender claims; empty when nobody said.
        uri: where it came from; empty for bytes from nowhere.
    """

    content: bytes
    name: str
    media_type: str = ""
    charset: str = ""
    uri: str = ""


@dataclass(frozen=True)
class ParsedDocument:
    """A document, read.

    Args:
        title: its own, or its name without the ending.
        passages: in reading order; never empty.
        content_hash: SHA-256 of its bytes, hexadecimal.
        media_type: what it turned out to be.
        warnings: sentences about what may have been lost.
        uri: where it came from; empty for bytes from nowhere.
    """

    title: str
    passages: tuple[Passage, ...]
    content_hash: str
    media_type: str
    warnings: tuple[str, ...] = ()
    uri: str = ""


@dataclass(frozen=True)
class ParseLimits:
    """How much one document may cost.

    Args:
        document_bytes: of the file, or of what an address sends.
        unpacked_bytes: of a docx when unpacked; a zip bomb has more.
        characters: of text; what comes after is left out, with a warning.
        pages: of a PDF; what comes after is left out, with a warning.
        seconds: for one parse, then it is ended.
        memory_bytes: address space of the process that parses.
    """

    document_bytes: int = 50 * MEGABYTE
    unpacked_bytes: int = 200 * MEGABYTE
    characters: int = 20_000_000
    pages: int = 5_000
    seconds: float = 120.0
    memory_bytes: int = 2_000 * MEGABYTE


class DocumentBuilder:
    """A document while it is read from top to bottom.

    Attributes:
        passages: what was read so far; whole after ``finish``.
        title: the first heading of the highest level, empty when there is none.
    """

    def __init__(self) -> None:
        self.passages: list[Passage] = []
        self.title = ""
        self._levels: list[tuple[int, str]] = []
        self._empty_heading: Passage | None = None

    def heading(self, level: int, text: str, page: int | None = None) -> None:
        """A heading begins; those of its level and below it have ended."""
        text = " ".join(text.split())
        if self._empty_heading and self._levels and level <= self._levels[-1][0]:
            self.passages.append(self._empty_heading)
        self._empty_heading = None
        while self._levels and self._levels[-1][0] >= level:
            self._levels.pop()
        if text:
            self._empty_heading = Passage(text, self._path, page)
            self._levels.append((level, text))
            if level == 1 and not self.title:
                self.title = text

    def add(self, text: str, page: int | None = None, *, is_atomic: bool = False) -> None:
        """What stands below the headings so far; nothing when it is blank."""
        text = text.strip("\n")
        if text.strip():
            self._empty_heading = None
            self.passages.append(Passage(text if is_atomic else text.strip(), self._path, page, is_atomic))

    def finish(self) -> list[Passage]:
        """Everything, in order."""
        if self._empty_heading:
            self.passages.append(self._empty_heading)
            self._empty_heading = None
        return self.passages

    @property
    def _path(self) -> tuple[str, ...]:
        return tuple(text for _, text in self._levels)


CELL = " | "


def table_text(rows: Iterable[Sequence[str]]) -> str:
    """The rows as lines; empty rows are left out, line breaks inside cells become spaces."""
    lines: list[str] = []
    for row in rows:
        cells = [" ".join(cell.split()) for cell in row]
        while cells and not cells[-1]:
            cells.pop()
        if cells:
            lines.append(CELL.join(cells))
    return "\n".join(lines)


def is_table(text: str) -> bool:
    """Whether a whole passage is a table, not code."""
    return CELL in text.partition("\n")[0]
