"""Pictures and scanned pages are read by Tesseract where it is found; a stand-in with its interface is enough here."""

from __future__ import annotations

import difflib
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pypdfium2
import pytest

from mcp_servers.knowledge.errors import NoTextError, UnsupportedFormatError
from mcp_servers.knowledge.importing.documents import Blob, ParsedDocument, ParseLimits
from mcp_servers.knowledge.importing.parse import parse_blob
from mcp_servers.knowledge.importing.recognition import languages, recognize
from tests.support.imported import has_japanese_font, pdf

PNG = b"\x89PNG\r\n\x1a\n" + bytes(99)
# Answers with the kind of the picture, the languages and the layout that it is given.
STAND_IN = """#!/bin/sh
[ "$1" = --list-langs ] && { printf 'List of available languages (3):\\neng\\njpn\\n%s\\n' "$LANGUAGE_OF_TEST"; exit; }
kind=$(head -c 2 | tr -dc 'A-Z0-9'); cat > /dev/null
table() { printf '1\\t\\t\\t\\t\\t\\t\\t\\t\\t\\t%s\\t%s\\n' conf text -1 '' "$1" 会議; }
[ "$4" = jpn_vert ] && { table 60; printf 'たて書きの文です。'; exit; }
table "${CONFIDENCE_OF_TEST:-70.0}"; printf '%s %s %s %s\\n' '会 議 の 日' "$kind" "$4" "$6"
"""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    languages.cache_clear()
    yield
    languages.cache_clear()


@pytest.fixture
def tesseract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "tesseract"
    program.write_text(STAND_IN, "utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return program


def read(content: bytes, name: str) -> ParsedDocument:
    return parse_blob(Blob(content, name), ParseLimits())


@pytest.mark.usefixtures("tesseract")
def test_a_picture_is_read_as_japanese_and_english_without_spaces_between_japanese() -> None:
    document = read(PNG, "a.png")
    assert [passage.text for passage in document.passages] == ["会議の日 P jpn+eng 3"]
    assert document.warnings == ("Its text was recognised by OCR.",)


@pytest.mark.usefixtures("tesseract")
def test_the_scanned_pages_of_a_pdf_are_read_and_its_other_pages_are_not() -> None:
    document = read(pdf([[(72, 700, "一頁の文です。")], []]), "a.pdf")
    assert [(passage.text, passage.page) for passage in document.passages] == [
        ("一頁の文です。", 1),
        ("会議の日 P5 jpn+eng 3", 2),
    ]
    assert document.warnings == ("The text of 1 of 2 pages (2) was recognised by OCR.",)


@pytest.mark.usefixtures("tesseract")
def test_vertical_japanese_is_tried_where_the_horizontal_reading_is_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGUAGE_OF_TEST", "jpn_vert")
    assert recognize(PNG, 10) == "会議の日 P jpn+eng 3"
    assert languages() == {"eng", "jpn", "jpn_vert"}
    monkeypatch.setenv("CONFIDENCE_OF_TEST", "69.5")
    assert recognize(PNG, 10) == "会議の日 P jpn+eng 3"
    monkeypatch.setenv("CONFIDENCE_OF_TEST", "30")
    assert recognize(PNG, 10) == "たて書きの文です。"


@pytest.mark.parametrize("is_vertical", [False, True])
def test_tesseract_reads_a_horizontal_and_a_vertical_page(is_vertical: bool) -> None:
    if not languages() >= {"jpn", "jpn_vert"}:
        pytest.skip("Tesseract (tesseract-ocr, tesseract-ocr-jpn, tesseract-ocr-jpn-vert) is not installed")
    if not has_japanese_font():
        pytest.skip("no Japanese font to draw a page with is installed")
    text = "有給休暇は入社の日から六か月で取得できる申請は三日前までに上司へ行う"
    rows = [text[:17], text[17:]]
    drawn = [(300 - 40 * at, 700, row) if is_vertical else (60, 700 - 40 * at, row) for at, row in enumerate(rows)]
    document = cast("Any", pypdfium2).PdfDocument(pdf([drawn], size=20, vertical=is_vertical))
    page = document[0].render(scale=3).to_pil()
    picture = io.BytesIO()
    page.save(picture, "PNG")
    found = "".join(recognize(picture.getvalue(), 60).split())
    assert difflib.SequenceMatcher(None, text, found, autojunk=False).ratio() > 0.9


def test_a_program_that_fails_or_hangs_gives_no_text(tesseract: Path) -> None:
    assert languages() == {"eng", "jpn"}
    tesseract.write_text("#!/bin/sh\nexit 1\n", "utf-8")
    assert recognize(PNG, 10) == ""
    tesseract.write_text("#!/bin/sh\nexec sleep 600\n", "utf-8")
    assert recognize(PNG, 0.02) == ""


def test_without_the_program_a_picture_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        UnsupportedFormatError, match=r"it is an image, and Tesseract is not installed \(tesseract-ocr,"
    ):
        read(PNG, "a.png")
    with pytest.raises(NoTextError, match=r"its page is a picture\. If it was scanned"):
        read(drawn_pdf(), "a.pdf")


def drawn_pdf() -> bytes:
    from reportlab.pdfgen.canvas import Canvas

    made = io.BytesIO()
    canvas = cast("Any", Canvas)(made, invariant=1)
    canvas.rect(100, 100, 200, 200, fill=1)
    canvas.save()
    return made.getvalue()


def test_a_pdf_whose_fonts_are_not_mapped_to_unicode_is_refused_instead_of_indexed_as_garbage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoTextError, match="its fonts do not say which characters they show"):
        read(unmapped_pdf(), "a.pdf")


def unmapped_pdf() -> bytes:
    """Return a PDF whose text is numbers of glyphs, without a table to Unicode."""
    glyphs = "".join(f"{glyph:04x}" for glyph in range(800, 830))
    text = f"BT /F1 12 Tf 72 700 Td <{glyphs}> Tj ET"
    objects = f"""<</Type/Catalog/Pages 2 0 R>>
<</Type/Pages/Kids[3 0 R]/Count 1>>
<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources<</Font<</F1 5 0 R>>>>/Contents 4 0 R>>
<</Length {len(text)}>>stream\r{text}\rendstream
<</Type/Font/Subtype/Type0/BaseFont/A+B/Encoding/Identity-H/DescendantFonts[6 0 R]>>
<</Type/Font/Subtype/CIDFontType2/BaseFont/A+B/DW 1000/FontDescriptor 7 0 R/CIDSystemInfo 8 0 R>>
<</Type/FontDescriptor/FontName/A+B/Flags 4/FontBBox[0 0 9 9]/ItalicAngle 0/Ascent 8/Descent -2/CapHeight 7/StemV 8>>
<</Registry(Adobe)/Ordering(Identity)/Supplement 0>>""".split("\n")
    # PDFium rebuilds the missing table of places.
    body = "".join(f"{number} 0 obj{each}endobj\n" for number, each in enumerate(objects, 1))
    return f"%PDF-1.4\n{body}trailer<</Root 1 0 R>>\n%%EOF".replace("\r", "\n").encode()
