"""Excel, PowerPoint, OpenDocument, EPUB, mail and Rich Text."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from email.message import EmailMessage

import pytest

from mcp_servers.knowledge.errors import DamagedDocumentError, NoTextError, TooLargeError
from mcp_servers.knowledge.importing.documents import Blob, ParsedDocument, ParseLimits
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
_KIND = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def relations(**targets: str) -> str:
    """Relations of these kinds to parts."""
    listed = (f'<Relationship Id="{kind}" Type="{_KIND}/{kind}" Target="{to}"/>' for kind, to in targets.items())
    return f"<Rs>{''.join(listed)}</Rs>"


# The slides, and the notes, are numbered in the order in which they were made.
SLIDES = {
    "ppt/presentation.xml": f'<p {_R}><sldIdLst><sldId r:id="rId2"/><sldId r:id="rId1"/></sldIdLst></p>',
    "ppt/_rels/presentation.xml.rels": '<Rs><Relationship Id="rId1" Type="t/slide" Target="slides/slide1.xml"/>'
    '<Relationship Id="rId2" Type="t/slide" Target="slides/slide10.xml"/></Rs>',
    "ppt/slides/slide1.xml": f"<p:sld {_P}><p:sp><a:p><a:r><a:t>最後</a:t></a:r></a:p></p:sp></p:sld>",
    "ppt/slides/_rels/slide1.xml.rels": relations(chart="../charts/chart3.xml", diagramData="../diagrams/data1.xml"),
    "ppt/charts/chart3.xml": f"""<c:chart xmlns:c="c" {_P}><c:title><a:t>月別</a:t></c:title>
        <c:ser><c:tx><c:v>東京</c:v></c:tx><c:cat><c:pt idx="0"><c:v>4月</c:v></c:pt><c:pt idx="1"><c:v>5月</c:v></c:pt>
        <c:pt idx="2"><c:v>6月</c:v></c:pt></c:cat><c:val>
        <c:pt idx="0"><c:v>1</c:v></c:pt><c:pt idx="2"><c:v>3</c:v></c:pt>
        </c:val></c:ser></c:chart>""",
    "ppt/diagrams/data1.xml": f"<d {_P}><a:p><a:t>受付</a:t></a:p><a:p><a:t>審査</a:t></a:p></d>",
    "ppt/slides/slide10.xml": f"""<p:sld {_P}><p:sp><p:ph type="title"/><a:p><a:r><a:t>売上</a:t></a:r></a:p></p:sp>
        <p:sp><a:p><a:r><a:t>前年</a:t></a:r><a:r><a:t>より増えた。</a:t></a:r></a:p></p:sp>
        <a:tbl><a:tr><a:tc><a:t>月</a:t></a:tc><a:tc><a:t>額</a:t></a:tc></a:tr></a:tbl></p:sld>""",
    "ppt/slides/_rels/slide10.xml.rels": relations(notesSlide="../notesSlides/notesSlide2.xml"),
    "ppt/notesSlides/notesSlide2.xml": f"<p:notes {_P}><a:p><a:t>ここで話す</a:t></a:p></p:notes>",
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
        " | 09:00 | 2023-03-15",
    ]


def test_raised_and_lowered_digits_of_slides_are_marked() -> None:
    runs = "".join(
        f'<a:r><a:rPr baseline="{step}"/><a:t>{text}</a:t></a:r>'
        for step, text in ((0, "10"), (30000, "3"), (0, " m, H"), (-25000, "2"), (0, "O, 10"), (-25000, "2"))
    )
    slide = SLIDES["ppt/slides/slide1.xml"].replace("<a:r><a:t>最後</a:t></a:r>", runs)
    parsed = read(zipped({**SLIDES, "ppt/slides/slide1.xml": slide}))
    assert "10^3 m, H2O, 10_2" in [passage.text for passage in parsed.passages]


def test_slides_are_pages_in_their_order_with_tables_and_notes() -> None:
    passages = read(zipped(SLIDES)).passages
    assert [(passage.text, passage.page) for passage in passages] == [
        ("前年より増えた。", 1),
        ("月 | 額", 1),
        ("ここで話す", 1),
        ("最後", 2),
        ("月別", 2),
        (" | 4月 | 5月 | 6月\n東京 | 1 |  | 3", 2),
        ("受付\n審査", 2),
    ]
    assert passages[0].headings == ("売上",)


def test_an_open_document_has_headings_text_below_its_ruby_and_tables_with_empty_cells() -> None:
    assert texts(OPEN_DOCUMENT) == ["漢字の 文", "甲 |  |  | 乙"]
    assert read(zipped(OPEN_DOCUMENT)).title == "規則"


def _framed(name: str, kind: str = "object") -> str:
    return f'<draw:frame><draw:{kind} xlink:href="./{name}/"/></draw:frame>'


def test_formulas_charts_and_sheets_in_an_open_document_are_read_and_other_objects_named() -> None:
    spaces = " ".join(f'xmlns:{name}="urn:{name}"' for name in ("office", "text", "draw", "table", "chart", "xlink"))
    cells = "".join(f"<table:table-cell><text:p>{value}</text:p></table:table-cell>" for value in ("4月", "12"))
    rows = f'<table:table table:name="local-table"><table:table-row>{cells}</table:table-row></table:table>'
    chart = f"<chart:chart><chart:title><text:p>来客数</text:p></chart:title>{rows}</chart:chart>"
    page = f"<draw:page>{_framed('Chart')}{_framed('Math')}{_framed('Chart')}</draw:page>"
    inside = f"<text:p>面積 {_framed('Area')} です {_framed('Old', 'object-ole')}</text:p>"
    parts = {
        "mimetype": "application/vnd.oasis.opendocument.presentation",
        "content.xml": f"<office:document {spaces}><office:body>{page}{inside}</office:body></office:document>",
        "Chart/content.xml": f"<office:document {spaces}><office:body>{chart}</office:body></office:document>",
        "Old": "OLE",
    }
    for name, formula in (("Math", "<mi>x</mi><mo>=</mo><mn>2</mn>"), ("Area", "<mi>S</mi>")):
        noted = f'{formula}<annotation encoding="StarMath 5.0">source</annotation>'
        parts[f"{name}/content.xml"] = f'<math xmlns="urn:math"><semantics>{noted}</semantics></math>'
    document = read(zipped(parts))
    assert [passage.text for passage in document.passages] == ["来客数", "4月 | 12", "x=2", "面積  S  です"]
    assert document.warnings == ("Embedded files were not read: Old.",)


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
    assert mail.warnings == ("The attachment plan.pdf was not read: plan.pdf is damaged: no PDF reader can open it.",)
    assert [passage.text for passage in mail.passages] == [
        "From: 佐藤 <a@example.org>\nSubject: 会議",
        "十時に始めます。",
        "Attachment: plan.pdf",
    ]


def test_attached_documents_and_forwarded_mails_are_read_below_their_names() -> None:
    message = EmailMessage()
    message["Subject"] = "Fwd"
    message.set_content("see below")
    message.add_attachment("会議室は三階。".encode("cp932"), maintype="text", subtype="plain", filename="room.txt")
    inner = EmailMessage()
    inner["Subject"] = "original"
    inner.set_content("明日は休み。", charset="utf-8", cte="base64")
    message.add_attachment(inner)
    mail = read(message.as_bytes(), "a.eml")
    assert [(passage.headings, passage.text) for passage in mail.passages] == [
        ((), "Subject: Fwd"),
        ((), "see below"),
        (("room.txt",), "会議室は三階。"),
        (("message 2.eml",), "Subject: original"),
        (("message 2.eml",), "明日は休み。"),
    ]
    assert mail.warnings == ()


def test_a_book_packed_with_the_folder_around_it_is_read() -> None:
    assert texts({f"book/{name}": content for name, content in BOOK.items()}) == ["はじめ", "おわり"]


def test_comments_and_text_boxes_of_a_sheet_follow_it() -> None:
    comments = f'<comments {_S}><comment ref="A1"><text><r><t>要確認</t></r></text></comment></comments>'
    parts = {
        **WORKBOOK,
        "xl/worksheets/_rels/sheet1.xml.rels": relations(comments="../comments1.xml"),
        "xl/comments1.xml": comments,
    }
    assert texts(parts)[1:] == ["要確認"]


def test_the_titles_of_a_chart_and_its_axes_follow_the_cells_that_it_shows() -> None:
    titles = "<title><rich><t>月別の</t><t>雨量</t></rich></title><ax><title><v>ミリ</v></title></ax><title/>"
    parts = {
        **WORKBOOK,
        "xl/worksheets/_rels/sheet1.xml.rels": relations(drawing="../drawings/drawing1.xml"),
        "xl/drawings/drawing1.xml": f"<d {_P}><a:p><a:t>図</a:t></a:p></d>",
        "xl/drawings/_rels/drawing1.xml.rels": relations(chart="../charts/chart1.xml", image="../media/none.png"),
        "xl/charts/chart1.xml": f"<chart>{titles}</chart>",
    }
    assert texts(parts)[1:] == ["図", "月別の雨量, ミリ"]


def test_a_thread_of_comments_is_read_without_the_copy_for_older_versions() -> None:
    comments = (
        "<c><authors><author>tc={4}</author><author>Ann</author></authors><commentList>"
        '<comment authorId="0"><text><t>[Threaded comment] Your version is old. Comment: Why?</t></text></comment>'
        '<comment authorId="1"><text><t>By hand</t></text></comment></commentList></c>'
    )
    parts = WORKBOOK | {
        "xl/worksheets/_rels/sheet1.xml.rels": relations(comments="../comments1.xml", threadedComment="../thread1.xml"),
        "xl/comments1.xml": comments,
        "xl/thread1.xml": "<t><threadedComment><text>Why?</text></threadedComment></t>",
    }
    assert sorted(texts(parts)[1:]) == ["By hand", "Why?"]


def test_the_name_of_a_table_of_text_is_no_heading() -> None:
    names = 'xmlns:office="urn:office" xmlns:table="urn:table" xmlns:text="urn:text"'
    cell = '<table:table-cell office:value-type="string"><text:p>100</text:p></table:table-cell>'
    table = f'<table:table table:name="Table1"><table:table-row>{cell * 2}</table:table-row></table:table>'
    read_as = {
        kind: read(
            f"<office:document {names}><office:body><office:{kind}>{table}<text:p>After</text:p>"
            f"</office:{kind}></office:body></office:document>".encode()
        ).passages
        for kind in ("text", "presentation", "spreadsheet")
    }
    with pytest.raises(NoTextError):
        read(
            f'<office:document {names}><office:body><office:spreadsheet><table:table table:name="Table1"/>'
            "</office:spreadsheet></office:body></office:document>".encode()
        )
    assert {kind: {passage.headings for passage in passages} for kind, passages in read_as.items()} == {
        "text": {()},
        "presentation": {()},
        "spreadsheet": {("Table1",)},
    }


def test_a_part_that_unpacks_to_a_multiple_of_its_size_is_refused() -> None:
    content = zipped({**OPEN_DOCUMENT, "content.xml": " " * 11_000_000})
    with pytest.raises(TooLargeError, match="a part of it unpacks to more than 200 times its size"):
        read(content)


@pytest.mark.parametrize("amount", [rb"\'8b\'e0\'8a\'7a", "金額".encode("cp932")])
def test_rich_text_is_read_in_the_character_set_of_its_fonts(amount: bytes) -> None:
    head = rb"{\rtf1\ansi{\fonttbl{\f0\fcharset0 A;}{\f1\fcharset128 B;}}\f0 abc \f1 "
    assert [passage.text for passage in read(head + amount + rb"\par \u26412?}").passages] == ["abc 金額\n本"]


@pytest.mark.parametrize("name", ["xl/sharedStrings.xml", "xl/worksheets/sheet1.xml"])
def test_entities_are_refused(name: str) -> None:
    bomb = '<!DOCTYPE s [<!ENTITY a "aaaa">]><s>&a;</s>'
    with pytest.raises(DamagedDocumentError, match="declares entities"):
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


def test_a_chart_of_a_hidden_frame_is_left_out_with_a_warning() -> None:
    chart = f"<a:graphicData {_R}><c r:id='chart'/></a:graphicData>"
    frame = f"<p:graphicFrame><p:nvPr><p:cNvPr hidden='1'/></p:nvPr>{chart}"
    slide = SLIDES["ppt/slides/slide1.xml"].replace("</p:sld>", f"{frame}</p:graphicFrame></p:sld>")
    parsed = read(zipped({**SLIDES, "ppt/slides/slide1.xml": slide}))
    assert [passage.text for passage in parsed.passages][-2:] == ["最後", "受付\n審査"]
    assert parsed.warnings == ("Parts that are hidden were left out (include_hidden reads them): a shape of slide 2.",)


def test_an_embedded_file_is_named_in_a_warning_and_the_data_of_a_chart_is_not() -> None:
    parts = {
        **SLIDES,
        "ppt/charts/_rels/chart3.xml.rels": relations(package="../embeddings/Sheet1.xlsx"),
        "ppt/embeddings/Sheet1.xlsx": "",
        "ppt/embeddings/oleObject1.bin": "",
    }
    assert read(zipped(parts)).warnings == ("Embedded files were not read: oleObject1.bin.",)


def test_a_mailbox_an_invitation_and_alternatives_are_read_whole() -> None:
    invitation = (
        "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:設備の点検\nDTSTART;TZID=Asia/Tokyo:20261203T100000\n"
        "LOCATION:二階\\, 北側\nEND:VEVENT\nEND:VCALENDAR\n"
    )
    message = EmailMessage()
    message["Subject"] = "点検"
    message.set_content(" ")
    message.add_alternative("<p>点検は十時からです。</p>", subtype="html")
    message.add_alternative(invitation, subtype="calendar")
    expected = [
        "Subject: 点検",
        "点検は十時からです。",
        "Subject: 設備の点検\nStart: 2026-12-03 10:00\nPlace: 二階, 北側",
    ]
    assert [passage.text for passage in read(message.as_bytes(), "a.eml").passages] == expected
    separator = b"From a@example.com Mon Jan  5 10:00:00 2026\n"
    mailbox = separator + message.as_bytes() + b"\n" + separator + b"Subject: next\n\n>From here on it rains.\n"
    read_box = read(mailbox, "Inbox")
    assert [passage.text for passage in read_box.passages] == [*expected, "Subject: next", "From here on it rains."]
    assert {passage.headings for passage in read_box.passages} == {("点検",), ("next",)}


def test_a_mailbox_without_dates_is_read_whole() -> None:
    box = b"From - \nSubject: one\n\nfirst\n\nFrom - \nSubject: two\n\nsecond\n"
    texts = [passage.text for passage in read(box, "Sent.mbox").passages]
    assert texts == ["Subject: one", "first", "Subject: two", "second"]


def test_a_calendar_says_who_comes_how_long_it_takes_and_what_it_is_about() -> None:
    calendar = (
        "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:会議\nDTSTART:20261203T010000Z\nDURATION:PT1H\n"
        'ORGANIZER;CN="総務: 佐藤":mailto:sato@example.com\nATTENDEE;CN=鈴木;PARTSTAT=ACCEPTED:mailto:s@example.com\n'
        "CATEGORIES:定例\nCOMMENT:資料を\n 持参\nEND:VEVENT\nBEGIN:VTODO\nSUMMARY:報告\nDUE:20261204\nLOCATION:本社\n"
        "END:VTODO\nEND:VCALENDAR\n"
    )
    meeting = (
        "Subject: 会議\nStart: 2026-12-03 01:00 UTC\nDuration: PT1H\nOrganizer: 総務: 佐藤 <sato@example.com>\n"
        "Attendee: 鈴木 <s@example.com>\nCategories: 定例\nComment: 資料を持参"
    )
    texts = [passage.text for passage in read(calendar.encode(), "a.ics").passages]
    assert texts == [meeting, "Subject: 報告\nDue: 2026-12-04\nPlace: 本社"]


def test_an_address_book_is_read_without_its_pictures() -> None:
    name = "".join(f"={byte:02X}" for byte in "山田;太郎".encode("cp932"))
    telephone = (
        f"BEGIN:VCARD\nVERSION:2.1\nN;CHARSET=SHIFT_JIS;ENCODING=QUOTED-PRINTABLE:{name[:12]}=\n{name[12:]}\n"
        "TEL;HOME;VOICE:03-1234-5678\nPHOTO;ENCODING=BASE64;JPEG:\n abcdef==\n\nEND:VCARD\n"
    )
    other = "BEGIN:VCARD\nFN:Ann Lee\nN:Lee;Ann;;;\nitem1.ADR;TYPE=HOME:;;1 Main\\, St;Town;;;\nNOTE:a\\nb\nEND:VCARD\n"
    passages = read((telephone + other).encode(), "contacts.vcf").passages
    assert [(passage.headings, passage.text) for passage in passages] == [
        (("山田 太郎",), "Name: 山田 太郎\nTelephone: 03-1234-5678"),
        (("Ann Lee",), "Name: Ann Lee\nAddress: 1 Main, St Town\nNote: a\nb"),
    ]


def test_the_last_card_or_event_of_a_file_that_is_cut_is_read() -> None:
    cards = "BEGIN:vCard\nFN:Ann\nTEL:1\nBEGIN:VCARD\nN:Lee;Bob;;Dr.\nFN:Bob\nTEL:2\nEN"
    passages = read(cards.encode(), "a.vcf").passages
    assert [passage.text for passage in passages] == [
        "Name: Ann\nTelephone: 1",
        "Name: Bob (Lee Bob Dr.)\nTelephone: 2",
    ]
    events = "BEGIN:VCALENDAR\nBEGIN:vevent\nSUMMARY:one\nBEGIN:VALARM\nEND:VALARM\nBEGIN:VEVENT\nSUMMARY:two\nLOC"
    assert [passage.text for passage in read(events.encode(), "a.ics").passages] == ["Subject: one", "Subject: two"]


def test_a_patch_in_the_text_of_a_message_begins_no_other_message() -> None:
    patch = f"From {'0a' * 20} Mon Sep 17 00:00:00 2001\nFrom: a@example.com\nSubject: fix\n\nIt was wrong.\n"
    box = (
        "From b@example.com Sat Feb  5 09:19:10 2022\nSubject: Re: fix\nMIME-Version: 1.0\n"
        f"Content-Type: multipart/mixed; boundary=x\n\n--x\n\nSee below.\n--x\nContent-Type: text/x-diff\n"
        f"Content-Disposition: inline; filename=fix.patch\n\n{patch}\n--x\n\nRegards\n--x--\n"
    )
    message = read(box.encode(), "a.mbox")
    texts = ["Subject: Re: fix", "See below.", "Regards", "From: a@example.com\nSubject: fix", "It was wrong."]
    assert ([passage.text for passage in message.passages], message.warnings) == (texts, ())
    two = read((patch + patch.replace("fix", "mend")).encode(), "fix.patch").passages
    assert [passage.headings for passage in two] == [("fix",), ("fix",), ("mend",), ("mend",)]


def test_cells_that_cover_others_are_in_each_of_them_and_a_title_is_once() -> None:
    page = (
        "<table><tr><td colspan=3>料金表</td></tr><tr><th>地域</th><th>品目</th><th>料金</th></tr>"
        "<tr><td rowspan=2>北区</td><td>傘</td><td>100</td></tr><tr><td colspan=2>休止</td></tr></table>"
    )
    (table,) = read(page.encode(), "a.html").passages
    assert table.text.splitlines() == ["料金表", "地域 | 品目 | 料金", "北区 | 傘 | 100", "北区 | 休止 | 休止"]
    assert table.head_lines == 2


def test_a_paragraph_in_a_cell_that_covers_others_is_once() -> None:
    note = "Counted by hand. " * 15
    page = f"<table><tr><th>a<th>b<th>c</tr><tr><td>1<td rowspan=2 colspan=2>{note}</tr><tr><td>2</tr></table>"
    (table,) = read(page.encode(), "a.html").passages
    assert table.text.splitlines() == ["a | b | c", f"1 | {note.strip()}", "2"]
    sheet = (
        f'<s {_S}><row r="1"><c r="A1" t="inlineStr"><is><t>{note}</t></is></c></row><row r="2"><c r="B2"><v>7</v></c>'
        '</row><mergeCell ref="A1:A9"/></s>'
    )
    sheets = texts(WORKBOOK | {"xl/worksheets/sheet1.xml": sheet})
    assert sheets[0].splitlines() == [note.strip(), " | 7"]


def test_the_numbers_of_open_document_headings_and_items_are_part_of_the_text() -> None:
    names = 'xmlns:text="urn:text" xmlns:style="urn:style"'
    content = f"""<office:document-content xmlns:office="urn:office" {names}><text:list-style style:name="L">
        <text:list-level-style-number text:level="1" style:num-prefix="第" style:num-suffix="条" style:num-format="1"/>
        <text:list-level-style-number text:level="2" style:num-suffix="." style:num-format="一, 二, 三, ..."/>
        </text:list-style><text:h text:outline-level="1">総則</text:h><text:h text:outline-level="2">目的</text:h>
        <text:list text:style-name="L"><text:list-item><text:p>定義</text:p><text:p>続き</text:p><text:list>
        <text:list-item><text:p>備品</text:p></text:list-item></text:list></text:list-item>
        <text:list-item><text:p>貸出</text:p></text:list-item></text:list></office:document-content>"""
    styles = f"""<s {names}><text:outline-style><text:outline-level-style text:level="1" style:num-format="1"/>
        <text:outline-level-style text:level="2" style:num-format="1" text:display-levels="2"/>
        </text:outline-style></s>"""
    passages = read(zipped({"mimetype": "", "content.xml": content, "styles.xml": styles})).passages
    assert {passage.headings for passage in passages} == {("1 総則", "1.1 目的")}
    assert [passage.text for passage in passages] == ["第1条 定義", "続き", "一. 備品", "第2条 貸出"]


def test_a_saved_page_is_read_as_a_page_without_a_head_and_its_pictures() -> None:
    page = (
        "From: <Saved by Blink>\nSubject: =?utf-8?B?5paZ6YeR?=\nMIME-Version: 1.0\n"
        'Content-Type: multipart/related; boundary="b"\n\n--b\nContent-Type: text/html; charset=utf-8\n'
        "Content-Location: https://example.com/\n\n<h1>料金</h1><p>傘は100円です。</p>\n--b\nContent-Type: image/png\n"
        "Content-Location: https://example.com/a.png\nContent-Transfer-Encoding: base64\n\niVBORw0KGgo=\n--b--\n"
    )
    saved = read(page.encode(), "page.mhtml")
    assert (saved.title, saved.warnings) == ("料金", ())
    assert [(passage.headings, passage.text) for passage in saved.passages] == [(("料金",), "傘は100円です。")]


def test_a_message_that_smime_encrypts_says_so() -> None:
    head = (
        "Subject: a\nMIME-Version: 1.0\nContent-Type: application/pkcs7-mime; smime-type=enveloped-data; name=smime.p7m"
    )
    message = read(f"{head}\nContent-Transfer-Encoding: base64\n\nMIIBAAAA\n".encode(), "a.eml")
    assert [passage.text for passage in message.passages] == ["Subject: a"]
    assert message.warnings == ("The text of the message is encrypted and was not read.",)


def test_parts_after_the_end_of_a_malformed_message_are_named() -> None:
    mail = (
        'Subject: photo\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="b"\n\n--b\n'
        'Content-Type: multipart/alternative; boundary="b"\n\n--b\nContent-Type: text/plain\n\nHello.\n--b--\n\n--b\n'
        'Content-Type: application/zip; name="photo.zip"\n\nPK\n--b--\n'
    )
    parsed = read(mail.encode(), "a.eml")
    assert [passage.text for passage in parsed.passages] == ["Subject: photo", "Hello."]
    assert parsed.warnings == ("The message is malformed, and what is behind its end was not read: photo.zip.",)


def test_hidden_sheets_and_rows_are_left_out_with_a_warning_and_read_if_asked_for() -> None:
    sheet = WORKBOOK["xl/worksheets/sheet1.xml"].replace('<row><c r="A2"', '<row hidden="1"><c r="A2"')
    content = zipped({**WORKBOOK, "xl/worksheets/sheet1.xml": sheet})
    shown, whole = (
        parse_blob(Blob(content, "a.xlsx"), ParseLimits(include_hidden=is_read)) for is_read in (False, True)
    )
    assert len(shown.passages[0].text) < len(whole.passages[0].text)
    assert [warning.split(" of ")[0] for warning in (*shown.warnings, *whole.warnings)] == [
        "Parts that are hidden were left out (include_hidden reads them): rows",
        "Parts that are hidden were read as well: rows",
    ]
