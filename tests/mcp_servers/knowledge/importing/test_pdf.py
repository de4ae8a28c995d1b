from __future__ import annotations

import io
from typing import Any, cast

import pytest
from PIL import Image
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas

from mcp_servers.knowledge.errors import (
    DamagedDocumentError,
    DocumentImportError,
    EncryptedDocumentError,
    NoTextError,
)
from mcp_servers.knowledge.importing.documents import CELL, Blob, ParsedDocument, ParseLimits
from mcp_servers.knowledge.importing.parse import parse_blob
from mcp_servers.knowledge.importing.pdf import Line, Page, layout_passages
from mcp_servers.knowledge.types import Passage
from tests.support.imported import column, has_japanese_font, pdf

JAPANESE = [
    "　吾輩は猫である。名前はまだ無い。どこで生れたかとん",
    "と見当がつかぬ。何でも薄暗いじめじめした所でニャーニ",
    "ャー泣いていた。",
]
JOINED = "".join(JAPANESE).strip()


def read(content: bytes, limits: ParseLimits | None = None) -> ParsedDocument:
    return parse_blob(Blob(content, "a.pdf"), limits or ParseLimits())


def texts(content: bytes) -> list[str]:
    return [passage.text for passage in read(content).passages]


def test_lines_of_a_japanese_paragraph_are_joined_without_spaces() -> None:
    assert texts(pdf([column([*JAPANESE, *JAPANESE])])) == [JOINED, JOINED]


def test_words_divided_at_the_end_of_a_line_are_whole_again() -> None:
    lines = ["The wide column is full of words and the inter-", "national law goes on from here to the very end."]
    assert texts(pdf([column(lines)])) == [
        "The wide column is full of words and the international law goes on from here to the very end."
    ]


def test_every_passage_knows_its_page() -> None:
    document = read(pdf([column(["一頁目の文です。"]), [], column(["三頁目の文です。"])], title="手引き"))
    assert document.title == "手引き"
    assert document.passages == (Passage("一頁目の文です。", (), 1), Passage("三頁目の文です。", (), 3))
    assert document.warnings == ()


def test_a_sentence_that_runs_over_the_end_of_a_page_belongs_to_the_page_it_begins_on() -> None:
    document = read(pdf([column(["終わり。次の文は頁を"]), column(["またいで続く。新しい文。"])]))
    assert document.passages == (
        Passage("終わり。次の文は頁をまたいで続く。", (), 1),
        Passage("新しい文。", (), 2),
    )


def test_larger_type_is_a_heading() -> None:
    page = column(["第一章 概要", "本文がここにある。", "第一節 目的", "目的の説明である。"], leading=30)
    document = read(pdf([page], sizes={"第一章 概要": 20, "第一節 目的": 15}))
    assert document.passages == (
        Passage("本文がここにある。", ("第一章 概要",), 1),
        Passage("目的の説明である。", ("第一章 概要", "第一節 目的"), 1),
    )


def test_bookmarks_are_headings_where_the_page_shows_them() -> None:
    pages = [column(["1 はじめに", "最初の文。"]), column(["前の続き。", "2 方法", "二番目の文。"])]
    document = read(pdf(pages, bookmarks=[(0, "はじめに", 0), (0, "方法", 1)]))
    assert document.passages == (
        Passage("最初の文。", ("はじめに",), 1),
        Passage("前の続き。", ("はじめに",), 2),
        Passage("二番目の文。", ("方法",), 2),
    )


def test_headers_and_page_numbers_are_left_out_and_what_repeats_elsewhere_is_not() -> None:
    words = ["春の文。", "夏の文。", "秋の文。", "冬の文。"]
    pages = [
        [(72, 800, "社外秘 製品仕様書"), *column([word, "注意。"], top=700, leading=100), (290, 30, f"- {number} -")]
        for number, word in enumerate(words, 1)
    ]
    assert texts(pdf(pages)) == [text for word in words for text in (word, "注意。")]


