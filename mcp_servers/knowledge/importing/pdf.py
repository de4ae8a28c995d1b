"""PDF -> passages: text with positions from PDFium, arranged into reading order.

Rules in order: lines repeated at the edge of many pages are dropped; lines keep the file's order unless it runs
backwards; columns are read one by one, vertical Japanese from right to left; bookmarks, or else larger type,
are headings; a line that fills its column continues in the next; a sentence belongs to the page on which it begins.

PDFium is C++ and PDFs are untrusted: call this in the parser process only.
"""

from __future__ import annotations

import ctypes
import re
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, islice, pairwise, product
from statistics import median, median_low
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from mcp_servers.knowledge.errors import (
    DamagedDocumentError,
    EncryptedDocumentError,
    NoTextError,
    PicturesOnlyError,
)
from mcp_servers.knowledge.importing.documents import (
    CELL,
    Blob,
    DocumentBuilder,
    DocumentFullError,
    HiddenParts,
    ParseLimits,
    some_names,
)
from mcp_servers.knowledge.importing.equations import raised_mark
from mcp_servers.knowledge.importing.pdf_layers import Layers, find_layers, hide_layers
from mcp_servers.knowledge.importing.plain_text import (
    SOFT_HYPHENS,
    ends_sentence,
    is_cjk,
    is_list_item,
    join,
    join_lines,
    read_plain,
)
from mcp_servers.knowledge.importing.recognition import languages, recognize
from mcp_servers.knowledge.types import Passage

Direction = Literal["right", "left", "up", "down"]
# Passages and warnings of a file in the document.
ReadAttachment: TypeAlias = Callable[[Blob, ParseLimits], tuple[list[Passage], tuple[str, ...]]]
# Left, bottom, right, top.
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Line:
    """A line of a page; positions in points from the lower left corner."""

    text: str
    left: float
    bottom: float
    right: float
    top: float
    size: float  # of the type
    direction: Direction = "right"  # "down" also for vertical Japanese


@dataclass(frozen=True)
class Page:
    """A page with its number from 1 and its lines in file order."""

    number: int
    lines: tuple[Line, ...]
    is_unreadable: bool = False  # its fonts do not say which characters they show; no lines
    recognized: str = ""  # text of the picture of a page without lines
    notes: tuple[str, ...] = ()  # comments attached to places of the page
    is_blank: bool = False
    is_picture: bool = False  # next to its few lines: a scan with a running line


@dataclass(frozen=True)
class Bookmark:
    """An outline entry; level and page from 1."""

    level: int
    title: str
    page: int


# A running line is at the edge of at least this many pages and this share of them.
_REPEATS, _REPEATING_PART = 3, 0.3
_EDGE_PART = 0.08
_RUNNING_CHARACTERS = 200
_NUMBER = re.compile(r"(?<!\d)\d{1,6}(?!\d)")
_ROMAN = re.compile(r"[ivxl]+(?=\W*$)")
# A heading is short and larger than the body's type by this factor.
_HEADING_RATIO = 1.2
_HEADING_CHARACTERS = 80
_HEADING_LEVELS = 3
# Maximum length moved to the page on which a sentence begins.
_CARRIED_CHARACTERS = 300
_FIRST_SENTENCE = re.compile(r".*?(?:[。．！？]|[!?.](?![\w.]))[」』）)”’]*", re.DOTALL)
# Lines of a paragraph whose distances are compared.
_STEPS = 50
# Shorter adjacent pieces are table cells, longer ones lines of columns.
_CELL_CHARACTERS = 15
_MIN_SIDE_BY_SIDE = 3
# Space between letters and words of one line; cells are further apart.
_LETTER_GAP_EMS, _WORD_GAP_EMS = 0.1, 0.35
# Type of one size differs by less.
_EQUAL_SIZE = 0.25
# Letters of a line do not have such a space between them from top to bottom.
_LINE_GAP_EMS = 0.5
# Rows of one table are at most this far apart.
_ROW_EMS = 3.5


def layout_passages(pages: Sequence[Page], bookmarks: Sequence[Bookmark] = ()) -> list[Passage]:
    """Return the passages of a document, page by page."""
    pages = [replace(page, lines=tuple(_in_reading_order(page.lines))) for page in _without_running_lines(pages)]
    headings = _headings_of_bookmarks(pages, bookmarks) if len(bookmarks) > 1 else _by_size(pages)
    builder = DocumentBuilder()
    with suppress(DocumentFullError):
        for page in pages:
            paragraph: list[Line] = []
            for level, text in headings.get((page.number, -1), ()):
                builder.heading(level, text, page.number)
            for number, line in enumerate(page.lines):
                headings_here = headings.get((page.number, number), ())
                if paragraph and (headings_here or not _continues(paragraph, line, page.lines, number)):
                    builder.add(join_lines(part.text for part in paragraph), page.number)
                    paragraph = []
                for level, text in headings_here:
                    builder.heading(level, text, page.number)
                if not headings_here:
                    paragraph.append(line)
            builder.add(join_lines(part.text for part in paragraph), page.number)
    return _with_whole_sentences(builder.finish())


