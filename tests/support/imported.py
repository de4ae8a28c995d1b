"""Documents to import, made where they are needed, and a knowledge base that only remembers what it was given."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from xml.sax.saxutils import escape

from mcp_servers.knowledge.errors import KnowledgeError
from mcp_servers.knowledge.importing.chunking import chunk_passages
from mcp_servers.knowledge.importing.documents import ParsedDocument
from mcp_servers.knowledge.types import NewChunk, Passage

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org"
JAPANESE_FONT = "HeiseiMin-W3"
PAGE_WIDTH, PAGE_HEIGHT = 595, 842

Drawn = tuple[float, float, str]


@dataclass
class RememberingImporter:
    """An importer that keeps what it is given in memory."""

    documents: dict[str, ParsedDocument] = field(default_factory=dict[str, ParsedDocument])
    chunks: dict[str, tuple[NewChunk, ...]] = field(default_factory=dict[str, tuple[NewChunk, ...]])
    added: list[str] = field(default_factory=list[str])
    problem: KnowledgeError | None = None

    async def content_hashes(self, prefix: str) -> Mapping[str, str]:
        return {uri: document.content_hash for uri, document in self.documents.items() if uri.startswith(prefix)}

    async def add(self, document: ParsedDocument) -> None:
        if self.problem:
            raise self.problem
        self.documents[document.uri] = document
        self.chunks[document.uri] = tuple(chunk_passages(document.passages))
        self.added.append(document.title)

    async def remove(self, uri: str) -> None:
        if self.problem:
            raise self.problem
        del self.documents[uri]

    @property
    def titles(self) -> list[str]:
        return sorted(document.title for document in self.documents.values())


def redact_url(passages: Iterable[Passage]) -> list[tuple[str, tuple[str, ...]]]:
    """Passages as pairs of text and headings, so that a test reads like the document."""
    return [(passage.text, passage.headings) for passage in passages]


def pdf(
    pages: Sequence[Sequence[Drawn]],
    *,
    size: float = 10,
    sizes: Mapping[str, float] | None = None,
    title: str = "",
    bookmarks: Sequence[tuple[int, str, int]] = (),
    vertical: bool = False,
    password: str = "",
    turned: int = 0,
) -> bytes:
    """A PDF.

    Args:
        pages: for each page what is drawn, in order: left, baseline, text.
        size: of the type.
        sizes: of the type of certain texts.
        title: in its properties.
        bookmarks: level from 0, title, page from 0.
        vertical: write from top to bottom.
        password: to open it.
        turned: the text around the middle of the page, degrees.
    """
    from reportlab.lib.pdfencrypt import StandardEncryption
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.cidfonts import UnicodeCIDFont
    from reportlab.pdfgen.canvas import Canvas

    library = cast("Any", pdfmetrics)
    library.registerFont(cast("Any", UnicodeCIDFont)(JAPANESE_FONT, isVertical=vertical))
    made = io.BytesIO()
    encryption = cast("Any", StandardEncryption)(password) if password else None
    canvas = cast("Any", Canvas)(made, pagesize=(PAGE_WIDTH, PAGE_HEIGHT), encrypt=encryption, invariant=1)
    if title:
        canvas.setTitle(title)
    for number, page in enumerate(pages):
        if turned:
            canvas.translate(PAGE_WIDTH / 2, PAGE_HEIGHT / 2)
            canvas.rotate(turned)
            canvas.translate(-PAGE_WIDTH / 2, -PAGE_HEIGHT / 2)
        for level, name, on_page in bookmarks:
            if on_page == number:
                canvas.bookmarkPage(name)
                canvas.addOutlineEntry(name, name, level)
        for left, baseline, text in page:
            canvas.setFont(JAPANESE_FONT, (sizes or {}).get(text, size))
            canvas.drawString(left, baseline, text)
        canvas.showPage()
    canvas.save()
    return made.getvalue()


def column(lines: Iterable[str], *, left: float = 72, top: float = 750, leading: float = 14) -> list[Drawn]:
    """Lines below each other."""
    return [(left, top - number * leading, line) for number, line in enumerate(lines)]


def docx(body: str, *, title: str = "", extra: Mapping[str, bytes] | None = None) -> bytes:
    """A Word document.

    Args:
        body: WordprocessingML; see ``paragraph`` and ``table``.
        title: in its properties.
        extra: further parts of the archive.
    """
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{_RELATIONS}/package/2006/content-types"><Default Extension="xml"'
        ' ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{_RELATIONS}/package/2006/relationships"><Relationship Id="r1"'
        f' Type="{_RELATIONS}/officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/>'
        "</Relationships>",
        "word/document.xml": f'<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>',
        "word/styles.xml": f'<w:styles xmlns:w="{_WORD}">'
        + "".join(
            f'<w:style w:type="paragraph" w:styleId="{level}"><w:name w:val="heading {level}"/></w:style>'
            for level in range(1, 4)
        )
        + "</w:styles>",
        "docProps/core.xml": f'<c:p xmlns:c="c" xmlns:dc="d"><dc:title>{escape(title)}</dc:title></c:p>',
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in {**parts, **(extra or {})}.items():
            archive.writestr(name, text)
    return made.getvalue()


def paragraph(text: str, *, heading: int = 0) -> str:
    """A paragraph of a Word document, or a heading."""
    style = f'<w:pPr><w:pStyle w:val="{heading}"/></w:pPr>' if heading else ""
    return f"<w:p>{style}<w:r><w:t>{escape(text)}</w:t></w:r></w:p>"


def table(rows: Iterable[Iterable[str]]) -> str:
    """A table of a Word document."""
    cells = ("".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) for row in rows)
    return "<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in cells) + "</w:tbl>"


def has_japanese_font() -> bool:
    """True if this machine has a font for Japanese text whose font is not embedded in the PDF."""
    import pypdfium2

    document = cast("Any", pypdfium2).PdfDocument(pdf([[(72, 700, "猫")]]))
    _, bottom, _, top = document[0].get_textpage().get_charbox(0)
    # Without a glyph the character has a width but no height.
    return top - bottom > 1