def test_the_number_of_a_page_is_left_out_wherever_the_count_begins_and_a_figure_is_not() -> None:
    bills = {5: "合計 12,400 円", 6: "合計 8,100 円", 7: "合計 9,050 円", 8: "合計 30 円"}
    pages = [
        [
            (72, 800, f"{number} / 40 請求書"),
            (72, 400, f"{total[3:]} を請求します。"),
            (72, 45, total),
            (290, 30, str(number * 2)),
        ]
        for number, total in bills.items()
    ]
    read_texts = texts(pdf(pages))
    assert [text for text in read_texts if text.startswith("合計")] == [*bills.values()]
    assert not [text for text in read_texts if "請求書" in text or text.isdecimal()]


def test_lines_drawn_in_any_order_are_read_from_top_to_bottom() -> None:
    lines = column([f"{number} 行目です。" for number in range(1, 13)], leading=30)
    shuffled = lines[1::2][::-1] + lines[::2]
    assert texts(pdf([shuffled])) == [f"{number} 行目です。" for number in range(1, 13)]


def test_columns_are_read_in_turn_even_when_drawn_line_by_line() -> None:
    left = [f"左の段の{n}行目であり長い文である。" for n in range(8)]
    right = [f"右の段の{n}行目であり長い文である。" for n in range(8)]
    rows = zip(column(left, leading=30), column(right, left=320, leading=30), strict=True)
    assert texts(pdf([[cell for row in rows for cell in row]])) == left + right


def test_three_columns_below_a_title_are_read_in_turn() -> None:
    sides = [column([f"{name}の段の{n}行目であり長い文である。" for n in range(5)], left=left, top=700, leading=30)
             for name, left in (("左", 72), ("中", 242), ("右", 412))]  # fmt: skip
    title = (72, 750, "三つの段のうち二つの上に書かれている題である。")
    drawn = [title, *(cell for row in zip(*sides, strict=True) for cell in row)]
    assert [text[0] for text in texts(pdf([drawn], size=9))] == [*"三左左左左左中中中中中右右右右右"]


def test_a_line_across_both_columns_separates_the_text_above_it_from_the_text_below() -> None:
    def band(name: str, top: float) -> list[tuple[float, float, str]]:
        left = column([f"{name}の左の段の{n}行目にある長い文である。" for n in range(4)], top=top, leading=30)
        right = column(
            [f"{name}の右の段の{n}行目にある長い文である。" for n in range(4)], left=320, top=top, leading=30
        )
        return [cell for row in zip(left, right, strict=True) for cell in row]

    title = (72, 600, "二つの段の上に渡って書かれている題のように長い一行である。続きもここにある。")
    read_texts = texts(pdf([[*band("上", 750), title, *band("下", 550)]]))
    places = [text[:3] for text in read_texts]
    assert places == ["上の左"] * 4 + ["上の右"] * 4 + ["二つの"] + ["下の左"] * 4 + ["下の右"] * 4


def test_the_cells_of_a_row_are_one_line() -> None:
    rows = [["品目", "数量", "値段"], ["鉛筆", "12", "600 円"], ["消しゴム", "3", "240 円"]]
    drawn = [(72 + 120 * x, 700 - 16 * y, cell) for y, row in enumerate(rows) for x, cell in enumerate(row)]
    assert texts(pdf([drawn])) == [" | ".join(row) for row in rows]


def test_an_empty_cell_leaves_the_others_in_their_columns() -> None:
    rows = [
        ["支店", "所在", "電話", "人数"],
        ["本店", "", "0312", "40"],
        ["西", "大阪", "", "12"],
        ["", "福岡", "0925", "8"],
        ["", "", "0113", ""],
    ]
    drawn = [(72 + 110 * x, 700 - 16 * y, cell) for y, row in enumerate(rows) for x, cell in enumerate(row) if cell]
    above = [(72, 740, "次の表は支店の所在と電話の番号、働く人数を表す一覧である。")]
    assert texts(pdf([[*above, *drawn]])) == [
        above[0][2],
        "支店 | 所在 | 電話 | 人数",
        "本店 |  | 0312 | 40",
        "西 | 大阪 |  | 12",
        " | 福岡 | 0925 | 8".strip(),
        "|  | 0113",
    ]