def line_between(text: str, first: Box, last: Box) -> Line:
    """Return a line from the boxes of its first and last character."""
    across, up = last[0] + last[2] - first[0] - first[2], last[1] + last[3] - first[1] - first[3]
    direction: Direction = (
        "right" if across >= abs(up) else "left" if -across >= abs(up) else "up" if up > 0 else "down"
    )
    low, high = (1, 3) if direction in {"right", "left"} else (0, 2)
    # Box heights differ between fonts of one size; the smaller end is more accurate.
    size = min(first[high] - first[low], last[high] - last[low])
    left, bottom = min(first[0], last[0]), min(first[1], last[1])
    return Line(text, left, bottom, max(first[2], last[2]), max(first[3], last[3]), size, direction)


def _without_running_lines(pages: Sequence[Page]) -> list[Page]:
    """Return the pages without headers, footers and page numbers."""
    lines = [line for page in pages for line in page.lines]
    if len(pages) < _REPEATS or not lines:
        return list(pages)
    bottom, top = min(line.bottom for line in lines), max(line.top for line in lines)
    margin = (top - bottom) * _EDGE_PART
    keys_by_page: list[dict[Line, set[str]]] = []
    for page in pages:
        at_edge = (line for line in page.lines if line.top > top - margin or line.bottom < bottom + margin)
        # The forms in which a line may recur: as it is, and with one number that counts the pages, by two in a scan of
        # two pages at a time. Other numbers are what the line says: a total is not a page number.
        keys_of_lines: dict[Line, set[str]] = {}
        for line in at_edge:
            text = _ROMAN.sub("#", "".join(line.text.split()).lower())
            keys = keys_of_lines[line] = {text}
            if len(text) <= _RUNNING_CHARACTERS:
                for number, step in product(_NUMBER.finditer(text), (1, 2)):
                    place = f"#{int(number[0]) - step * page.number}/{step}"
                    keys.add(f"{text[: number.start()]}{place}{text[number.end() :]}")
        keys_by_page.append(keys_of_lines)
    counts = Counter(key for of_page in keys_by_page for key in frozenset[str]().union(*of_page.values()))
    running = {key for key, count in counts.items() if count >= max(_REPEATS, len(pages) * _REPEATING_PART)}
    without = [
        replace(page, lines=tuple(line for line in page.lines if running.isdisjoint(of_page.get(line, ()))))
        for page, of_page in zip(pages, keys_by_page, strict=True)
    ]
    # A document of nothing else, such as labels or slides with a title each, is read as it is, unless it is a scan.
    is_read = any(page.lines for page in without) or any(page.is_picture for page in pages)
    return without if is_read else list(pages)


def _in_reading_order(lines: Sequence[Line]) -> list[Line]:
    if not lines:
        return []
    weights: Counter[Direction] = Counter()
    for line in lines:
        weights[line.direction] += len(line.text)
    direction = weights.most_common(1)[0][0]
    # As on a page rotated until its text runs to the right. The right edge of vertical Japanese becomes the top.
    match direction:
        case "down":
            lines = [
                replace(line, left=-line.top, bottom=line.left, right=-line.bottom, top=line.right) for line in lines
            ]
        case "up":
            lines = [
                replace(line, left=line.bottom, bottom=-line.right, right=line.top, top=-line.left) for line in lines
            ]
        case "left":
            lines = [
                replace(line, left=-line.right, bottom=-line.top, right=-line.left, top=-line.bottom) for line in lines
            ]
        case "right":
            pass
    backwards = sum(1 for a, b in pairwise(lines) if b.bottom >= a.top - 1 and _overlap(a, b))
    is_jumbled = backwards > max(2, len(lines) * 0.15)
    ordered = _sort_by_columns(lines) if direction == "down" or is_jumbled or _are_columns(lines) else lines
    by_row: list[Line] = []
    for is_short, group in groupby(ordered, key=lambda line: len(line.text) < _CELL_CHARACTERS):
        run = list(group)
        tops = [b for a, b in pairwise(run) if b.left > a.left and b.bottom > a.top]
        is_table = is_short and bool(tops) and median(len(line.text) for line in run) <= _CELL_CHARACTERS / 2
        # The cells of a table that is written column by column come row by row: every column begins next to a cell of
        # the first one.
        if is_table and all(any(_is_beside(line, top) for line in run) for top in tops):
            cells: list[list[Line]] = []
            for line in sorted(run, key=lambda line: -line.bottom):
                if cells and cells[-1][0].bottom - line.bottom < line.size * 0.3:
                    cells[-1].append(line)
                else:
                    cells.append([line])
            run = [line for row in cells for line in sorted(row, key=lambda line: line.left)]
        by_row += run
    rows = _with_rows(by_row)
    # From top to bottom if none is next to another one, as where a table is written last.
    stacked = sorted(rows, key=lambda line: -line.top)
    return stacked if all(b.top < a.bottom + a.size * 0.3 for a, b in pairwise(stacked)) else rows


def _are_columns(lines: Sequence[Line], *, is_column: bool = False) -> bool:
    """True for long lines next to each other: columns written line by line.

    With ``is_column``, where the lines are those of one already, both sides are long: labels stay with their texts.
    """
    pairs = [(a, b) for a, b in pairwise(lines) if _is_beside(a, b)]
    if len(pairs) < _MIN_SIDE_BY_SIDE:
        return False
    left, right = median_low(len(line.text) for line, _ in pairs), median(len(line.text) for _, line in pairs)
    return (min(left, right) if is_column else right) >= _CELL_CHARACTERS and _gutter(lines) is not None


