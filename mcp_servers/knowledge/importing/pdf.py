"""A PDF -> its pages as lines with their places, by PDFium; ``pdf_layout`` makes text of them.

PDFium is C++ and PDFs come from anywhere: this module is meant to be called in a process of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, cast

from mcp_servers.knowledge.importing.documents import Blob, ReadingLimits
from mcp_servers.knowledge.importing.joining import is_cjk
from mcp_servers.knowledge.importing.pdf_layout import Bookmark, Box, Line, Page, arranged, line_between
from mcp_servers.knowledge.importing.problems import DamagedDocumentError, EncryptedDocumentError, NoTextError
from mcp_servers.knowledge.problems import MissingExtraError
from mcp_servers.knowledge.values import Passage

# fpdfview.h: FPDF_ERR_PASSWORD, FPDF_ERR_SECURITY.
_LOCKED = frozenset({4, 5})
_MOST_BOOKMARKS = 10_000
# What fonts without a table of their characters come out as.
_UNKNOWN_SHARE = 0.3
# A wider gap inside a line parts columns or cells.
_GAP_EMS = 1.5
# Titles that programs put in when nobody gave one.
_NO_TITLES = frozenset({"untitled", "(anonymous)", "anonymous", "(unspecified)", "無題"})
_PROGRAM = re.compile(r"^Microsoft (?:Word|PowerPoint|Excel) - |\.(?:docx?|pptx?|xlsx?|indd|tex|dvi)$", re.IGNORECASE)


@dataclass(frozen=True)
class PdfText:
    """What a PDF says.

    Args:
        title: from its properties; empty when it has none.
        passages: page by page.
        warnings: sentences about what may have been lost.
    """

    title: str
    passages: list[Passage]
    warnings: tuple[str, ...]


def read_pdf(blob: Blob, limits: ReadingLimits) -> PdfText:
    """Read a PDF.

    Raises:
        MissingExtraError: pypdfium2 is not installed.
        EncryptedDocumentError: it opens with a password only.
        DamagedDocumentError: PDFium cannot open it.
        NoTextError: its pages are pictures.
    """
    try:
        import pypdfium2
    except ImportError as error:
        raise MissingExtraError("Reading PDF", "pypdfium2") from error
    library = cast("Any", pypdfium2)
    try:
        document = library.PdfDocument(blob.content)
    except library.PdfiumError as error:
        if error.err_code in _LOCKED:
            raise EncryptedDocumentError(blob.name) from error
        raise DamagedDocumentError(blob.name, "no PDF reader can open it") from error
    with closing(document):
        count = len(document)
        pages = list(_pages(document, library, limits))
        bookmarks = list(_bookmarks(document, library))
        title = _title(str(document.get_metadata_dict().get("Title", "")))
    passages = arranged(pages, bookmarks)
    if not passages:
        raise NoTextError(blob.name, f"its {count} pages are pictures" if count > 1 else "its page is a picture")
    return PdfText(title, passages, tuple(_warnings(pages, count)))


def _title(given: str) -> str:
    title = _PROGRAM.sub("", " ".join(given.split()))
    return "" if title.lower() in _NO_TITLES else title


def _pages(document: Any, library: Any, limits: ReadingLimits) -> Iterator[Page]:
    characters = 0
    for number in range(min(len(document), limits.pages)):
        try:
            with closing(document[number]) as page, closing(page.get_textpage()) as text_page:
                read = Page(number + 1, tuple(_lines(text_page, library.raw)))
        except library.PdfiumError:
            # One broken page does not cost the others; it is told as a page without text.
            read = Page(number + 1, ())
        yield read
        characters += sum(len(line.text) for line in read.lines)
        if characters > limits.characters:
            return


def _lines(text_page: Any, raw: Any) -> Iterator[Line]:
    text: str = text_page.get_text_range()
    start = 0
    for piece in text.split("\r\n"):
        stripped = piece.strip()
        if stripped:
            yield from _parts(_Drawn(text_page, raw), stripped, start + len(piece) - len(piece.lstrip()))
        start += len(piece) + 2


@dataclass(frozen=True)
class _Drawn:
    """The characters of a page, which know their places."""

    text_page: Any
    raw: Any

    def box(self, text_index: int) -> Box:
        """Left, bottom, right and top of a character, in points."""
        index = self.raw.FPDFText_GetCharIndexFromTextIndex(self.text_page.raw, text_index)
        return self.text_page.get_charbox(max(0, index), loose=True)


def _parts(drawn: _Drawn, text: str, start: int) -> Iterator[Line]:
    """A line, or the parts of it between which a column or a cell ends: PDFium takes all of a height for one line."""
    line = line_between(text, drawn.box(start), drawn.box(start + len(text) - 1))
    em = line.size
    natural = em * sum(1 if is_cjk(each) else 0.6 for each in text)
    if line.direction != "right" or line.right - line.left < natural + em * 2 or " " not in text:
        yield line
        return
    begin = 0
    for space in [at for at, each in enumerate(text) if each == " "]:
        gap = drawn.box(start + space + 1)[0] - drawn.box(start + space - 1)[2]
        if gap > em * _GAP_EMS and text[begin:space].strip():
            yield line_between(text[begin:space], drawn.box(start + begin), drawn.box(start + space - 1))
            begin = space + 1
    yield line_between(text[begin:], drawn.box(start + begin), drawn.box(start + len(text) - 1))


def _bookmarks(document: Any, library: Any) -> Iterator[Bookmark]:
    try:
        for number, bookmark in enumerate(document.get_toc()):
            destination = bookmark.get_dest()
            page = destination.get_index() if destination else None
            title = " ".join(str(bookmark.get_title()).split())
            if page is not None and title:
                yield Bookmark(int(bookmark.level) + 1, title, int(page) + 1)
            if number >= _MOST_BOOKMARKS:
                return
    except library.PdfiumError:
        return


def _warnings(pages: list[Page], count: int) -> Iterator[str]:
    empty = [page.number for page in pages if not page.lines]
    if empty:
        shown = ", ".join(map(str, empty[:10])) + (", …" if len(empty) > 10 else "")
        yield f"No text on {len(empty)} of {count} pages ({shown}): pictures are not read."
    if len(pages) < count:
        yield f"Only the first {len(pages)} of {count} pages were read."
    text = "".join(line.text for page in pages for line in page.lines)
    unknown = sum(1 for each in text if each == "\ufffd" or "\ue000" <= each <= "\uf8ff" or each < " ")
    if unknown > len(text) * _UNKNOWN_SHARE:
        yield "Its fonts do not say which characters they show: the text is mostly unreadable, OCR would do better."