@pytest.mark.parametrize("order", ["rows", "columns", "table first", "table last", "columns first", "columns last"])
def test_a_table_is_placed_between_the_text_before_and_after_it_in_any_order_of_the_file(order: str) -> None:
    before = [
        (60, 760, "出張の費用は次の表のとおり支給する。"),
        (60, 745, "役職によって上限が異なるので確かめること。"),
    ]
    after = [(60, 600, "表にない地域は、総務部に問い合わせる。"), (60, 585, "この規程は四月一日から施行する。")]
    rows = [
        ["役職", "東京", "大阪", "海外"],
        ["部長", "15000", "", "30000"],
        ["課長", "", "12000"],
        ["社員", "", "", "5000"],
    ]
    table = [(60 + 100 * x, 715 - 18 * y, cell) for y, row in enumerate(rows) for x, cell in enumerate(row) if cell]
    if order.startswith("columns"):
        table.sort(key=lambda cell: (cell[0], -cell[1]))
    page = [*before, *table, *after]
    if order.endswith("first"):
        page = [*table, *before, *after]
    if order.endswith("last"):
        page = [*before, *after, *table]
    expected = ["役職 | 東京 | 大阪 | 海外", "部長 | 15000 |  | 30000", "課長 |  | 12000", "社員 |  |  | 5000"]
    assert texts(pdf([page])) == [*(text for *_, text in before), *expected, *(text for *_, text in after)]


def test_the_cells_after_one_of_two_lines_stay_in_its_row() -> None:
    lines = [(60, 715, "区分"), (160, 715, "内容"), (360, 715, "期限"), (60, 697, "申請"), (160, 697, "申請書を上司に")]
    lines += [
        (160, 684, "提出する"),
        (360, 697, "三日前"),
        (60, 666, "報告"),
        (160, 666, "報告書を出す"),
        (360, 666, "後日"),
    ]
    expected = ["区分 | 内容 | 期限", "申請 | 申請書を上司に | 三日前", "| 提出する", "報告 | 報告書を出す | 後日"]
    assert texts(pdf([lines])) == expected


def test_vertical_writing_is_read_from_right_to_left() -> None:
    drawn = [(500 - 20 * number, 700, f"縦書きの第{number}行です。") for number in range(4)]
    assert "".join(texts(pdf([drawn], vertical=True))) == "".join(text for _, _, text in drawn)


@pytest.mark.parametrize("rotation", [90, 180, 270])
def test_text_that_is_turned_is_read_in_its_own_direction(rotation: int) -> None:
    if not has_japanese_font():
        pytest.skip("no Japanese font on this machine (apt install fonts-ipafont-gothic)")
    assert texts(pdf([column([*JAPANESE, "　次の段落。"], top=300)], turned=rotation)) == [JOINED, "次の段落。"]


def test_a_pdf_with_a_password_says_so() -> None:
    with pytest.raises(
        EncryptedDocumentError, match=r"a\.pdf is protected with a password or DRM\. Save a copy without"
    ):
        read(pdf([column(["秘密"])], password="open sesame"))


def test_blank_pages_are_not_called_a_scan() -> None:
    with pytest.raises(NoTextError, match=r"a\.pdf has no text: its pages are blank\. Import the file"):
        read(pdf([[], []]))


