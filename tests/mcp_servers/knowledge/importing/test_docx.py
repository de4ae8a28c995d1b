from __future__ import annotations

import pytest

from mcp_servers.knowledge.errors import DamagedDocumentError, DocumentImportError, NoTextError, TooLargeError
from mcp_servers.knowledge.importing.documents import Blob, ParseLimits
from mcp_servers.knowledge.importing.parse import parse_blob
from tests.support.imported import docx, paragraph, redact_url, table

DRAWN = 'xmlns:wps="wps"'
VML = 'xmlns:v="urn:schemas-microsoft-com:vml"'
BOTH = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
MATH = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
BODY = (
    paragraph("序文です。")
    + paragraph("契約", heading=1)
    + paragraph("本文は 5 < 6 です。")
    + paragraph("料金", heading=2)
    + table([["品目", "円"], ["基本", "100"]])
)


def read(content: bytes, limits: ParseLimits | None = None) -> list[tuple[str, tuple[str, ...]]]:
    return redact_url(parse_blob(Blob(content, "a.docx"), limits or ParseLimits()).passages)


def test_headings_paragraphs_and_tables_of_a_document_are_read() -> None:
    assert read(docx(BODY)) == [
        ("序文です。", ()),
        ("本文は 5 < 6 です。", ("契約",)),
        ("品目 | 円\n基本 | 100", ("契約", "料金")),
    ]


def test_the_words_below_a_ruby_stay_and_their_reading_is_left_out() -> None:
    def run(text: str) -> str:
        return f"<w:r><w:t>{text}</w:t></w:r>"

    ruby = f"<w:r><w:ruby><w:rubyPr/><w:rt>{run('かいぎ')}</w:rt><w:rubyBase>{run('会議')}</w:rubyBase></w:ruby></w:r>"
    assert read(docx(f"<w:p>{run('次の')}{ruby}{run('は十時')}</w:p>")) == [("次の会議は十時", ())]


def test_text_boxes_of_every_form_and_simple_fields_are_part_of_the_text() -> None:
    def box(text: str) -> str:
        return f"<w:txbxContent>{paragraph(text)}</w:txbxContent>"

    drawing = f"<w:drawing {DRAWN}><wps:wsp><wps:txbx>{box('縦書きの案内')}</wps:txbx></wps:wsp></w:drawing>"
    shape = f"<w:pict {VML}><v:oval><v:textbox>{box('丸の中')}</v:textbox></v:oval></w:pict>"
    forms = f"<mc:Choice>{drawing}</mc:Choice><mc:Fallback>{shape}</mc:Fallback>"
    both = f"<mc:AlternateContent {BOTH}>{forms}</mc:AlternateContent>"
    field = '<w:fldSimple w:instr=" SEQ 図 "><w:r><w:t>3</w:t></w:r></w:fldSimple>'
    body = "".join(f"<w:p><w:r>{inside}</w:r></w:p>" for inside in (drawing, shape, both))
    caption = f"<w:p><w:r><w:t>図</w:t></w:r>{field}</w:p>"
    turned = '<w:p><w:dir w:val="rtl"><w:r><w:t>آذار</w:t></w:r></w:dir></w:p>'
    read_texts = [text for text, _ in read(docx(body + caption + turned))]
    assert read_texts == ["縦書きの案内", "丸の中", "縦書きの案内", "図3", "آذار"]


def test_equations_are_text_and_headers_comments_and_charts_follow_it() -> None:
    names = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:c="c"'
    equation = f"<m:oMathPara {MATH}><m:oMath><m:r><m:t>E=</m:t></m:r><m:r><m:t>mc</m:t></m:r></m:oMath></m:oMathPara>"
    said = {
        f"word/{part}.xml": f"<d {names}><w:p><w:r><w:t>{text}</w:t></w:r></w:p></d>".encode()
        for part, text in (("header1", "社外秘"), ("header2", "社外秘"), ("footer1", "3"))
    }
    comment = '<w:comment w:id="0"><w:p><w:r><w:t>要確認</w:t></w:r></w:p></w:comment>'
    said["word/comments.xml"] = f"<d {names}>{comment}</d>".encode()
    chart = f"<d {names}><c:ser><c:tx><c:v>額</c:v></c:tx><c:val><c:pt idx='1'><c:v>7</c:v></c:pt></c:val></c:ser></d>"
    content = docx(f"<w:p>{equation}</w:p>", extra={**said, "word/charts/chart1.xml": chart.encode()})
    assert sorted(text for text, _ in read(content)) == ["E=mc", "社外秘", "要確認", "額 |  | 7"]


