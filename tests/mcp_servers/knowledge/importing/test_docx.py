from __future__ import annotations

import pytest

from mcp_servers.knowledge.errors import DamagedDocumentError, DocumentImportError, NoTextError, TooLargeError
from mcp_servers.knowledge.importing.documents import Blob, ParseLimits
from mcp_servers.knowledge.importing.parse import parse_blob
from tests.support.imported import docx, paragraph, redact_url, table

DRAWN = 'xmlns:wps="wps"'
VML = 'xmlns:v="urn:schemas-microsoft-com:vml"'
BOTH = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
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
    body = "".join(f"<w:p><w:r>{inside}</w:r></w:p>" for inside in (drawing, both))
    caption = f"<w:p><w:r><w:t>図</w:t></w:r>{field}</w:p>"
    turned = '<w:p><w:dir w:val="rtl"><w:r><w:t>آذار</w:t></w:r></w:dir></w:p>'
    assert [text for text, _ in read(docx(body + caption + turned))] == ["縦書きの案内", "丸の中", "図3", "آذار"]


def test_equations_are_text_and_headers_comments_and_charts_follow_it() -> None:
    names = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:c="c"'
    equation = "<m:oMathPara><m:oMath><m:r><m:t>E=</m:t></m:r><m:r><m:t>mc</m:t></m:r></m:oMath></m:oMathPara>"
    said = {
        f"word/{part}.xml": f"<d {names}><w:p><w:r><w:t>{text}</w:t></w:r></w:p></d>".encode()
        for part, text in (("header1", "社外秘"), ("header2", "社外秘"), ("footer1", "3"), ("comments", "要確認"))
    }
    chart = f"<d {names}><c:ser><c:tx><c:v>額</c:v></c:tx><c:val><c:pt idx='1'><c:v>7</c:v></c:pt></c:val></c:ser></d>"
    content = docx(f"<w:p>{equation}</w:p>", extra={**said, "word/charts/chart1.xml": chart.encode()})
    assert sorted(text for text, _ in read(content)) == ["E= mc", "社外秘", "要確認", "額 |  | 7"]


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