@pytest.mark.parametrize("font", ["Helvetica", "Times-Roman", "Courier"])
@pytest.mark.parametrize("gap", [12, 24])
def test_english_columns_that_are_drawn_line_by_line_are_read_in_turn(font: str, gap: int) -> None:
    from reportlab.pdfbase.pdfmetrics import stringWidth
    from reportlab.pdfgen.canvas import Canvas

    left = ["The committee of the house agreed", "that the bicycles are to be moved", "from the yard to the cellar"]
    right = ["Rubbish is put out before", "seven. Glass goes to the station", "by the church; paper on Friday"]
    made = io.BytesIO()
    canvas = cast("Any", Canvas)(made, pagesize=(700, 300), invariant=1)
    canvas.setFont(font, 10)
    start = 40 + max(cast("Any", stringWidth)(line, font, 10) for line in left) + gap
    for at, (line, other) in enumerate(zip(left * 3, right * 3, strict=True)):
        canvas.drawString(40, 260 - at * 13, line)
        canvas.drawString(start, 260 - at * 13, other)
    canvas.save()
    text = " ".join(passage.text for passage in read(made.getvalue()).passages).replace("\n", " ")
    assert text.index("agreed that the bicycles") < text.index("before seven. Glass")


def test_pages_and_characters_beyond_the_limits_are_left_out_and_reported() -> None:
    pages = [column([f"{number} 頁の文です。"]) for number in range(1, 5)]
    for limits in (ParseLimits(pages=2), ParseLimits(characters=12)):
        document = read(pdf(pages), limits)
        assert [passage.page for passage in document.passages] == [1, 2]
        assert document.warnings == ("Only the first 2 of 4 pages were read.",)


@pytest.mark.parametrize("content", [b"%PDF-1.7\n", b"%PDF-1.4\n" + bytes(2000), b"%PDF-1.7\n1 0 obj<<>>endobj"])
def test_what_only_begins_like_a_pdf_is_damaged(content: bytes) -> None:
    with pytest.raises(DamagedDocumentError, match="no PDF reader can open it"):
        read(content)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_truncated_pdf_becomes_a_sentence_or_its_readable_part(share: float) -> None:
    whole = pdf([column([f"{number} 頁の文です。"]) for number in range(1, 5)])
    try:
        assert read(whole[: int(len(whole) * share)]).passages
    except DocumentImportError as problem:
        assert str(problem).startswith("a.pdf ")


def test_the_values_of_a_form_are_after_their_labels() -> None:
    canvas = pytest.importorskip("reportlab.pdfgen.canvas")
    content = io.BytesIO()
    page = canvas.Canvas(content)
    page.drawString(72, 750, "Name:")
    page.acroForm.textfield(name="n", x=120, y=740, value="Taro Yamada")
    page.drawString(72, 700, "Married:")
    page.acroForm.checkbox(name="m", checked=True, x=130, y=695)
    page.drawString(72, 650, "Retired:")
    page.acroForm.checkbox(name="r", checked=False, x=130, y=645)
    page.drawString(72, 600, "City:")
    page.acroForm.choice(name="c", value="Osaka", options=["Tokyo", "Osaka"], x=120, y=590)
    page.save()
    passages = parse_blob(Blob(content.getvalue(), "form.pdf"), ParseLimits()).passages
    assert [passage.text for passage in passages] == ["Name: Taro Yamada", "Married: ☑", "Retired:", "City: Osaka"]


def test_raised_letters_that_are_drawn_as_a_line_belong_to_the_line_before_them() -> None:
    area = [Line("面積は 12 m", 72, 700, 126, 710, 10), Line("2", 126.4, 706, 129, 711, 5)]
    power = [Line("(x+y)", 72, 680, 100, 690, 10), Line("−1", 100.2, 686, 105, 691, 5)]
    lines = [*area, Line("である。", 129.4, 700, 170, 710, 10), *power]
    passages = layout_passages([Page(1, tuple(lines))])
    assert [passage.text for passage in passages] == ["面積は 12 m^2である。 (x+y)^−1"]