@pytest.mark.parametrize(("title", "called"), [("見積書 & 契約", "見積書 & 契約"), ("", "契約")])
def test_the_title_is_the_properties_one_else_the_first_heading(title: str, called: str) -> None:
    assert parse_blob(Blob(docx(BODY, title=title), "a.docx"), ParseLimits()).title == called


def test_an_archive_that_unpacks_to_more_than_is_read_is_not_unpacked() -> None:
    bomb = docx(BODY, extra={"word/media/a": bytes(3_000_000)})
    assert len(bomb) < 10_000
    with pytest.raises(TooLargeError, match=r"a\.docx is too large: it unpacks to 3 MB in 6 parts"):
        read(bomb, ParseLimits(unpacked_bytes=1_000_000))


def test_entities_that_multiply_do_not_fill_the_memory() -> None:
    entities = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(9))
    xml = f'<!DOCTYPE d [<!ENTITY e0 "lol">{entities}]><d>&e9;</d>'
    with pytest.raises(DamagedDocumentError, match=r"a\.docx is damaged"):
        read(docx(BODY, extra={"word/document.xml": xml.encode()}))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_a_truncated_document_is_reported_as_damaged(share: float) -> None:
    whole = docx(BODY)
    with pytest.raises(DamagedDocumentError, match="cut off or broken"):
        read(whole[: int(len(whole) * share)])


@pytest.mark.parametrize("place", range(40, 1000, 160))
def test_a_document_with_a_wrong_byte_becomes_a_sentence_or_text(place: int) -> None:
    content = bytearray(docx(BODY))
    content[place] ^= 0xFF
    try:
        assert read(bytes(content))
    except DocumentImportError as problem:
        assert str(problem).startswith("a.docx ")


def test_a_document_of_pictures_only_has_no_text() -> None:
    with pytest.raises(NoTextError, match=r"a\.docx has no text"):
        read(docx("<w:p/>"))


def run(text: str, properties: str = "") -> str:
    return f"<w:r><w:rPr>{properties}</w:rPr><w:t>{text}</w:t></w:r>"


def maths(inside: str) -> str:
    return f"<w:p><m:oMath {MATH}>{inside}</m:oMath></w:p>"


def sign(text: str) -> str:
    return f"<m:r><m:t>{text}</m:t></m:r>"


_POWER = f"<m:sSup><m:e>{sign('10')}</m:e><m:sup>{sign('3')}</m:sup></m:sSup>"
_SUM = f"{sign('a')}{sign('+')}{sign('b')}"
_NARY = '<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr>{}</m:nary>'


@pytest.mark.parametrize(
    ("equation", "text"),
    [
        (f"<m:f><m:num>{sign('1')}</m:num><m:den>{sign('2')}</m:den></m:f>", "1/2"),
        (f"<m:f><m:num>{_SUM}</m:num><m:den>{_POWER}</m:den></m:f>", "(a+b)/(10^3)"),
        (_POWER, "10^3"),
        (f"<m:sSub><m:e>{sign('x')}</m:e><m:sub>{sign('ij')}</m:sub></m:sSub>", "x_ij"),
        (
            f"<m:sSubSup><m:e>{sign('x')}</m:e><m:sub>{sign('1')}</m:sub><m:sup>{_SUM}</m:sup></m:sSubSup>",
            "x_1^(a+b)",
        ),
        (f"<m:rad><m:deg/><m:e>{sign('2')}</m:e></m:rad>", "√2"),
        (f"<m:rad><m:deg>{sign('3')}</m:deg><m:e>{_SUM}</m:e></m:rad>", "∛(a+b)"),
        (_NARY.format(f"<m:sub>{sign('i=1')}</m:sub><m:sup>{sign('n')}</m:sup><m:e>{sign('i')}</m:e>"), "∑_(i=1)^n i"),
        (f"<m:d><m:dPr><m:begChr m:val='['/><m:endChr m:val=']'/></m:dPr><m:e>{_SUM}</m:e></m:d>", "[a+b]"),
        (f"<m:d><m:e>{sign('a')}</m:e><m:e>{sign('b')}</m:e></m:d>", "(a|b)"),
        (f"<m:func><m:fName>{sign('sin')}</m:fName><m:e>{sign('x')}</m:e></m:func>", "sin x"),
        (
            f"<m:m><m:mr><m:e>{sign('1')}</m:e><m:e>{sign('0')}</m:e></m:mr><m:mr><m:e>{sign('0')}</m:e></m:mr></m:m>",
            "1, 0; 0",
        ),
    ],
)
def test_an_equation_is_written_on_one_line(equation: str, text: str) -> None:
    assert read(docx(maths(equation))) == [(text, ())]


