"""Documents as public reports describe them: nothing of their text is lost (docs/development/reports.md)."""

from __future__ import annotations

import base64
import io
import zipfile
from collections.abc import Mapping

import pytest

from mcp_servers.knowledge.importing.documents import Blob, ParseLimits
from mcp_servers.knowledge.importing.parse import parse_blob
from tests.mcp_servers.knowledge.importing.test_office import BOOK, SLIDES, WORKBOOK, relations, zipped
from tests.support.imported import docx, paragraph

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
_MC = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
_RUN = "<w:r><w:t>{}</w:t></w:r>"
HEAD = "From: a@example.org\nSubject: S\n"


def _read(content: bytes, name: str) -> list[str]:
    """The passages of a document, headings before their text."""
    passages = parse_blob(Blob(content, name), ParseLimits()).passages
    return [" > ".join((*passage.headings, passage.text)) for passage in passages]


def _styled(style: str) -> dict[str, bytes]:
    related = relations(styles="styles.xml")
    return {
        "word/styles.xml": f"<w:styles {_W}>{style}</w:styles>".encode(),
        "word/_rels/document.xml.rels": related.encode(),
    }


def _numbered(definition: str) -> dict[str, bytes]:
    related = relations(numbering="numbering.xml")
    content = f"<w:numbering {_W}>{definition}</w:numbering>"
    return {"word/numbering.xml": content.encode(), "word/_rels/document.xml.rels": related.encode()}


def _para(inside: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr>{inside}</w:p>"


def _signs(*instructions: str) -> str:
    runs = "".join(f"<w:r><w:instrText>{part}</w:instrText></w:r>" for part in instructions)
    begin, end = (f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "end"))
    return begin + runs + end