def test_letters_that_are_drawn_one_by_one_are_words_of_their_line() -> None:
    """As Chromium draws bold letters, for which its font has no own ones."""
    written = io.BytesIO()
    page = Canvas(written)
    fonts = ("HeiseiMin-W3", "HeiseiKakuGo-W5")
    for font in fonts:
        cast("Any", pdfmetrics).registerFont(UnicodeCIDFont(font))
    for text, x, y, size in (("在庫一覧", 34, 727.5, 24), ("品番", 100, 694, 12), ("数量", 319, 694, 12)):
        for at, letter in enumerate(text):
            page.setFont(fonts[at % 2], size)
            page.drawString(x + at * size, y, letter)
    page.save()
    (passage,) = read(written.getvalue()).passages
    assert (passage.headings, passage.text) == (("在庫一覧",), f"品番{CELL}数量")


def test_signs_in_larger_type_are_not_a_heading() -> None:
    lines = [
        Line("∫", 72, 700, 90, 724, 24),
        *(Line(f"Line {y} of the text.", 72, y, 200, y + 10, 10) for y in (600, 500)),
    ]
    assert not any(passage.headings for passage in layout_passages([Page(1, tuple(lines))]))


def test_letters_beyond_16_bits_move_no_other_text() -> None:
    lines = ["𠮟る𠮷𠮷", "二行目の文。", "三行目 1,200", "四つ目の行", "五"]
    common = [line.translate(str.maketrans("𠮟𠮷", "叱吉")) for line in lines]
    rare, plain = ([passage.text for passage in read(pdf([column(each)])).passages] for each in (lines, common))
    assert rare == [text.translate(str.maketrans("叱吉", "𠮟𠮷")) for text in plain]


def test_raised_digits_stay_apart_and_notes_are_read() -> None:
    canvas = pytest.importorskip("reportlab.pdfgen.canvas")
    content = io.BytesIO()
    page = canvas.Canvas(content)
    lines = {
        700: ("The tank holds 10", "3", " litres in May", "1", " 2026."),
        600: ("", "1", "Burtness and others, 2025."),
    }
    for y, parts in lines.items():
        line = page.beginText(72, y)
        for at, part in enumerate(parts):
            # Every second one is raised.
            line.setRise(5 if at % 2 else 0)
            line.setFont("Helvetica", 7 if at % 2 else 12)
            line.textOut(part)
        page.drawText(line)
    page.textAnnotation("Checked by the caretaker", (300, 300, 320, 320))
    page.save()
    assert texts(content.getvalue()) == [
        "The tank holds 10^3 litres in May^1 2026.",
        "1 Burtness and others, 2025.",
        "Checked by the caretaker",
    ]


def test_a_document_of_running_lines_alone_is_read_and_one_of_scans_below_them_is_not() -> None:
    labels = [column([f"Label {number} of the store"]) for number in range(1, 5)]
    assert texts(pdf(labels)) == [f"Label {number} of the store" for number in range(1, 5)]
    canvas = pytest.importorskip("reportlab.pdfgen.canvas")
    content = io.BytesIO()
    page = canvas.Canvas(content)
    for number in range(1, 5):
        page.drawString(72, 800, f"Scanned page {number}")
        page.drawInlineImage(Image.new("RGB", (60, 60), "red"), 72, 300)
        page.showPage()
    page.save()
    with pytest.raises(NoTextError, match="its 4 pages are pictures"):
        read(content.getvalue())


def test_a_line_without_width_is_read() -> None:
    mark, text = Line("\u0301", 72, 700, 72, 712, 12), Line("Text below it.", 72, 600, 160, 612, 12)
    assert [passage.text for passage in layout_passages([Page(1, (mark, text))])] == ["\u0301 Text below it."]


def test_free_text_on_a_form_is_read() -> None:
    canvas = pytest.importorskip("reportlab.pdfgen.canvas")
    content = io.BytesIO()
    page = canvas.Canvas(content)
    page.drawString(72, 750, "Name:")
    page.acroForm.textfield(name="n", x=120, y=740, value="Taro")
    page.freeTextAnnotation("Fill in by Friday", (300, 300, 400, 340))
    page.save()
    assert texts(content.getvalue()) == ["Name: Taro", "Fill in by Friday"]