def test_hidden_text_is_left_out_with_a_warning_unless_it_is_asked_for() -> None:
    shown = run("文", '<w:vanish w:val="0"/>')
    body = f"<w:p>{run('見える')}{run('隠した', '<w:vanish/>')}{shown}</w:p>"
    parsed = parse_blob(Blob(docx(body), "a.docx"), ParseLimits())
    assert redact_url(parsed.passages) == [("見える文", ())]
    assert "hidden text" in parsed.warnings[0]
    assert read(docx(body), ParseLimits(include_hidden=True)) == [("見える隠した文", ())]


def test_deleted_text_is_left_out_and_a_deleted_mark_joins_its_paragraphs() -> None:
    deleted = "<w:del><w:r><w:delText>古い</w:delText></w:r></w:del>"
    joined = f"<w:p><w:pPr><w:rPr><w:del/></w:rPr></w:pPr>{run('前半')}</w:p><w:p>{run('後半')}</w:p>"
    row = f"<w:tr><w:trPr><w:del/></w:trPr><w:tc>{paragraph('x')}</w:tc><w:tc>{paragraph('y')}</w:tc></w:tr>"
    kept = f"<w:tr><w:tc>{paragraph('A')}</w:tc><w:tc>{paragraph('B')}</w:tc></w:tr>"
    body = f"<w:p>{deleted}<w:ins>{run('新しい')}</w:ins></w:p>{joined}<w:tbl>{row}{kept}</w:tbl>"
    assert [text for text, _ in read(docx(body))] == ["新しい", "前半後半", "A | B"]


def test_symbols_of_fonts_raised_digits_and_descriptions_of_pictures_are_text() -> None:
    symbols = '<w:r><w:sym w:font="Wingdings" w:char="F0FC"/><w:sym w:font="Symbol" w:char="F061"/></w:r>'
    private = run("\uf0b3", '<w:rFonts w:ascii="Symbol"/>')
    raised = run("10") + run("3", '<w:vertAlign w:val="superscript"/>') + run(" m")
    drawing = '<w:r><w:drawing><d:inline xmlns:d="d"><d:docPr descr="{}"/></d:inline></w:drawing></w:r>'
    pictures = (drawing.format(text) for text in ("棚の写真", "IMG_2031.jpg", "image12"))
    lines = (symbols + private, raised, *pictures)
    body = "".join(f"<w:p>{line}</w:p>" for line in lines)
    assert [text for text, _ in read(docx(body))] == ["✓α≥", "10^3 m", "棚の写真"]


def test_notes_and_comments_follow_their_paragraph() -> None:
    names = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    note = "<w:{0}s {1}><w:{0} w:id='2'>{2}</w:{0}></w:{0}s>"
    parts = {
        f"word/{kind}s.xml": note.format(kind, names, paragraph(text)).encode()
        for kind, text in (("footnote", "脚注"), ("endnote", "文末"), ("comment", "要確認"))
    }
    marks = "".join(f"<w:r><w:{kind}Reference w:id='2'/></w:r>" for kind in ("footnote", "endnote", "comment"))
    body = f"<w:p>{run('本文')}{marks}</w:p>{paragraph('次')}"
    assert [text for text, _ in read(docx(body, extra=parts))] == ["本文[1][2]", "[1] 脚注", "[2] 文末", "要確認", "次"]


def test_a_table_of_contents_is_left_out_unless_there_is_nothing_else() -> None:
    lines = "".join(f"<w:p><w:hyperlink w:anchor='_{name}'>{run(name)}</w:hyperlink></w:p>" for name in "甲乙丙")
    assert [text for text, _ in read(docx(lines + paragraph("本文")))] == ["本文"]
    assert [text for text, _ in read(docx(lines))] == ["甲", "乙", "丙"]


def test_a_field_that_never_ends_takes_no_text_with_it() -> None:
    begun = '<w:r><w:fldChar w:fldCharType="begin"/><w:instrText>PAGE</w:instrText></w:r>'
    assert [text for text, _ in read(docx(f"<w:p>{begun}{run('前')}</w:p>{paragraph('後')}"))] == ["前", "後"]


def test_a_row_may_begin_after_any_number_of_columns() -> None:
    row = "<w:tr><w:trPr><w:gridBefore w:val='{}'/></w:trPr><w:tc>{}</w:tc><w:tc>{}</w:tc></w:tr>"
    rows = (row.format(before, paragraph("A"), paragraph("B")) for before in ("1", "-1", "999999999"))
    ((text, _),) = read(docx(f"<w:tbl>{''.join(rows)}</w:tbl>"))
    assert text.splitlines()[:2] == [" | A | B", "A | B"]
    assert len(text) < 1000
