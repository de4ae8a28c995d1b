"""Excel, PowerPoint, OpenDocument, EPUB, mail and Rich Text."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

import pytest

from mcp_servers.knowledge.importing.documents import Blob, ParsedDocument, ParseLimits
from mcp_servers.knowledge.importing.errors import DamagedDocumentError, TooLargeError
from mcp_servers.knowledge.importing.parse import parse_blob

_S = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
WORKBOOK = {
    "xl/workbook.xml": f'<workbook {_S} {_R}><sheets><sheet name="支店" r:id="rId1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": '<Rs><Relationship Id="rId1" Target="worksheets/sheet1.xml"/></Rs>',
    "xl/styles.xml": f'<styleSheet {_S}><numFmts><numFmt numFmtId="164" formatCode="yyyy&quot;年&quot;m"/></numFmts>'
    '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="164"/><xf numFmtId="20"/></cellXfs></styleSheet>',
    "xl/sharedStrings.xml": f"<sst {_S}><si><t>支店</t></si>"
    "<si><t>東</t><rPh><t>ヒガシ</t></rPh><r><t>京</t></r></si></sst>",
    "xl/worksheets/sheet1.xml": f"""<worksheet {_S}><sheetData>
        <row><c r="A1" t="s"><v>0</v></c><c r="B1" t="inlineStr"><is><t>所在</t></is></c>
        <c r="C1" t="str"><v>開設</v></c></row>
        <row><c r="A2" t="s"><v>1</v></c><c r="C2" s="1"><v>45000</v></c>
        <c r="D2"><v>0.1</v></c><c r="E2" t="b"><v>1</v></c></row>
        <row><c r="B3" s="3"><v>0.375</v></c><c r="C3" s="2"><v>45000.5</v></c></row>
        </sheetData></worksheet>""",
}
_P = 'xmlns:p="http://p" xmlns:a="http://a"'
SLIDES = {
    "ppt/presentation.xml": "<p/>",
    "ppt/slides/slide10.xml": f"<p:sld {_P}><p:sp><a:p><a:r><a:t>最後</a:t></a:r></a:p></p:sp></p:sld>",
    "ppt/slides/slide1.xml": f"""<p:sld {_P}><p:sp><p:ph type="title"/><a:p><a:r><a:t>売上</a:t></a:r></a:p></p:sp>
        <p:sp><a:p><a:r><a:t>前年</a:t></a:r><a:r><a:t>より増えた。</a:t></a:r></a:p></p:sp>
        <a:tbl><a:tr><a:tc><a:t>月</a:t></a:tc><a:tc><a:t>額</a:t></a:tc></a:tr></a:tbl></p:sld>""",
    "ppt/notesSlides/notesSlide1.xml": f"<p:notes {_P}><a:p><a:t>ここで話す</a:t></a:p></p:notes>",
}
_O = 'xmlns:text="t" xmlns:table="b" xmlns:office="o"'
OPEN_DOCUMENT = {
    "content.xml": f"""<office:document-content {_O}><text:h text:outline-level="1">規則</text:h>
        <text:p>漢<text:ruby><text:ruby-base>字</text:ruby-base><text:ruby-text>じ</text:ruby-text></text:ruby>の<text:s/>文</text:p>
        <table:table><table:table-row><table:table-cell><text:p>甲</text:p></table:table-cell>
        <table:table-cell table:number-columns-repeated="2"/><table:table-cell><text:p>乙</text:p></table:table-cell>
        </table:table-row></table:table></office:document-content>""",
}
BOOK = {
    "META-INF/container.xml": '<container><rootfiles><rootfile full-path="OEBPS/a.opf"/></rootfiles></container>',
    "OEBPS/a.opf": '<package><manifest><item id="b" href="b.xhtml"/><item id="a" href="a.xhtml"/></manifest>'
    '<spine><itemref idref="a"/><itemref idref="b"/></spine></package>',
    "OEBPS/a.xhtml": "<!DOCTYPE html><html><body><h1>一章</h1><p>はじめ</p></body></html>",
    "OEBPS/b.xhtml": "<html><body><h1>二章</h1><p>おわり</p></body></html>",
}
MAIL = """From: =?utf-8?b?5L2Q6Jek?= <a@example.org>
Subject: =?iso-2022-jp?b?GyRCMnE1RBsoQg==?=
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="x"