def _raw_pdf(*objects: str) -> bytes:
    body = "".join(f"{number} 0 obj\n{each}\nendobj\n" for number, each in enumerate(objects, 1))
    return f"%PDF-1.7\n{body}trailer <</Root 1 0 R/Size {len(objects) + 1}>>\n%%EOF".encode()


def _stream(content: str, entries: str = "") -> str:
    return f"<<{entries}/Length {len(content)}>>stream\n{content}\nendstream"


_PAGES = "<</Type/Pages/Kids [3 0 R]/Count 1>>"
_PAGE = "<</Type/Page/Parent 2 0 R/MediaBox [0 0 595 842]/Contents 4 0 R/Resources 5 0 R>>"
_DRAWING = "/Type/XObject/Subtype/Form/BBox [0 0 595 842]/Resources 5 0 R"


def _shown(text: str, y: int) -> str:
    return f"BT /F 12 Tf 72 {y} Td ({text}) Tj ET"


def test_free_text_that_a_viewer_draws_is_read_and_a_form_of_adobe_is_named() -> None:
    page = _PAGE.replace(">>", "/Annots [5 0 R]>>").replace("/Resources 5 0 R", "")
    note = "<</Subtype/FreeText/Rect [50 600 300 650]/DA(/Helv 12 Tf)/Contents(Wet on Mondays)>>"
    catalog = "<</Type/Catalog/Pages 2 0 R/AcroForm <</XFA (x)>>/NeedsRendering true>>"
    assert texts(_raw_pdf("<</Pages 2 0 R>>", _PAGES, page, _stream(""), note)) == ["Wet on Mondays"]
    warnings = read(_raw_pdf(catalog, _PAGES, page, _stream(""), note)).warnings
    assert "only Adobe's programs show (XFA)" in warnings[-1]


def test_an_accent_drawn_over_a_letter_is_part_of_it_and_one_next_to_it_is_not() -> None:
    names = r"(M) -111 (\250) 444 (oller, Fran) (c) 416 (\270) 84 (ois, na) 28 (\250) 306 (\365ve)"
    drawn = f"BT /F 12 Tf 72 700 Td [{names}] TJ ET"
    content = _raw_pdf(
        "<</Type/Catalog/Pages 2 0 R>>",
        _PAGES,
        _PAGE,
        _stream(f"{drawn} {_shown(chr(96) + 'text', 600)}"),
        "<</Font <</F 6 0 R>>>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding"
        "<</BaseEncoding/WinAnsiEncoding/Differences [245/dotlessi]>>>>",
    )
    assert texts(content) == ["Möller, François, naïve", "`text"]


def test_a_ligature_that_only_the_font_knows_is_named() -> None:
    content = _raw_pdf(
        "<</Type/Catalog/Pages 2 0 R>>",
        _PAGES,
        _PAGE,
        _stream(_shown("It is signified.", 700)),
        "<</Font <</F 6 0 R>>>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/ToUnicode 7 0 R>>",
        _stream("1 begincodespacerange <00> <ff> endcodespacerange 1 beginbfchar <66> <001c> endbfchar"),
    )
    warning = "Some words have characters that only their font knows, such as ligatures: signi\ufffdied."
    assert read(content).warnings == (warning,)