def _is_beside(a: Line, b: Line) -> bool:
    return abs(a.bottom - b.bottom) < a.size * 0.3 and b.left > a.right


def _touches(a: Line, b: Line) -> bool:
    """True for pieces of one line between which there is no space, such as letters that are drawn one by one."""
    gap = a.size * _LETTER_GAP_EMS
    is_equal = abs(a.top - b.top) < gap or abs(a.size - b.size) < a.size * _EQUAL_SIZE
    return is_equal and abs(a.bottom - b.bottom) < gap and abs(b.left - a.right) <= gap


def _with_rows(lines: Iterable[Line]) -> list[Line]:
    """Join the cells of each table row into one line; rows of one table share their columns."""
    rows: list[list[Line]] = []
    for line in lines:
        if rows:
            before = rows[-1][-1]
            is_small = len(line.text) <= _INDEX_CHARACTERS and line.size < before.size * _RAISED_SIZE
            is_next = abs(line.left - before.right) < before.size * _LETTER_GAP_EMS
            # A few raised or lowered letters at the end of a line, which PDFium takes for a line.
            if is_small and is_next and before.bottom < line.top and line.bottom < before.top:
                mark = raised_mark(line.text, before.text[-1:], is_lowered=line.bottom < before.bottom)
                rows[-1][-1] = replace(before, text=f"{before.text}{mark}{line.text}", right=line.right)
                continue
        # The cell before it may have several lines.
        neighbours = [row for row in rows[-3:] if _is_beside(row[-1], line) or _touches(row[-1], line)]
        if neighbours and line.left - neighbours[-1][-1].right < line.size * _WORD_GAP_EMS:
            # A line is divided after a raised digit.
            before = neighbours[-1][-1]
            gap = " " if line.left - before.right > line.size * _LETTER_GAP_EMS else ""
            neighbours[-1][-1] = replace(before, text=f"{before.text}{gap}{line.text}", right=line.right)
        elif neighbours and len(line.text) < _CELL_CHARACTERS * 3:
            neighbours[-1].append(line)
        else:
            rows.append([line])
    tables: list[list[list[Line]]] = []
    for row in rows:
        above = tables[-1][-1] if tables else row
        is_near = 0 < above[0].top - row[0].top < above[0].size * _ROW_EMS
        # A row of one cell is part of a table only below or above a single cell.
        short, other = sorted((above, row), key=len)
        is_cell = len(short) > 1 or sum(_overlap(short[0], cell) for cell in other) < min(len(other), 2)
        if is_near and is_cell and len(other) > 1:
            tables[-1].append(row)
        else:
            tables.append([row])
    lines_of_tables: list[Line] = []
    for table in tables:
        # A line per row, with an empty cell for each column that a row lacks.
        columns: list[tuple[float, float]] = []
        for left, right in sorted((cell.left, cell.right) for row in table if len(row) > 1 for cell in row):
            if columns and left < columns[-1][1]:
                columns[-1] = (columns[-1][0], max(columns[-1][1], right))
            else:
                columns.append((left, right))
        # A cell across columns would merge them.
        is_grid = len(table) > 1 and len(columns) >= max(map(len, table)) > 1
        for row in table:
            cells = [cell.text for cell in row]
            by_column: dict[int, str] = {}
            if is_grid:
                by_column = {max(sum(cell.left >= left for left, _ in columns), 1): cell.text for cell in row}
            if len(by_column) == len(row):
                cells = [by_column.get(number, "") for number in range(1, max(by_column) + 1)]
            lines_of_tables.append(replace(row[0], text=CELL.join(cells), right=row[-1].right))
    return lines_of_tables


def _overlap(a: Line, b: Line) -> bool:
    return a.left < b.right and b.left < a.right


def _sort_by_columns(lines: Sequence[Line]) -> list[Line]:
    """Order lines from top to bottom, and by column between full-width lines."""
    ordered = sorted(lines, key=lambda line: (-round(line.top), line.left))
    gutter = _gutter(ordered)
    if gutter is None:
        return ordered
    result: list[Line] = []
    columns: tuple[list[Line], list[Line]] = ([], [])
    for line in [*ordered, None]:
        if line is None or line.left < gutter < line.right:
            for column in columns:
                # One of them may be two columns, or have lines over two.
                result += _sort_by_columns(column) if _are_columns(column, is_column=True) else column
            result += [line] if line else []
            columns = ([], [])
        else:
            columns[line.left >= gutter].append(line)
    return result


def _gutter(lines: Sequence[Line]) -> float | None:
    """Return the position between two columns, or None."""
    left, right = min(line.left for line in lines), max(line.right for line in lines)
    narrow = [line for line in lines if line.right - line.left < (right - left) * 0.6]
    if len(narrow) < max(6, len(lines) * 0.6):
        return None
    for candidate in sorted({line.left for line in narrow}):
        gap = candidate - 1
        before = sum(1 for line in narrow if line.right <= gap)
        after = sum(1 for line in narrow if line.left >= gap)
        if before + after == len(narrow) and min(before, after) >= 3:
            return gap
    return None