def _cell(text: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{paragraph(text)}</w:tc>"


def _box(text: str) -> str:
    inside = f"<w:txbxContent>{paragraph(text)}</w:txbxContent>"
    return f'<mc:Choice><w:drawing><s:txbx xmlns:s="s">{inside}</s:txbx></w:drawing></mc:Choice>'


_SPAN = '<w:gridSpan w:val="2.0"/>'
_STYLE = '<w:style w:type="paragraph" w:styleId="{}"><w:name w:val="{}"/>{}</w:style>'
_LEVEL_1 = '<w:pPr><w:outlineLvl w:val="0"/></w:pPr>'
_STYLE_1 = _STYLE.format("1", "heading 1", "")
_HEADING_2 = _STYLE.format("B", "heading 2", "")
_RESTART, _GO_ON = '<w:vMerge w:val="restart"/>', "<w:vMerge/>"
_TICK = 'xmlns:t="http://schemas.microsoft.com/office/word/2010/wordml"'
_CHECK = (
    f"<w:sdt><w:sdtPr><t:checkbox {_TICK}><t:checked t:val='{{}}'/></t:checkbox></w:sdtPr>"
    f"<w:sdtContent>{_RUN.format('☒')}</w:sdtContent></w:sdt>"
)
_LIST_FIELD = (
    '<w:r><w:fldChar w:fldCharType="begin"><w:ffData><w:ddList><w:result w:val="1"/><w:listEntry w:val="東京"/>'
    '<w:listEntry w:val="大阪"/></w:ddList></w:ffData></w:fldChar></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r>'
)
_OLD_BOX = (
    '<w:r><w:fldChar w:fldCharType="begin"><w:ffData><w:checkBox><w:checked/></w:checkBox></w:ffData></w:fldChar></w:r>'
    '<w:r><w:instrText>FORMCHECKBOX</w:instrText></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r>'
)
_SHAPES = 'xmlns:v="urn:schemas-microsoft-com:vml"'
_ART = f'<w:r><w:pict {_SHAPES}><v:shape><v:textpath string="見出し文字"/></v:shape></w:pict></w:r>'
_PICTURE = (
    '<w:r><w:drawing><p:inline xmlns:p="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing">'
    '<a:graphic xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"><a:graphicData><c:pic '
    'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/picture"><c:blipFill><a:blip r:embed="r9"/></c:blipFill>'
    "</c:pic></a:graphicData></a:graphic></p:inline></w:drawing></w:r>"
)


@pytest.mark.parametrize(
    ("body", "parts", "read"),
    [
        (paragraph("文"), _styled('<w:style w:styleId="X"><w:name w:val="x"/></w:style>'), ["文"]),
        (paragraph("文"), _styled('<w:style w:type="paragraph"><w:name w:val="x"/></w:style>'), ["文"]),
        (paragraph("節", heading=1) + paragraph("文"), _styled('<w:style w:styleId="X"/>' + _STYLE_1), ["節 > 文"]),
        (
            _para(_RUN.format("文"), '<w:numPr><w:numId w:val="1"/></w:numPr>'),
            _numbered('<w:num w:numId="1"/>'),
            ["文"],
        ),
        (
            _para(_RUN.format("文") + '<w:r><w:footnoteReference w:id="7"/></w:r><w:r><w:endnoteReference/></w:r>'),
            {},
            ["文"],
        ),
        (_para(f'<w:hyperlink {_R} r:id="r77">{_RUN.format("先")}</w:hyperlink>'), {}, ["先"]),
        (f"<w:p {_R}>{_PICTURE}{_RUN.format('絵の後')}</w:p>", {}, ["絵の後"]),
        (f"<w:tbl><w:tr>{_cell('A', _SPAN)}{_cell('B')}</w:tr></w:tbl>", {}, ["A | B"]),
        (_para("<w:r><w:sym/><w:t>a</w:t><w:cr/><w:t>b</w:t></w:r>"), {}, ["a\nb"]),
        (
            (
                f"<w:tbl><w:tr>{_cell('A', _RESTART)}{_cell('B')}</w:tr><w:bookmarkStart w:name='m'/>"
                f"<w:tr>{_cell('', _GO_ON)}{_cell('C')}</w:tr></w:tbl>"
            ),
            {},
            ["A | B\nA | C"],
        ),
        (
            _para(_RUN.format("地の文") + f"<w:r><mc:AlternateContent {_MC}>{_box('箱')}</mc:AlternateContent></w:r>"),
            {},
            ["地の文", "箱"],
        ),
        (_para(_ART), {}, ["見出し文字"]),
        (_para(_signs(" eq \\o\\ac(○,印)") + _RUN.format("を押す").replace('"', "'")), {}, ["印を押す"]),
        (_para(_signs('EQ \\* jc2 \\* "Font:ＭＳ" \\* hps10 \\o\\ad(\\s\\up 9(', "かんじ", "),漢字)")), {}, ["漢字"]),
        (
            _para(_CHECK.format(1) + _RUN.format("はい")) + _para(_CHECK.format(0) + _RUN.format("いいえ")),
            {},
            ["☑ はい", "☐ いいえ"],
        ),
        (_para(_OLD_BOX + _RUN.format("賛成")) + _para(_LIST_FIELD), {}, ["☑ 賛成", "大阪"]),
        (
            _para(_RUN.format("節"), '<w:pStyle w:val="N"/>') + paragraph("文"),
            _styled(_STYLE.format("N", "Nadpis [1]", _LEVEL_1)),
            ["節 > 文"],
        ),
        (
            _para(_RUN.format("節"), '<w:pStyle w:val="C"/>') + paragraph("文"),
            _styled(_HEADING_2 + _STYLE.format("C", "社の'節'", '<w:basedOn w:val="B"/>')),
            ["節 > 文"],
        ),
        (_para(_RUN.format("節"), '<w:outlineLvl w:val="1"/>') + paragraph("文"), {}, ["節 > 文"]),
    ],
)
def test_a_word_document_that_word_repairs_is_read(body: str, parts: dict[str, bytes], read: list[str]) -> None:
    assert _read(docx(body, extra=parts), "a.docx") == read


def test_a_word_document_with_a_damaged_part_is_read_without_it() -> None:
    body = paragraph("節", heading=1) + paragraph("文")
    parsed = parse_blob(Blob(docx(body, extra={"word/styles.xml": b"<a"}), "a.docx"), ParseLimits())
    assert [(passage.headings, passage.text) for passage in parsed.passages] == [((), "節"), ((), "文")]
    assert "its text was read without its styles" in parsed.warnings[0]


def _cells(cells: str, **parts: str) -> Mapping[str, str]:
    sheet = f'<worksheet xmlns="s"><sheetData><row r="1">{cells}</row></sheetData></worksheet>'
    return {**WORKBOOK, "xl/worksheets/sheet1.xml": sheet, **parts}


_STRINGS = '<sst xmlns="s"><si><t>a_x000A_b</t></si><si><t/></si></sst>'
_SHAPE = '<p:sp xmlns:p="p"><a:p xmlns:a="a"><a:r><a:t>{}</a:t></a:r></a:p></p:sp>'
_FORMS = f"<mc:Choice>{_SHAPE}</mc:Choice><mc:Fallback>{_SHAPE}</mc:Fallback>"
_BOTH = f"<mc:AlternateContent {_MC}>{_FORMS}</mc:AlternateContent>"
_HALF = (
    '<p:sp xmlns:p="p"><a:p xmlns:a="a"><m:oMath xmlns:m="m"><m:f><m:num><m:r><m:t>1</m:t></m:r></m:num>'
    "<m:den><m:r><m:t>2</m:t></m:r></m:den></m:f></m:oMath></a:p></p:sp>"
)
_CASE = {name.replace("sheet1.xml", "Sheet1.XML"): content for name, content in _cells("<c><v>7</v></c>").items()}


@pytest.mark.parametrize(
    ("parts", "read"),
    [
        (
            _cells('<c><v>2</v></c><c><f>A1*3</f></c><c t="str"><f>A1&amp;"x"</f><v></v></c>'),
            ['支店 > 2 | =A1*3 | =A1&"x"'],
        ),
        (
            _cells(
                '<c t="s"><v>0</v></c><c t="s"><v>1</v></c><c t="s"><v>9</v></c><c><v>x1</v></c>',
                **{"xl/sharedStrings.xml": _STRINGS},
            ),
            ["支店 > a b |  |  | x1"],
        ),
        (_cells('<c s="x"><v>1</v></c><c s="99"><v>2</v></c>'), ["支店 > 1 | 2"]),
        (_CASE, ["支店 > 7"]),
        (
            {
                **SLIDES,
                "ppt/slides/slide10.xml": f"<p><g>{_SHAPE.format('群')}</g>{_BOTH.replace('{}', '式')}{_HALF}</p>",
            },
            ["群", "式", "1/2", "ここで話す", "最後", "月別", " | 4月 | 5月 | 6月\n東京 | 1 |  | 3", "受付\n審査"],
        ),
        (
            {**SLIDES, "ppt/slides/_rels/slide1.xml.rels": relations(chart="../charts/none.xml")},
            ["売上 > 前年より増えた。", "売上 > 月 | 額", "売上 > ここで話す", "売上 > 最後"],
        ),
        (
            {
                **BOOK,
                "OEBPS/a.opf": BOOK["OEBPS/a.opf"]
                .replace('"a.xhtml"', '"/OEBPS/a.xhtml#s"')
                .replace("<manifest>", "<title>A & B</title><manifest>")
                .replace('"b.xhtml"', '".\\b.xhtml"')
                .replace("<manifest>", '<manifest><item id="x" href="x.xml" media-type="a/b" fallback="b"/>')
                .replace('idref="b"', 'idref="x"'),
            },
            ["一章 > はじめ", "二章 > おわり"],
        ),
    ],
)
def test_a_fault_in_one_part_loses_no_other(parts: Mapping[str, str], read: list[str]) -> None:
    assert _read(zipped(parts), "a") == read


def test_a_damaged_chapter_and_a_missing_slide_are_named_and_the_others_read() -> None:
    book = bytearray(zipped(BOOK))
    entry = zipfile.ZipFile(io.BytesIO(bytes(book))).getinfo("OEBPS/a.xhtml")
    at = book.rindex(b"OEBPS/a.xhtml") - 30
    assert book[at : at + 4] == entry.CRC.to_bytes(4, "little")
    book[at] ^= 1
    parsed = parse_blob(Blob(bytes(book), "a.epub"), ParseLimits())
    assert [passage.text for passage in parsed.passages] == ["おわり"]
    assert parsed.warnings == ("Chapters that the book names are missing or damaged: a.xhtml.",)
    slides = {name: content for name, content in SLIDES.items() if name != "ppt/slides/slide1.xml"}
    assert parse_blob(Blob(zipped(slides), "a.pptx"), ParseLimits()).warnings == (
        "Slides that the presentation names are missing: 1.",
    )


def _word(text: str, charset: str, declared: str = "") -> str:
    return f"=?{declared or charset}?B?{base64.b64encode(text.encode(charset)).decode()}?="


_BODY = base64.b64encode("本文です".encode()).decode()
_PART = (
    'Content-Type: multipart/mixed; boundary="x"\n\n--x\nContent-Type: message/rfc822\n'
    "Content-Transfer-Encoding: base64\n\n{}\n--x--\n"
)
_UTF_8 = "Content-Type: text/plain; charset=utf-8"
_ENCODED = f"{HEAD}{_UTF_8}\nContent-Transfer-Encoding: base64"
_TWO = base64.b64encode("件名が途中".encode()).decode()


@pytest.mark.parametrize(
    ("message", "read"),
    [
        (
            f"{_ENCODED}\n\n{_BODY}\n--\nfooter\n",
            ["本文です\n--\nfooter"],
        ),
        (
            f"{_ENCODED};\n\n{_BODY}\n",
            ["本文です"],
        ),
        (
            HEAD + _PART.format(base64.b64encode(b"Subject: in\n\ninner").decode()),
            ["message 1.eml > Subject: in", "message 1.eml > inner"],
        ),
        (
            f"{HEAD}Content-Type: text/plain; charset=utf-8; format=flowed; delsp=yes\n\n長い行が \n続く。\n",
            ["長い行が続く。"],
        ),
        (
            (
                f"{HEAD}Content-Type: multipart/mixed; boundary=x\n\n--x\nContent-Disposition: attachment;\n"
                f" filename*1*=%71%35%44%1B%28%42;\n filename*0*=iso-2022-jp''%1B%24%42%32\n\n本文\n--x--\n"
            ),
            ["会議 > 本文"],
        ),
        (f"{HEAD}Content-Type: text/enriched\n\n<bold>本</bold>文 <<b>\n", ["本文 <b>"]),
        (
            f"{HEAD}Content-Type: text/plain\n\na\n=ybegin size=3 name=k.txt\n".encode()
            + bytes((*(code + 42 for code in b"ke"), 61, (ord("y") + 42 + 64) % 256))
            + b"\n=yend size=3\nb\n",
            ["a", "b", "k.txt > key"],
        ),
        (f'{HEAD}Content-Type: text/plain; charset="gb2312"\n\n'.encode() + "お世話".encode("gbk"), ["お世話"]),
        (f"{HEAD}Content-Type: text/plain; charset=iso-2022-jp\n\n".encode() + b"\x1b$B-!-j|b\x1b(B a", ["①㈱髙 a"]),
    ],
)
def test_the_text_of_a_mail_is_decoded_as_programs_write_it(message: str | bytes, read: list[str]) -> None:
    content = message if isinstance(message, bytes) else message.encode()
    assert _read(content, "a.eml")[1:] == read


@pytest.mark.parametrize(
    ("head", "subject"),
    [
        ("Subject: 会議の件".encode("cp932"), "会議の件"),
        (f"Subject: {_word('陳瑋', 'gbk', 'gb2312')}".encode(), "陳瑋"),
        (f"Subject: =?utf-8?B?{_TWO[:8]}?=\n =?utf-8?B?{_TWO[8:]}?=".encode(), "件名が途中"),
        (b"\xef\xbb\xbfSubject: S", "S"),
        (b"\r\nSubject: S", "S"),
        (b"27\nContent-Type: x\nSubject: S", "S"),
    ],
)
def test_the_subject_of_a_mail_is_decoded_as_programs_write_it(head: bytes, subject: str) -> None:
    assert parse_blob(Blob(head + b"\n\nbody\n", "a.eml"), ParseLimits()).title == subject


_EVENT = "BEGIN:VCALENDAR\nBEGIN:VEVENT\n{}\nEND:VEVENT\nEND:VCALENDAR\n"
_SHEETS = (
    '<?xml version="1.0"?>\n<Workbook xmlns="urn:schemas-microsoft-com:office:spreadsheet" xmlns:ss="s"><Styles>'
    '<Style ss:ID="p"><NumberFormat ss:Format="0%"/></Style></Styles><Worksheet ss:Name="在庫"><Table><Row><Cell '
    'ss:MergeDown="1"><Data ss:Type="String">布団</Data></Cell><Cell ss:StyleID="p"><Data ss:Type="Number">.5</Data>'
    '</Cell></Row><Row><Cell ss:Index="2"><Data ss:Type="DateTime">2026-01-02T00:00:00.000</Data></Cell></Row>'
    '<Row ss:Hidden="1"><Cell><Data ss:Type="String">x</Data></Cell></Row></Table></Worksheet></Workbook>'
)
_FRACTION = "<math><mfrac><mi>d</mi><mn>12</mn></mfrac></math>"
_OPEN = 'xmlns:office="o" xmlns:text="t"'
_RAISED = (
    f'<office:document {_OPEN}><s:style xmlns:s="s" s:name="T1">'
    '<s:text-properties s:text-position="super 58%"/></s:style>'
    '<text:p>10<text:span text:style-name="T1">3</text:span> m<text:span>2</text:span></text:p></office:document>'
)
_ROWS = (
    r"{\rtf1 x\par{\trowd\cellx1\cellx2{\pard\intbl a\par}{\pard\intbl b\par}\cell{\pard\intbl z\par}\cell\row}"
    r"{\trowd\cellx1\pard\intbl c\cell d\cell\row}\pard e}"
)
_FLAT_WORD = (
    '<?xml version="1.0"?><w:wordDocument xmlns:w="http://schemas.microsoft.com/office/word/2003/wordml"><w:body>'
    "<w:p><w:r><w:t>本文</w:t></w:r></w:p></w:body></w:wordDocument>"
)
_TEX = r'<semantics><mi>E</mi><annotation encoding="application/x-tex">{\displaystyle E=m}</annotation></semantics>'


@pytest.mark.parametrize(
    ("name", "text", "read"),
    [
        ("a.md", "\ufeff---\r\ntitle: T\r\ntags: [猫]\r\n---\r\n文", ["tags: [猫]", "文"]),
        ("a.xls", _SHEETS, ["在庫 > 布団 | 50%\n布団 | 2026-01-02"]),
        (
            "a.fodt",
            f"<office:document {_OPEN}><text:p>a {_FRACTION} b</text:p></office:document>",
            ["a d/12 b"],
        ),
        ("a.docbook", f"<article><para>a {_FRACTION} b</para></article>", ["a d/12 b"]),
        ("a.rtf", r"{\rtf1 {\mmath{\*\moMath{\mf{\mnum d}{\mden{\mr 12}}}{\msSup{\me 10}{\msup 6}}}}}", ["d/12 10^6"]),
        ("a.doc", _FLAT_WORD, ["本文"]),
        ("a.svg", "<svg><text>a</text><g style='display:none'><text>b</text></g></svg>", ["a"]),
        ("a.ics", _EVENT.format("SUMMARY:a\n b").replace("\n", "\r"), ["Subject: ab"]),
        ("a.uu", "begin 644 k.txt\n#:V5Y\n`\nend\n", ["k.txt > key"]),
        ("a.md", "---\ntitle: T\n---", ["T"]),
        ("a.md", "\n--- \ntitle: >-\n  T\n...\n文", ["文"]),
        ("a.md", r"\*星\* a\_b &lt;x&gt; `a\_b &lt;`", [r"*星* a_b <x> a\_b &lt;"]),
        ("a.md", "a<br>b [c](http://d/e_(f)) g", ["a b c g"]),
        ("a.md", "文\n\n    x = 1\n    y = 2\n\n***\n次", ["文", "x = 1\ny = 2", "次"]),
        ("a.html", "<ul><li><input type=checkbox checked> 済<li><input type=checkbox> 未</ul>", ["- ☑ 済", "- ☐ 未"]),
        (
            "a.html",
            f"<p>a <span class=katex><span><math>{_TEX}</math></span><span aria-hidden=true>E=m</span></span></p>",
            ["a E=m"],
        ),
        ("a.html", f'<p>a <span style="display: none;"><math>{_TEX}</math></span><img alt="E=m"> b</p>', ["a E=m b"]),
        (
            "a.html",
            "<table><tr><th>c<th>d<tr><td><pre>ls -l</pre><td>list</table><pre>a<br>b</pre>",
            ["c | d\nls -l | list", "a\nb"],
        ),
        ("a.html", '<div role="tabpanel">Linux</div><div role="tabpanel" hidden>macOS</div>', ["Linux", "macOS"]),
        (
            "a.html",
            '<?xml version="1.0"?><!DOCTYPE html [<!ENTITY nbsp "&#160;">]><html><p>a&nbsp;b</p></html>',
            ["a b"],
        ),
        (
            "a.html",
            "<p>a <math alttext='no text'><mi>x</mi></math> b <math alttext='no text'><mn>7</mn></math></p>",
            ["a x b 7"],
        ),
        (
            "a.html",
            "<p><m:math><m:mfrac><m:mi>d</m:mi><m:mn>12</m:mn></m:mfrac></m:math>+<math><mroot><mn>2</mn><mn>3</mn></mroot></math></p>",
            ["d/12+∛2"],
        ),
        (
            "a.html",
            (
                "<math><munder><mo>∑</mo><mi>i</mi></munder><mover><mi>x</mi><mo>¯</mo></mover></math> "
                "<math><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr></mtable><msqrt><mn>5</mn></msqrt></math>"
            ),
            ["∑_ix¯ 1, 2√5"],
        ),
        (
            "a.html",
            (
                "<p>a<a role=doc-noteref href=#n>1</a> b&shy;c</p><aside hidden role=doc-footnote>n</aside>"
                "<svg><text><tspan x=1>e</tspan><tspan x=1>f</tspan></text><foreignObject>g<br>h</foreignObject></svg>"
            ),
            ["a^1 bc", "n", "e f\ng h"],
        ),
        ("a.txt", "\x1b[1;32mREADME\x1b[0m \x1b]0;shell\x07built in 120 µs ± 3", ["README built in 120 µs ± 3"]),
        (
            "a.ics",
            _EVENT.format("RDATE:20261201T090000Z,20261208T090000Z\nEXDATE;VALUE=DATE:20261222"),
            ["Also on: 2026-12-01 09:00 UTC, 2026-12-08 09:00 UTC\nNot on: 2026-12-22"],
        ),
        ("a.ics", _EVENT.format("RDATE;VALUE=PERIOD:20261201T090000Z/PT2H"), ["Also on: 2026-12-01 09:00 UTC"]),
        (
            "a.vcf",
            "BEGIN:VCARD\nFN:Mia\nSOUND;ENCODING=b:TWlh\nSOUND;BASE64:TWlh\nTEL:1\nEND:VCARD\n",
            ["Mia > Name: Mia\nTelephone: 1"],
        ),
        (
            "a.vcf",
            'BEGIN:VCARD\nFN;LANGUAGE=ja:緑会\nFN;LANGUAGE=en:Green\nTEL;TYPE="a,b;c:d":tel:+81\nNOTE:a; b\nORG:c;d',
            ["緑会 > Name: 緑会\nName: Green\nTelephone: +81\nNote: a; b\nOrganization: c d"],
        ),
        (
            "a.ics",
            _EVENT.format('ATTENDEE;CN="D; E: x";PARTSTAT=\n ACCEPTED:mailto:d@x'),
            ["Attendee: D; E: x <d@x>"],
        ),
        ("a.ics", _EVENT.format("SUMMARY;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:=E9=\n=8D=B5"), ["Subject: 鍵"]),
        ("a.rtf", r"{\rtf1 a{\super {\*\footnote\ftnalt n}} b\par c}", ["a b", "n", "c"]),
        ("a.rtf", r"{\rtf1 a\'e9\u26085?b\u-10174?\u-8289?\'e9c}", ["aé日b𠮟éc"]),
        (
            "a.rtf",
            r"{\rtf1 H{\sub 2}O, 10{\sub 2}, 10{\super \u8722?3}, m\up6 2\up0  3\super 2\nosupersub 4}",
            ["H2O, 10_2, 10^−3, m^2 3^24"],
        ),
        (
            "a.rtf",
            _ROWS,
            ["x\na b | z\nc | d\ne"],
        ),
        (
            "a.fodt",
            _RAISED,
            ["10^3 m2"],
        ),
        # As LibreOffice writes it.
        ("a.rtf", r"{\rtf1\uc1 a\u26085\'3f\uc0 \u55362\uc1 \u57247\'3f\u12427\'3f b}", ["a日𠮟る b"]),
        (
            "a.rtf",
            r"{\rtf1 a{\field{\*\fldinst{EQ \\o(\\s\\up 9(k),b)}}{\fldrslt }}c {\field{\*\fldinst PAGE}{\fldrslt 1}}}",
            ["abc 1"],
        ),
        ("a.html", f"<h1>{'長' * 400}</h1><p>文</p>", ["長" * 300 + " > " + "長" * 400, "長" * 300 + " > 文"]),
    ],
)
def test_marks_of_text_are_read_as_people_write_them(name: str, text: str, read: list[str]) -> None:
    assert _read(text.encode(), name) == read
