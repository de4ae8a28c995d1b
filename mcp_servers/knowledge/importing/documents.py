"""Values of an import, the builder for passages under headings, and the text form of tables.

A table is one atomic passage: a line per row, cells separated by `` | ``. Its first lines are its title and header.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from mcp_servers.knowledge.types import MAX_CHARACTERS, MAX_PASSAGES, Passage

# done, total, description; awaited, because it may send a message.
Progress = Callable[[int, int, str], Awaitable[None]]

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Blob:
    """The bytes of a document and their description."""

    content: bytes
    name: str  # file name or last part of the URL; its extension is used if the bytes are ambiguous
    media_type: str = ""  # from the sender, e.g. text/html; empty if unknown
    charset: str = ""  # from the sender; empty if unknown
    uri: str = ""  # empty for bytes without a source


@dataclass(frozen=True)
class ParsedDocument:
    """A parsed document."""

    title: str  # its own, or its name without extension
    passages: tuple[Passage, ...]  # in reading order; never empty
    content_hash: str  # SHA-256 of the bytes, hexadecimal
    media_type: str  # detected
    warnings: tuple[str, ...] = ()  # sentences about possible losses
    uri: str = ""


@dataclass(frozen=True)
class ParseLimits:
    """Limits for one document."""

    document_bytes: int = 50 * MEGABYTE  # of the file or HTTP response
    unpacked_bytes: int = 200 * MEGABYTE  # of a docx; protects against zip bombs
    characters: int = MAX_CHARACTERS  # with their headings; the rest is omitted with a warning
    passages: int = MAX_PASSAGES  # the rest is omitted with a warning
    pages: int = 5_000  # of a PDF; the rest is omitted with a warning
    seconds: float = 120.0  # for parsing the largest document; smaller ones get less
    memory_bytes: int | None = None  # address space of the parser process; None: a share of the available memory
    include_hidden: bool = False  # also sheets, rows, slides, layers and text that the document's author hid


_MAX_NAMED = 5


@dataclass
class HiddenParts:
    """The parts of one document that its author hid, which are left out unless ``is_included``."""

    is_included: bool
    names: dict[str, None] = field(default_factory=dict[str, None])

    def leaves_out(self, name: str) -> bool:
        """Return True for a part that is not to be read; the warning names it."""
        self.names[name] = None
        return not self.is_included

    @property
    def reason(self) -> str:
        """Why a document has no text, if parts of it were left out; otherwise empty."""
        if not self.names or self.is_included:
            return ""
        return f"what it has is hidden (include_hidden reads it): {some_names(list(self.names))}"

    def warnings(self) -> list[str]:
        """Return a sentence with the names of the hidden parts; none without any."""
        if not self.names:
            return []
        outcome = "were read as well" if self.is_included else "were left out (include_hidden reads them)"
        return [f"Parts that are hidden {outcome}: {some_names(list(self.names))}."]


def some_names(names: Sequence[str]) -> str:
    """Return names for a warning, the first of many."""
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more


class DocumentFullError(Exception):
    """A document has more text than is read of one; the builder has what came before."""


# Deeper headings are those of this level; longer ones are cut, and their whole text follows.
_MAX_LEVEL, _MAX_HEADING = 10, 300


class DocumentBuilder:
    """Collects headings and text in reading order into passages.

    ``title`` is the first level-1 heading. A heading without text below it becomes a passage, so that searches find it.
    ``passages`` is complete after ``finish``. More than is read of one document raises DocumentFullError, which the
    functions that read a format suppress. ``hidden`` is asked about each part that is hidden.
    """

    def __init__(self, *, include_hidden: bool = False) -> None:
        self.hidden = HiddenParts(is_included=include_hidden)
        self.passages: list[Passage] = []
        self.title = ""
        self._parts = self._characters = 0
        self._levels: list[tuple[int, str]] = []
        self._path: tuple[str, ...] = ()  # headings of these levels
        self._empty_heading: Passage | None = None

    def heading(self, level: int, text: str, page: int | None = None) -> None:
        """Begin a section and end those of its level and below."""
        level, line = min(level, _MAX_LEVEL), " ".join(text.split())
        text = line[:_MAX_HEADING]
        self._count(text)
        if self._empty_heading and self._levels and level <= self._levels[-1][0]:
            self.passages.append(self._empty_heading)
        self._empty_heading = None
        while self._levels and self._levels[-1][0] >= level:
            self._levels.pop()
        self._path = tuple(heading for _, heading in self._levels)
        if text:
            self._empty_heading = Passage(text, self._path, page)
            self._levels.append((level, text))
            self._path = (*self._path, text)
            if level == 1 and not self.title:
                self.title = text
        if line != text:
            self.add(line, page)

    def add(self, text: str, page: int | None = None, *, is_atomic: bool = False) -> None:
        """Add text to the current section, unless blank."""
        text = text.strip("\n")
        if text.strip():
            self._empty_heading = None
            self._count(text)
            self.passages.append(Passage(text if is_atomic else text.strip(), self._path, page, is_atomic))

    def add_table(self, rows: Iterable[Sequence[str]], page: int | None = None, head_rows: int = 0) -> None:
        """Add a table to the current section, unless empty; ``head_rows`` is 0 if the header is not marked."""
        table = table_passage(rows, head_rows)
        if table.text:
            self._empty_heading = None
            self._count(table.text)
            self.passages.append(replace(table, headings=self._path, page=page))

    def extend(self, passages: Iterable[Passage], page: int | None = None) -> None:
        """Add passages that another builder made, below the current headings."""
        for passage in passages:
            self._empty_heading = None
            self._count(passage.text + "".join(passage.headings))
            headings = (*self._path, *passage.headings)
            self.passages.append(replace(passage, headings=headings, page=passage.page or page))

    def finish(self) -> list[Passage]:
        """Return all passages."""
        if self._empty_heading:
            self.passages.append(self._empty_heading)
            self._empty_heading = None
        return self.passages

    def _count(self, text: str) -> None:
        # Raised before the part that is too much is added, except for the first, which is cut later.
        self._parts += 1
        self._characters += len(text) + sum(len(heading) for _, heading in self._levels)
        if self._parts > 2 * MAX_PASSAGES or (self.passages and self._characters > 2 * MAX_CHARACTERS):
            raise DocumentFullError


CELL = " | "
_MAX_COLUMNS = 1_000
# A table's title, subtitle and date are above its header.
_MAX_HEAD, _EXAMINED_ROWS = 6, 20


class Cell(NamedTuple):
    """A cell and the number of rows and columns that it covers."""

    text: str
    rows: int = 1
    columns: int = 1


# Longer text in a cell over several others is no label of each of them, but a paragraph, and is written once.
_MAX_LABEL = 200


def label_of(text: str) -> str:
    """Return the text that a cell gives to the other cells that it covers."""
    return text if len(text) <= _MAX_LABEL else ""


def expand_spans(rows: Iterable[Iterable[Cell]]) -> Iterator[list[str]]:
    """Yield rows with the value of a cell in each column and row that it covers.

    A cell that covers its whole row, as a title does, is written once, and so is one with a paragraph.
    """
    # The cells of the rows above that cover the current row: column -> remaining rows and text.
    above: dict[int, tuple[int, str]] = {}
    for row in rows:
        texts: list[str] = []
        below: dict[int, tuple[int, str]] = {}
        cells = list(islice(row, _MAX_COLUMNS))
        is_title = len(cells) == 1 and cells[0].rows == 1 and not above
        for cell in cells:
            _fill(texts, above, below)
            columns = 1 if is_title else min(cell.columns, _MAX_COLUMNS - len(texts))
            for at in range(columns):
                if cell.rows > 1:
                    below[len(texts)] = (cell.rows - 1, label_of(cell.text))
                texts.append(label_of(cell.text) if at else cell.text)
        _fill(texts, above, below)
        # Those at the right of the last cell.
        for column in sorted(at for at in above if at > len(texts)):
            texts += [""] * (column - len(texts))
            _fill(texts, above, below)
        above = below
        yield texts


def _fill(texts: list[str], above: dict[int, tuple[int, str]], below: dict[int, tuple[int, str]]) -> None:
    """Append the cells from above that come next in a row; those that go on cover the row below as well."""
    while (column := len(texts)) in above:
        rows, text = above[column]
        if rows > 1:
            below[column] = (rows - 1, text)
        texts.append(text)


def table_passage(rows: Iterable[Sequence[str]], head_rows: int = 0) -> Passage:
    """Return a table as a passage, a line per row, with no text for an empty one.

    Empty rows are left out, and line breaks in cells replaced by spaces. Cells after the 1,000th of a row are joined;
    rows that make the table larger than a document may be are left out. ``head_rows`` is 0 if the header is not marked.
    """
    lines: list[str] = []
    characters = 0
    for row in rows:
        cells = [" ".join(cell.split()) for cell in islice(row, _MAX_COLUMNS)]
        cells += filter(None, [" ".join(" ".join(row[_MAX_COLUMNS:]).split())])
        while cells and not cells[-1]:
            cells.pop()
        if cells:
            lines.append(CELL.join(cells))
            characters += len(lines[-1])
        if characters > MAX_CHARACTERS:
            break
    # Where it is not marked, the header has at least half as many cells as the widest row.
    counts = [sum(bool(cell.strip()) for cell in line.split(CELL)) for line in lines[:_EXAMINED_ROWS]]
    widest = max(counts, default=0)
    if not head_rows and widest > 1:
        wide = (at for at, count in enumerate(counts[:_MAX_HEAD], 1) if count > 1 and count * 2 >= widest)
        head_rows = next(wide, 1)
    return Passage("\n".join(lines), is_atomic=True, head_lines=head_rows)