def _headings_of_bookmarks(
    pages: Sequence[Page], bookmarks: Sequence[Bookmark]
) -> dict[tuple[int, int], list[tuple[int, str]]]:
    """Return headings by page and line; line -1 if the page does not contain the bookmark's title."""
    lines = {page.number: ["".join(line.text.split()).lower() for line in page.lines] for page in pages}
    headings: dict[tuple[int, int], list[tuple[int, str]]] = {}
    for bookmark in bookmarks:
        title = "".join(bookmark.title.split()).lower()
        texts = lines.get(bookmark.page, [])
        index = next((n for n, text in enumerate(texts) if text == title), None)
        if index is None:
            # A chapter number may be in one of the two only.
            ends = (n for n, text in enumerate(texts) if len(text) < len(title) + 8 and text.endswith(title))
            index = next(ends, -1)
        headings.setdefault((bookmark.page, index), []).append((bookmark.level, bookmark.title))
    return headings


def _by_size(pages: Sequence[Page]) -> dict[tuple[int, int], list[tuple[int, str]]]:
    """Return short lines in larger type as headings, unless they are signs only, as of a large integral."""
    lines = [
        (page.number, number, line.text, round(line.size * 2) / 2)
        for page in pages
        for number, line in enumerate(page.lines)
    ]
    sizes: Counter[float] = Counter()
    for _, _, text, size in lines:
        sizes[size] += len(text)
    if not sizes:
        return {}
    body = sizes.most_common(1)[0][0]
    larger = sorted((size for size in sizes if size >= body * _HEADING_RATIO), reverse=True)[:_HEADING_LEVELS]
    return {
        (page, number): [(larger.index(size) + 1, text)]
        for page, number, text, size in lines
        if size in larger
        and len(text) <= _HEADING_CHARACTERS
        and not text.endswith("。")
        and any(map(str.isalnum, text))
    }


def _continues(paragraph: Sequence[Line], line: Line, lines: Sequence[Line], number: int) -> bool:
    before = paragraph[-1]
    if is_list_item(line.text) or abs(line.size - before.size) > before.size * _EQUAL_SIZE:
        return False
    if CELL in before.text or CELL in line.text:
        return False
    em = before.size
    neighbours = [line_near for line_near in lines[max(0, number - 6) : number + 6] if _overlap(line_near, before)]
    # A line of combining marks has no width, and is not a neighbour of itself.
    edge = max((line_near.right for line_near in neighbours), default=before.right)
    # Japanese lines are full to the last character, Latin lines to the last word that fits.
    slack = em * 2 if is_cjk(before.text[-1]) else max(em * 4, (edge - before.left) * 0.2)
    if before.right < edge - slack:
        return False
    if not _overlap(before, line) or line.bottom > before.top:
        return not ends_sentence(before.text)
    step = before.top - line.top
    usual = median([a.top - b.top for a, b in pairwise(paragraph[-_STEPS:])] or [step])
    is_indented = (
        line.left > before.left + em * 0.7 and line.left > min(line_near.left for line_near in neighbours) + em * 0.7
    )
    return step <= em * 2.3 and step <= usual * 1.35 and not is_indented


def _with_whole_sentences(passages: Sequence[Passage]) -> list[Passage]:
    """Move the end of a sentence to the page on which it begins."""
    result: list[Passage] = []
    for passage in passages:
        before = result[-1] if result else None
        begins = passage.text[:1]
        if (
            before
            and before.page is not None
            and passage.page == before.page + 1
            and before.headings == passage.headings
            and not ends_sentence(before.text)
            and not is_list_item(passage.text)
            and (is_cjk(begins) or begins.islower())
        ):
            match = _FIRST_SENTENCE.match(passage.text[:_CARRIED_CHARACTERS])
            end = match.end() if match else 0
            if end:
                result[-1] = replace(before, text=join(before.text, passage.text[:end]))
                passage = replace(passage, text=passage.text[end:].lstrip())
        if passage.text:
            result.append(passage)
    return result


