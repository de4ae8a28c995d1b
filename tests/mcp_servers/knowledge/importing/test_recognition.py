"""Pictures and scanned pages are read by Tesseract where it is found; a stand-in with its interface is enough here."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_servers.knowledge.errors import NoTextError, UnsupportedFormatError
from mcp_servers.knowledge.importing.documents import Blob, ParsedDocument, ParseLimits
from mcp_servers.knowledge.importing.parse import parse_blob
from mcp_servers.knowledge.importing.recognition import languages, recognize
from tests.support.imported import pdf

PNG = b"\x89PNG\r\n\x1a\n" + bytes(99)
# Answers with the kind of the picture, the languages and the layout that it is given.
STAND_IN = """#!/bin/sh
[ "$1" = --list-langs ] && { printf 'List of available languages (3):\\neng\\njpn\\n%s\\n' "$LANGUAGE_OF_TEST"; exit; }
kind=$(head -c 2 | tr -dc 'A-Z0-9'); cat > /dev/null
[ "$4" = jpn_vert ] && { printf 'たて書きの文です。'; exit; }
printf '%s %s %s %s\\n' "${TEXT_OF_TEST:-会 議 の 日}" "$kind" "$4" "$6"
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
def test_vertical_japanese_is_tried_where_the_horizontal_reading_is_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGUAGE_OF_TEST", "jpn_vert")
    assert recognize(PNG, 10) == "会議の日 P jpn+eng 3"
    assert languages() == {"eng", "jpn", "jpn_vert"}
    monkeypatch.setenv("TEXT_OF_TEST", "黌黍黎黏黐黔黜黝黠黥黨黯黴黶黷黹黻黼黽鼇")
    assert recognize(PNG, 10) == "たて書きの文です。"


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
    with pytest.raises(NoTextError, match="its page is a picture"):
        read(pdf([[]]), "a.pdf")


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