def test_a_layer_is_known_by_more_than_its_name_and_hides_drawings_and_what_depends_on_it() -> None:
    drawn = " ".join(
        [
            _shown("The rent is 900.", 700),
            "/Hidden Do /Visible Do /OC /on BDC",
            _shown("Second layer.", 400),
            "EMC /OC /unless BDC",
            _shown("Final.", 300),
            "EMC /OC /off BDC",
            _shown("First layer.", 200),
            "EMC /OC /if BDC",
            _shown("Preliminary.", 100),
            "EMC",
        ]
    )
    resources = "/Properties <</off 9 0 R/on 10 0 R/unless 11 0 R/if 12 0 R>>/XObject <</Hidden 7 0 R/Visible 8 0 R>>"
    content = _raw_pdf(
        "<</Type/Catalog/Pages 2 0 R/OCProperties <</OCGs [9 0 R 10 0 R] /D <</OFF [9 0 R]>>>>>>",
        _PAGES,
        _PAGE,
        _stream(drawn),
        f"<</Font <</F 6 0 R>>{resources}>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        _stream(_shown("Draft: 700.", 600), f"{_DRAWING}/OC 9 0 R"),
        _stream(_shown("A drawing.", 500), _DRAWING),
        "<</Type/OCG/Name (Layer)>>",
        "<</Type/OCG/Name (Layer)>>",
        "<</Type/OCMD/VE [/Not 9 0 R]>>",
        "<</Type/OCMD/OCGs [9 0 R]>>",
    )
    shown = ["The rent is 900.", "A drawing.", "Second layer.", "Final."]
    assert texts(content) == shown
    whole = [passage.text for passage in read(content, ParseLimits(include_hidden=True)).passages]
    assert sorted({*whole} - {*shown}) == ["Draft: 700.", "First layer.", "Preliminary."]


def _with_hidden_layer(content: str) -> bytes:
    return _raw_pdf(
        "<</Type/Catalog/Pages 2 0 R/OCProperties <</OCGs [7 0 R] /D <</OFF [7 0 R]>>>>>>",
        _PAGES,
        _PAGE,
        _stream(content),
        "<</Font <</F 6 0 R>>/Properties <</off 7 0 R>>>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        "<</Type/OCG/Name (Notes)>>",
    )


def test_a_hidden_layer_without_text_is_not_named() -> None:
    content = _with_hidden_layer(f"{_shown('Final.', 700)} /OC /off BDC 0 0 90 90 re f {_shown(' ', 600)} EMC")
    assert (texts(content), read(content).warnings) == (["Final."], ())


def test_a_document_whose_text_is_hidden_is_not_called_a_scan() -> None:
    content = _with_hidden_layer(f"/OC /off BDC {_shown('Draft.', 700)} EMC")
    with pytest.raises(NoTextError, match=r"what it has is hidden \(include_hidden reads it\): layer Notes\."):
        read(content)


@pytest.mark.parametrize("state", ["/OFF [5 0 R]", "/BaseState /OFF", "/OFF []"])
def test_a_layer_that_is_off_is_left_out_and_named_unless_hidden_parts_are_wanted(state: str) -> None:
    drawn = "BT /F 12 Tf 72 700 Td (The rent is 900.) Tj ET /OC /oc1 BDC BT /F 12 Tf 72 600 Td (Draft: 700.) Tj ET EMC"
    objects = [
        f"<</Type/Catalog/Pages 2 0 R/OCProperties <</OCGs [5 0 R] /D <<{state}>>>>>>",
        "<</Type/Pages/Kids [3 0 R]/Count 1>>",
        "<</Type/Page/Parent 2 0 R/MediaBox [0 0 595 842]/Contents 4 0 R/Resources 7 0 R>>",
        f"<</Length {len(drawn)}>>stream\n{drawn}\nendstream",
        "<</Type/OCG/Name (Draft layer)>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        "<</Font <</F 6 0 R>> /Properties <</oc1 5 0 R>>>>",
    ]
    body = "".join(f"{number} 0 obj\n{each}\nendobj\n" for number, each in enumerate(objects, 1))
    content = f"%PDF-1.7\n{body}trailer <</Root 1 0 R/Size 8>>\n%%EOF".encode()
    shown, draft = "The rent is 900.", "Draft: 700."
    if state == "/OFF []":
        assert (texts(content), read(content).warnings) == ([shown, draft], ())
        return
    warning = "Parts that are hidden were left out (include_hidden reads them): layer Draft layer."
    assert (texts(content), read(content).warnings) == ([shown], (warning,))
    assert [passage.text for passage in read(content, ParseLimits(include_hidden=True)).passages] == [shown, draft]