# fpdfview.h: FPDF_ERR_PASSWORD, FPDF_ERR_SECURITY.
_PASSWORD_ERRORS = frozenset({4, 5})
_MAX_BOOKMARKS = 10_000
_MAX_PIXELS = 5_000
# A scan has so few lines of its own, and its picture among so many objects.
_FEW, _EXAMINED_OBJECTS = 4, 50
# Share of unmapped characters above which a page is unreadable, among this many of them.
_UNKNOWN_SHARE, _MAPPED_CHARACTERS = 0.3, 500
_READ_CHARACTERS = 2_000
# A wider gap separates columns or cells.
_GAP_EMS = 1.5
# A narrower one does if this many of the page's gaps end at one place.
_NARROW_GAP_EMS, _EQUAL_GAPS = 0.7, 4
# The bullet or number of an item is so far before its text.
_MARK_GAP_EMS, _BULLET = 3.0, re.compile(r"[^\w\s]")
_MARK = re.compile(r"[^\w\s]|[(（]?(?:[A-Za-z]|[\dA-Z]{1,3}(?:\.\d{1,3}){0,4})[.)）]?")
_MAX_ATTACHMENTS = 100
# Inside or next to letters; alone they are bullets and pictograms.
_PRIVATE_LETTER = re.compile("[\x01\x03-\x08\x0b-\x1f\ue000-\uf8ff]")
_UNKNOWN = _PRIVATE_LETTER.pattern
_PRIVATE = re.compile(f"[A-Za-z]*(?:[A-Za-z]{_UNKNOWN}|{_UNKNOWN}[a-z])(?:[A-Za-z]|{_UNKNOWN})*")
# Kinds of annotations whose contents are a comment.
_NOTES = ("TEXT", "HIGHLIGHT", "UNDERLINE", "SQUIGGLY", "STRIKEOUT", "CARET", "STAMP")
_EMPTY_BYTES = 2
_HIRAGANA_SHARE, _FUNCTION_SHARE = 0.15, 0.08
_FUNCTION_WORDS = frozenset(
    {
        *(
            "the",
            "is",
            "of",
            "and",
            "to",
            "in",
            "on",
            "for",
            "with",
            "are",
            "der",
            "die",
            "das",
            "und",
            "ist",
            "mit",
            "von",
        ),
        *("le", "la", "les", "et", "des", "est", "une", "el", "los", "del", "y", "en", "que", "il", "di", "che", "e"),
        *("da", "um", "do", "os", "het", "een", "van"),
    }
)
_DIGITS = "0123456789"
_MARKED = re.compile(r"\d|(?:^|\s)[a-z][A-Z]")
_MAYBE_RAISED = re.compile(r"(?<=\w)\d|(?P<mark>\d{1,3}(?=[^\W\d_])|(?:(?<=\s)|^)[a-z](?=[A-Z]))")
_RAISED_SIZE, _RAISED_STEP = 0.85, 0.15
_INDEX_CHARACTERS = 3
# Old fonts of TeX have no letters with accents: an accent is drawn, and then the letter below it.
_ACCENTS = dict(
    zip("`´ˆ˜¯˘˙¨˚˝ˇ¸", "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327", strict=True)
)
_ACCENT = re.compile(r"[`´ˆ˜¯˘˙¨˚˝ˇ](?=[^\W\d_])|(?<=[^\W\d_])¸")
_DOTLESS = {"ı": "i", "ȷ": "j"}
# Placeholder titles of authoring programs.
_PLACEHOLDER_TITLES = frozenset({"untitled", "(anonymous)", "anonymous", "(unspecified)", "無題"})
# Export values of a box that say no more than that it is checked.
_PLAIN_VALUES = frozenset({"", "Yes", "On", "1", "yes", "on", "true"})
_MAX_FIELDS, _FIELD_SIZE = 5_000, 12.0
_PROGRAM = re.compile(r"^Microsoft (?:Word|PowerPoint|Excel) - |\.(?:docx?|pptx?|xlsx?|indd|tex|dvi)$", re.IGNORECASE)


def read_pdf(
    blob: Blob, limits: ParseLimits, read_attachment: ReadAttachment | None = None
) -> tuple[str, list[Passage], tuple[str, ...]]:
    """Return title (may be empty), passages and warnings of a PDF; ``read_attachment`` reads the files in it.

    Raises EncryptedDocumentError, DamagedDocumentError, or NoTextError if all pages are images.
    """
    import pypdfium2

    library = cast("Any", pypdfium2)
    try:
        document = library.PdfDocument(blob.content)
    except library.PdfiumError as error:
        if error.err_code in _PASSWORD_ERRORS:
            raise EncryptedDocumentError(blob.name) from error
        raise DamagedDocumentError(blob.name, "no PDF reader can open it") from error
    hidden = HiddenParts(is_included=limits.include_hidden)
    with closing(document):
        count = len(document)
        is_made_by_acrobat = document.get_formtype() == library.raw.FORMTYPE_XFA_FULL
        pages = list(_pages(document, library, limits, find_layers(blob.content), hidden))
        bookmarks: list[Bookmark] = []
        with suppress(library.PdfiumError):
            for bookmark in islice(document.get_toc(), _MAX_BOOKMARKS):
                destination = bookmark.get_dest()
                page_index = destination.get_index() if destination else None
                bookmark_title = " ".join(str(bookmark.get_title()).split())
                if page_index is not None and bookmark_title:
                    bookmarks.append(Bookmark(int(bookmark.level) + 1, bookmark_title, int(page_index) + 1))
        title = _PROGRAM.sub("", " ".join(str(document.get_metadata_dict().get("Title", "")).split()))
        title = "" if title.lower() in _PLACEHOLDER_TITLES else title
        attached: list[tuple[list[Passage], tuple[str, ...]]] = []
        if read_attachment:
            with suppress(library.PdfiumError):
                for number in range(min(document.count_attachments(), _MAX_ATTACHMENTS)):
                    attachment = document.get_attachment(number)
                    name = " ".join(str(attachment.get_name()).split()) or f"attachment {number + 1}"
                    content = b""
                    with suppress(library.PdfiumError):
                        content = bytes(attachment.get_data())
                    attached.append(read_attachment(Blob(content, name), limits))
    passages = layout_passages(pages, bookmarks)
    for page in pages:
        passages += [replace(passage, page=page.number) for passage in read_plain(page.recognized)]
        passages += [Passage(note, page=page.number) for note in page.notes]
    passages.sort(key=lambda passage: passage.page or 0)
    passages += [replace(passage, page=None) for read, _ in attached for passage in read]
    if not passages and hidden.reason:
        raise NoTextError(blob.name, hidden.reason)
    if not passages and any(page.is_unreadable for page in pages):
        raise NoTextError(blob.name, "its fonts do not say which characters they show")
    if not passages and all(page.is_blank for page in pages):
        raise NoTextError(blob.name, "its pages are blank")
    if not passages:
        raise PicturesOnlyError(blob.name, f"its {count} pages are pictures" if count > 1 else "its page is a picture")
    lost = [warning for _, warnings in attached for warning in warnings]
    if is_made_by_acrobat:
        lost.append("It is a form that only Adobe's programs show (XFA): what is in it was not read.")
    return title, passages, (*_warnings(pages, count), *hidden.warnings(), *lost)


