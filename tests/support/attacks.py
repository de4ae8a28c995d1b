"""Documents made to hold the parser or to take its memory, in a size that is given."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Mapping

from mcp_servers.knowledge.importing.documents import Blob

_SHEETS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PART = "http://schemas.openxmlformats.org/package/2006/relationships"


def zipped(parts: Mapping[str, str]) -> bytes:
    """An archive, compressed as well as possible."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return made.getvalue()


def workbook(rows: str, sheets: int = 1) -> bytes:
    """A workbook, all sheets of which are one part."""
    spaces = f'xmlns="{_SHEETS}" xmlns:r="{_RELATIONS}"'
    listed = "".join(f'<sheet name="s{at}" r:id="r{at}"/>' for at in range(sheets))
    target = f'Type="{_RELATIONS}/worksheet" Target="worksheets/sheet1.xml"'
    related = "".join(f'<Relationship Id="r{at}" {target}/>' for at in range(sheets))
    return zipped(
        {
            "xl/workbook.xml": f"<workbook {spaces}><sheets>{listed}</sheets></workbook>",
            "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PART}">{related}</Relationships>',
            "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{_SHEETS}"><sheetData>{rows}</sheetData></worksheet>',
        }
    )


def open_document(content: str) -> bytes:
    """An OpenDocument text."""
    document = f'<d xmlns:t="urn:t">{content}</d>'
    return zipped({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": document})


def book(references: int, paragraphs: int) -> bytes:
    """A book whose spine names one page many times."""
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container><rootfile full-path="c.opf"/></container>',
            "c.opf": '<package><item id="a" href="a.html"/>' + '<itemref idref="a"/>' * references + "</package>",
            "a.html": "<p>あいう</p>" * paragraphs,
        }
    )


def _deflated(content: bytes, times: int) -> bytes:
    """What a content repeated this often is compressed to; the repetitions cost nothing."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(content) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = 1
    for _ in range(times):
        checksum = zlib.adler32(content, checksum)
    # The header of zlib, an empty last block, and the checksum of it all.
    return b"\x78\xda" + block * times + b"\x03\0" + checksum.to_bytes(4, "big")


def pdf_of(content: bytes, pages: int = 1, times: int = 1) -> bytes:
    """A PDF whose pages share one stream, the content repeated, compressed twice."""
    stream = zlib.compress(_deflated(content, times), 9)
    objects = (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[%s]/Count %d>>" % (b"3 0 R " * pages, pages),
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>",
        b"<</Length %d/Filter[/FlateDecode/FlateDecode]>>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    )
    made, offsets = bytearray(b"%PDF-1.4\n"), list[int]()
    for number, each in enumerate(objects, 1):
        offsets.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    start = len(made)
    made += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    made += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    made += b"trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, start)
    return bytes(made)


def _mail(header: bytes) -> bytes:
    return b"Subject: a\n" + header + b"\n\nText."


def _word(body: str) -> bytes:
    return zipped(
        {
            "_rels/.rels": f'<Relationships xmlns="{_PART}"><Relationship Id="r1" Type="{_RELATIONS}/officeDocument"'
            ' Target="word/document.xml"/></Relationships>',
            "word/document.xml": body,
        }
    )


_CELL = "<t:table><t:table-row><t:table-cell>", "</t:table-cell></t:table-row></t:table>"

# Name of the attack -> the document for a number of repetitions.
ATTACKS: Mapping[str, Callable[[int], Blob]] = {
    "attributes": lambda n: Blob(b"<p " + b"".join(b"a%d=1 " % at for at in range(n)) + b">Text.</p>", "a.html"),
    "attributes behind a quote": lambda n: Blob(
        b'<p title=">" ' + b"".join(b"a%d=1 " % at for at in range(n)) + b">Text.</p>", "a.html"
    ),
    "tags without an end": lambda n: Blob(b"<p>Text.</p>" + b"<a " * n, "a.html"),
    "headings of a page": lambda n: Blob(b"<h1>a</h1>" * n, "a.html"),
    "headings": lambda n: Blob(b"# a\n" * n, "a.md"),
    "empty headings": lambda n: Blob(b"# \n" * n + b"\nText.", "a.md"),
    "spaces of a heading": lambda n: Blob(b"# a" + b" " * n + b"x", "a.md"),
    "lines of a paragraph": lambda n: Blob(b"a\n" * n, "a.md"),
    "cells of a row": lambda n: Blob(b"|a|\n|-|\n" + b"|" * n + b"a", "a.md"),
    "paragraphs": lambda n: Blob(b"a\n\n" * n, "a.txt"),
    "one line": lambda n: Blob(b"a," * n, "a.csv"),
    "definitions": lambda n: Blob(b"def f(): pass\n" * n, "a.py"),
    "nested arrays": lambda n: Blob(b"[" * 900 + b"0," * n + b"0" + b"]" * 900, "a.json"),
    "recipients": lambda n: Blob(_mail(b"To: " + b"a@b.c, " * n), "a.eml"),
    "comments in an address": lambda n: Blob(_mail(b"To: " + b"(" * n), "a.eml"),
    "far columns": lambda n: Blob(workbook('<row><c r="XFD1048576"><v>1</v></c></row>' * n), "a.xlsx"),
    "one sheet many times": lambda n: Blob(workbook(f"<row>{'<c><v>1</v></c>' * 1000}</row>", n), "a.xlsx"),
    "rows in rows": lambda n: Blob(workbook(f"{'<row>' * n}<c><v>1</v></c>{'</row>' * n}"), "a.xlsx"),
    "one chapter many times": lambda n: Blob(book(n, 100), "a.epub"),
    "tables in tables": lambda n: Blob(open_document(_CELL[0] * n + "<t:p>x</t:p>" + _CELL[1] * n), "a.odt"),
    "repeated cells": lambda n: Blob(
        open_document(
            "<t:table>"
            + '<t:table-row><t:table-cell t:number-columns-repeated="1048576"><t:p>a</t:p></t:table-cell></t:table-row>'
            * n
            + "</t:table>"
        ),
        "a.odt",
    ),
    "ruby without an end": lambda n: Blob(_word("<w:ruby>" * n), "a.docx"),
    "equations without an end": lambda n: Blob(_word("<m:oMath>" * n), "a.docx"),
    "a long stream": lambda n: Blob(pdf_of(b" " * n), "a.pdf"),
    "one page many times": lambda n: Blob(pdf_of(b"BT /F 9 Tf 1 1 Td (Text.) Tj ET", n), "a.pdf"),
    "lines of a page": lambda n: Blob(pdf_of(b"BT /F 9 Tf 1 1 Td " + b"(aa aa) Tj 0 9 Td " * n + b"ET"), "a.pdf"),
}