--x
Content-Type: text/plain; charset=iso-2022-jp

%s
--x
Content-Type: application/pdf; name="plan.pdf"
Content-Disposition: attachment; filename="plan.pdf"

%%PDF-1.4
--x--
"""


def zipped(parts: Mapping[str, str]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return made.getvalue()


def read(content: bytes, name: str = "document") -> ParsedDocument:
    return parse_blob(Blob(content, name), ParseLimits())


def texts(parts: Mapping[str, str]) -> list[str]:
    return [passage.text for passage in read(zipped(parts)).passages]


def test_a_sheet_is_a_table_that_keeps_its_columns_dates_and_names() -> None:
    (sheet,) = read(zipped(WORKBOOK)).passages
    assert sheet.headings == ("支店",)
    assert sheet.text.splitlines() == [
        "支店 | 所在 | 開設",
        "東京 |  | 2023-03-15 | 0.1 | TRUE",
        " | 09:00 | 2023-03-15 12:00",
    ]


def test_slides_are_pages_in_their_order_with_tables_and_notes() -> None:
    passages = read(zipped(SLIDES)).passages
    assert [(passage.text, passage.page) for passage in passages] == [
        ("前年より増えた。", 1),
        ("月 | 額", 1),
        ("ここで話す", 1),
        ("最後", 2),
    ]
    assert passages[0].headings == ("売上",)


def test_an_open_document_has_headings_text_below_its_ruby_and_tables_with_empty_cells() -> None:
    assert texts(OPEN_DOCUMENT) == ["漢字の 文", "甲 |  |  | 乙"]
    assert read(zipped(OPEN_DOCUMENT)).title == "規則"


def test_a_book_is_read_in_the_order_of_its_spine() -> None:
    passages = read(zipped(BOOK)).passages
    assert [(passage.text, passage.headings, passage.page) for passage in passages] == [
        ("はじめ", ("一章",), 1),
        ("おわり", ("二章",), 2),
    ]


def test_a_mail_has_its_head_its_text_and_the_names_of_its_attachments() -> None:
    head, _, tail = MAIL.partition("%s")
    content = head.encode() + "十時に始めます。".encode("iso2022_jp") + tail.replace("%%", "%").encode()
    mail = read(content, "a.eml")
    assert mail.title == "会議"
    assert [passage.text for passage in mail.passages] == [
        "From: 佐藤 <a@example.org>\nSubject: 会議",
        "十時に始めます。",
        "Attachments: plan.pdf",
    ]


def test_rich_text_is_read_in_the_character_set_of_its_fonts() -> None:
    pytest.importorskip("striprtf")
    content = rb"{\rtf1\ansi{\fonttbl{\f0\fcharset0 A;}{\f1\fcharset128 B;}}\f0 abc \f1\'8b\'e0\'8a\'7a\par \u26412?}"
    assert [passage.text for passage in read(content).passages] == ["abc 金額\n本"]


@pytest.mark.parametrize("name", ["xl/sharedStrings.xml", "xl/worksheets/sheet1.xml"])
def test_entities_are_refused(name: str) -> None:
    bomb = '<!DOCTYPE s [<!ENTITY a "aaaa">]><s>&a;</s>'
    with pytest.raises(DamagedDocumentError, match="document type"):
        read(zipped({**WORKBOOK, name: bomb}))


def test_an_archive_that_unpacks_to_too_much_is_refused_before_it_is_unpacked() -> None:
    content = zipped({**OPEN_DOCUMENT, "Pictures/a": "0" * 5_000_000})
    with pytest.raises(TooLargeError, match="it unpacks to 5 MB"):
        parse_blob(Blob(content, "a.odt"), ParseLimits(unpacked_bytes=4_000_000))


@pytest.mark.parametrize("parts", [WORKBOOK, SLIDES, OPEN_DOCUMENT, BOOK])
def test_a_part_cut_off_is_one_sentence(parts: dict[str, str]) -> None:
    name = list(parts)[-1] if parts is not BOOK else "OEBPS/a.opf"
    with pytest.raises(DamagedDocumentError):
        read(zipped({**parts, name: parts[name][:60]}))