def _pages(document: Any, library: Any, limits: ParseLimits, layers: Layers, hidden: HiddenParts) -> Iterator[Page]:
    """Yield the pages, without the text of layers that are switched off unless hidden parts are read."""
    raw = library.raw
    characters, started = 0, time.monotonic()
    form = document.formenv if document.get_formtype() and document.init_forms() else None
    for number in range(min(len(document), limits.pages)):
        try:
            fields = _fields(document, number, form.raw, raw) if form else []
            page = document[number]
            # Before annotations become part of the content, as free text does unless it is of a form.
            notes = tuple(_notes(page, raw, is_form=form is not None))
            has_annotations = form is None and raw.FPDFPage_GetAnnotCount(page.raw) > 0
            if has_annotations and raw.FPDFPage_Flatten(page.raw, 0) == raw.FLATTEN_SUCCESS:
                page.close()
                page = document[number]
            if layers.off:
                hide_layers(page, raw, layers, hidden)
            with closing(page), closing(page.get_textpage()) as text_page:
                is_unreadable = _is_unreadable(text_page, raw)
                lines = () if is_unreadable else tuple(_with_fields(list(_lines(text_page, raw)), fields))
                # Half of the time remains for the other steps.
                left_s = limits.seconds / 2 - (time.monotonic() - started)
                recognized = "" if lines or left_s <= 0 else _recognize_text(page, left_s)
                count = raw.FPDFPage_CountObjects(page.raw)
                items = (raw.FPDFPage_GetObject(page.raw, at) for at in range(min(count, _EXAMINED_OBJECTS)))
                is_picture = len(lines) <= _FEW and raw.FPDF_PAGEOBJ_IMAGE in map(raw.FPDFPageObj_GetType, items)
                read = Page(number + 1, lines, is_unreadable, recognized, notes, count == 0, is_picture)
        except library.PdfiumError:
            # A broken page counts as a page without text.
            read = Page(number + 1, ())
        yield read
        characters += sum(len(line.text) for line in read.lines)
        if characters > limits.characters:
            return


def _notes(page: Any, raw: Any, *, is_form: bool) -> Iterator[str]:
    """Yield the comments of a page, and the free text that does not become part of its content."""
    numbers = {getattr(raw, f"FPDF_ANNOT_{kind}") for kind in _NOTES}
    for at in range(min(raw.FPDFPage_GetAnnotCount(page.raw), _MAX_FIELDS)):
        annotation = raw.FPDFPage_GetAnnot(page.raw, at)
        kind, mode = raw.FPDFAnnot_GetSubtype(annotation), raw.FPDF_ANNOT_APPEARANCEMODE_NORMAL
        # In a form, or where the viewer is to draw it: the length includes the end of the text.
        is_left = is_form or raw.FPDFAnnot_GetAP(annotation, mode, None, 0) <= _EMPTY_BYTES
        if kind in numbers or (kind == raw.FPDF_ANNOT_FREETEXT and is_left):
            note = " ".join(_utf_16(raw.FPDFAnnot_GetStringValue, annotation, b"Contents").split())
            if note:
                yield note
        raw.FPDFPage_CloseAnnot(annotation)


def _fields(document: Any, number: int, form: Any, raw: Any) -> list[Line]:
    """Return the values of the form fields of a page, and a mark for each checked box."""
    lines: list[Line] = []
    with closing(document[number]) as page:
        for at in range(min(raw.FPDFPage_GetAnnotCount(page.raw), _MAX_FIELDS)):
            field = raw.FPDFPage_GetAnnot(page.raw, at)
            kind, box = raw.FPDFAnnot_GetFormFieldType(form, field), raw.FS_RECTF()
            if kind in {raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON}:
                value = _utf_16(raw.FPDFAnnot_GetFormFieldExportValue, form, field)
                text = f"☑ {value if value not in _PLAIN_VALUES else ''}".strip()
                text = text if raw.FPDFAnnot_IsChecked(form, field) else ""
            elif kind in {raw.FPDF_FORMFIELD_TEXTFIELD, raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX}:
                text = _utf_16(raw.FPDFAnnot_GetFormFieldValue, form, field)
            else:
                text = ""
            if text and raw.FPDFAnnot_GetRect(field, box):
                size = min(box.top - box.bottom, _FIELD_SIZE)
                lines.append(Line(" ".join(text.split()), box.left, box.bottom, box.right, box.top, size))
            raw.FPDFPage_CloseAnnot(field)
    return lines


def _with_fields(lines: list[Line], fields: list[Line]) -> list[Line]:
    """Return the lines with each value joined to its label: the nearest text at its left, or at the right of a mark."""
    for field in fields:
        middle, is_mark = (field.bottom + field.top) / 2, field.text.startswith("☑")
        row = [(at, line) for at, line in enumerate(lines) if line.bottom - 2 <= middle <= line.top + 2]
        fields_before = [(field.left - line.left, at) for at, line in row if line.left < field.left]
        right = [(line.left - field.right, at) for at, line in row if line.left >= field.right - 1]
        labels = right or fields_before if is_mark else fields_before
        if not labels:
            lines.append(field)
            continue
        at = min(labels)[1]
        words = (field.text, lines[at].text) if is_mark and right else (lines[at].text, field.text)
        lines[at] = replace(lines[at], text=" ".join(words), right=max(lines[at].right, field.right))
    return lines


def _utf_16(read: Any, *place: Any) -> str:
    """Return a text that a function of PDFium writes into a buffer."""
    size = read(*place, None, 0)
    buffer = ctypes.create_string_buffer(size)
    read(*place, ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), size)
    return buffer.raw[:size].decode("utf-16-le", "replace").strip("\0 ")


def _recognize_text(page: Any, limit_s: float) -> str:
    """Return the text that OCR finds on a page, empty without Tesseract."""
    if not languages():
        return ""
    width, height = page.get_size()
    # 300 dots an inch, and less for posters.
    scale = min(300 / 72, _MAX_PIXELS / max(width, height, 1))
    with closing(page.render(scale=scale, grayscale=True)) as bitmap:
        rows = bytes(bitmap.buffer)
        size = (bitmap.width, bitmap.height)
        lines = (rows[at * bitmap.stride : at * bitmap.stride + size[0]] for at in range(size[1]))
        picture = b"P5 %d %d 255\n" % size + b"".join(lines)
    return recognize(picture, limit_s)


def _is_unreadable(text_page: Any, raw: Any) -> bool:
    """True if most characters are not mapped to Unicode: PDFium gives numbers of glyphs for them."""
    count = text_page.count_chars()
    sample = range(0, count, max(1, count // _MAPPED_CHARACTERS))
    unknown, most = 0, len(sample) * _UNKNOWN_SHARE
    for number, at in enumerate(sample):
        if unknown > most or unknown + len(sample) - number <= most:
            break
        code = raw.FPDFText_GetUnicode(text_page.raw, at)
        is_private = 0xE000 <= code <= 0xF8FF or code == 0xFFFD
        unknown += is_private or raw.FPDFText_HasUnicodeMapError(text_page.raw, at) == 1
    if unknown <= most:
        return False
    # Bitmap fonts of TeX name no glyphs, but their codes are those of the letters: unlike numbers of glyphs, the text
    # has the hiragana or the function words of a language.
    text = str(text_page.get_text_range(0, min(count, _READ_CHARACTERS)))
    visible, words = "".join(text.split()), re.findall(r"[^\W\d_]+", text.lower())
    is_japanese = sum("ぁ" <= character <= "ん" for character in visible) > len(visible) * _HIRAGANA_SHARE
    usual = sum(word in _FUNCTION_WORDS for word in words)
    return not is_japanese and usual <= max(1, len(words) * _FUNCTION_SHARE)


def _lines(text_page: Any, raw: Any) -> Iterator[Line]:
    page, rectangle = text_page.raw, raw.FS_RECTF()

    def box_on_page(text_index: int) -> Box:
        index = raw.FPDFText_GetCharIndexFromTextIndex(page, text_index)
        raw.FPDFText_GetLooseCharBox(page, max(0, index), rectangle)
        return rectangle.left, rectangle.bottom, rectangle.right, rectangle.top

    def box(at: int) -> Box:
        return box_on_page(units[indices[at]])

    drawn: str = text_page.get_text_range()
    # PDFium counts a letter beyond 16 bits as two.
    units = list(accumulate((1 + (letter > "\uffff") for letter in drawn), initial=0))
    # A letter and the accent drawn over it become one; the other letters keep their places.
    composed_at: dict[int, str] = {}
    accents: set[int] = set()
    for match in _ACCENT.finditer(drawn):
        accent = match.start()
        letter = accent - 1 if match[0] == "¸" else accent + 1
        composed = unicodedata.normalize("NFC", _DOTLESS.get(drawn[letter], drawn[letter]) + _ACCENTS[match[0]])
        left, _, right, _ = box_on_page(units[accent])
        middle = (left + right) / 2
        left, _, right, _ = box_on_page(units[letter])
        if len(composed) == 1 and left <= middle <= right:
            composed_at[letter] = composed
            accents.add(accent)
    indices: Sequence[int] = range(len(drawn))
    text = drawn
    if accents:
        indices = [index for index in indices if index not in accents]
        text = "".join(composed_at.get(index, drawn[index]) for index in indices)
    rows: list[tuple[Line, str, int, list[_Gap]]] = []
    for first, stripped in _drawn_lines(text, box):
        line = _piece(box, stripped, first)
        # The spaces that may separate columns or cells, which PDFium joins.
        gaps: list[_Gap] = []
        for space in re.finditer(" ", line.text) if line.direction == "right" else ():
            at = space.start()
            right = box(first + at + 1)[0]
            ems = (right - box(first + at - 1)[2]) / max(line.size, 1)
            if ems > _NARROW_GAP_EMS:
                gaps.append(_Gap(at, right, ems))
        rows.append((line, stripped, first, gaps))
    ends = Counter(round(gap.right) for *_, gaps in rows for gap in gaps)
    for line, stripped, first, gaps in rows:
        # A narrower gap separates columns if gaps of other lines end where it ends.
        spaces = [
            gap.at
            for gap in gaps
            if gap.ems > _GAP_EMS
            or (
                _CELL_CHARACTERS <= gap.at < len(stripped) - _CELL_CHARACTERS
                and sum(ends[round(gap.right) + near] for near in (-1, 0, 1)) >= _EQUAL_GAPS
            )
        ]
        if gaps and gaps[0].ems < _MARK_GAP_EMS and (_BULLET if gaps[1:] else _MARK).fullmatch(stripped[: gaps[0].at]):
            spaces = [space for space in spaces if space != gaps[0].at]
        yield from _parts(box, line, stripped, first, spaces)


def _drawn_lines(text: str, box: Callable[[int], Box]) -> Iterator[tuple[int, str]]:
    """Yield each line and where it begins; where letters are drawn one by one, PDFium joins some to the next line."""
    start = 0
    for piece in text.split("\r\n"):
        begin, end = start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
        start += len(piece) + 2
        if begin >= end:
            continue
        (_, above, _, top), (_, below, _, _) = box(begin), box(end - 1)
        if abs(above - below) > (top - above) * _LINE_GAP_EMS:
            for at in range(begin + 1, end):
                (_, above, _, top), (_, _, _, below) = box(at - 1), box(at)
                is_below = above - below > (top - above) * _LINE_GAP_EMS
                # A word that is divided at the end of a line is one.
                if is_below and not text[at].isspace() and text[at - 1] not in SOFT_HYPHENS:
                    yield begin, text[begin:at].rstrip()
                    begin = at
        yield begin, text[begin:end]


class _Gap(NamedTuple):
    """A wide space in a line."""

    at: int  # its index in the text
    right: float
    ems: float  # its width


def _parts(box: Callable[[int], Box], line: Line, text: str, start: int, spaces: Sequence[int]) -> Iterator[Line]:
    """Divide a line at some of its spaces."""
    if line.direction != "right":
        yield line
        return
    if not spaces:
        yield replace(line, text=_with_raised(box, text, start))
        return
    begin = 0
    for space in spaces:
        if text[begin:space].strip():
            part = _piece(box, text[begin:space], start + begin)
            yield replace(part, text=_with_raised(box, part.text, start + begin))
            begin = space + 1
    part = _piece(box, text[begin:], start + begin)
    yield replace(part, text=_with_raised(box, part.text, start + begin))


def _with_raised(box: Callable[[int], Box], text: str, start: int) -> str:
    """Return a piece of a line with ``^`` before raised digits after a word, and a space after marks before one."""
    if not _MARKED.search(text):
        return text
    parts, begin = list[str](), 0
    for match in _MAYBE_RAISED.finditer(text):
        # The last sign of the mark before a note is raised next to the first letter of the note.
        mark, end = match["mark"], match.end() if match["mark"] else match.start()
        raised, normal = (end - 1, end) if mark else (end, end - 1)
        if _is_raised(box(start + raised), box(start + normal)):
            parts += [text[begin:end], " " if mark else "^"]
            begin = end
    return "".join([*parts, text[begin:]])


def _is_raised(raised: Box, normal: Box) -> bool:
    height = normal[3] - normal[1]
    return raised[3] - raised[1] < height * _RAISED_SIZE and raised[1] > normal[1] + height * _RAISED_STEP


def _piece(box: Callable[[int], Box], text: str, start: int) -> Line:
    """Return the line from a character on; its size is that of the letters between raised marks at its ends."""
    line = line_between(text, box(start), box(start + len(text) - 1))
    letters = text.strip(_DIGITS)
    if line.direction != "right" or not letters or len(letters) == len(text):
        return line
    first = start + text.index(letters)
    last = first + len(letters) - 1
    is_begin = first > start and _is_raised(box(first - 1), box(first))
    is_end = last < start + len(text) - 1 and _is_raised(box(last + 1), box(last))
    if not (is_begin or is_end):
        return line
    inner = line_between(text, box(first if is_begin else start), box(last if is_end else start + len(text) - 1))
    return replace(line, bottom=inner.bottom, top=inner.top, size=inner.size)


def _warnings(pages: list[Page], count: int) -> Iterator[str]:
    recognized = [page.number for page in pages if page.recognized]
    if recognized:
        yield f"The text of {_pages_text(recognized, count)} was recognised by OCR."
    unreadable = [page.number for page in pages if page.is_unreadable and not page.recognized]
    if unreadable:
        yield f"The fonts of {_pages_text(unreadable, count)} do not say which characters they show: not read."
    with_text = {page.number for page in pages if page.lines or page.is_unreadable or page.recognized}
    empty = [page.number for page in pages if page.number not in with_text and not page.is_blank]
    if empty:
        yield f"No text on {_pages_text(empty, count)}: pictures are not read."
    # Letters for which a font has its own number, mostly ligatures: words with them are not found. The number may be
    # that of a control character, as in old fonts of TeX.
    lines = (line.text for page in pages for line in page.lines if not line.text.isprintable())
    words = dict.fromkeys(word for text in lines for word in _PRIVATE.findall(text))
    if words:
        examples = some_names([_PRIVATE_LETTER.sub("\ufffd", word) for word in words])
        yield f"Some words have characters that only their font knows, such as ligatures: {examples}."
    if len(pages) < count:
        yield f"Only the first {len(pages)} of {count} pages were read."


def _pages_text(numbers: Sequence[int], count: int) -> str:
    page_numbers = ", ".join(map(str, numbers[:10])) + (", …" if len(numbers) > 10 else "")
    return f"{len(numbers)} of {count} pages ({page_numbers})"
