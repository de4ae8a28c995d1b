from __future__ import annotations

import json
import lzma
import random

import pytest

from rkllm_base.encodings import decode, is_binary
from tests.support.shared import shared_path

# Windows and JIS call these by different code points; which of them is meant, bytes do not say.
TWINS = str.maketrans({"～": "〜", "－": "−", "∥": "‖"})
SENTENCE = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。"


def japanese_texts() -> list[str]:
    corpus = shared_path("cases", "retrieval", "jsquad", "corpus.jsonl.xz")
    with lzma.open(corpus, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


@pytest.mark.parametrize("encoding", ["utf-8", "cp932", "euc_jp", "iso2022_jp"])
def test_pieces_of_real_articles_of_every_length_are_read_in_the_encoding_they_were_written_in(encoding: str) -> None:
    texts, chance = japanese_texts(), random.Random(7)
    wrong: list[tuple[str, str]] = []
    for length in (*range(2, 40), 60, 100, 400):
        for _ in range(25):
            text = chance.choice(texts)
            start = chance.randrange(max(1, len(text) - length))
            piece = text[start : start + length].translate(TWINS)
            try:
                content = piece.encode(encoding)
            except UnicodeEncodeError:
                continue
            read = decode(content).text.translate(TWINS)
            if read != piece:
                wrong.append((piece, read))
    # Two or three characters of a rare kind can be real words of another encoding.
    assert len(wrong) <= 3, wrong
    assert all(len(piece) < 6 for piece, _ in wrong), wrong


@pytest.mark.parametrize("length", range(1, len(SENTENCE) + 1))
def test_the_first_characters_of_a_sentence_are_enough(length: int) -> None:
    text = SENTENCE[:length]
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32", "cp932", "euc_jp", "iso2022_jp"):
        assert decode(text.encode(encoding)).text == text, encoding


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_known_by_its_zero_bytes(encoding: str) -> None:
    assert decode(f"見出し 1\n{SENTENCE}\n".encode(encoding)).text == f"見出し 1\n{SENTENCE}\n"


@pytest.mark.parametrize("word", ["ﾃｽﾄ", "10㎡", "ﾕｰｻﾞｰ", "ﾃﾞｰﾀ", "ｺﾝﾋﾟｭｰﾀ", "ｶﾌﾞｼｷｶﾞｲｼｬ", "ﾔﾏﾀﾞ ﾀﾛｳ"])
def test_half_width_katakana_are_not_taken_for_kanji(word: str) -> None:
    assert decode(word.encode("cp932")).text == word


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
@pytest.mark.parametrize("text", ["café", "naïve", "Müller & Söhne", "“quoted”", "100 €", "Straße", "señor"])
def test_western_text_is_not_taken_for_japanese(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)).text == text


@pytest.mark.parametrize("text", ["①㈱髙﨑", "Ⅳ ㎏ №"])
def test_what_windows_added_to_shift_jis_is_read(text: str) -> None:
    assert decode(f"{SENTENCE}{text}".encode("cp932")).text == SENTENCE + text


@pytest.mark.parametrize("declared", ["iso-8859-1", "utf-8", "euc-jp", "no-such-thing", "base64", "", "utf-16"])
def test_a_wrong_declaration_does_not_spoil_a_text(declared: str) -> None:
    read = decode(SENTENCE.encode("cp932"), declared)
    assert (read.text, read.encoding) == (SENTENCE, "cp932")


def test_a_declaration_decides_what_the_bytes_leave_open() -> None:
    content = "naïve".encode("cp1250", errors="ignore") + "łódź".encode("cp1250")
    assert decode(content, "windows-1250").text.endswith("łódź")


def test_a_file_with_lines_in_two_encodings_loses_neither_and_says_so() -> None:
    lines = [f"{number}行目: {SENTENCE}" for number in range(6)]
    content = b"\n".join(line.encode("cp932" if at == 3 else "utf-8") for at, line in enumerate(lines))
    read = decode(content)
    assert (read.text.split("\n"), read.encoding, read.other_encoding, read.other_lines) == (lines, "utf-8", "cp932", 1)
    assert read.warnings == ("Lines that are not utf-8 (1) were read as cp932.",)
    damaged = decode(content.replace("猫".encode(), "猫".encode()[:1], 1))
    assert (damaged.damaged, damaged.other_lines) == (1, 1)


def test_short_lines_of_euc_that_are_utf_8_by_chance_do_not_make_it_a_mixed_file() -> None:
    lines = [
        "渡辺",
        "鈴木",
        "帯広",
        "京都",
        "弁当",
        "氷河",
        "会議室は二階です",
        *["酢酸", "牛乳", "冬季", "登録", "東口", "塔婆"],
    ]
    assert decode("\n".join(lines).encode("euc_jp")).text.split("\n") == lines


def test_a_text_with_own_replacement_characters_is_not_damaged() -> None:
    assert decode("表示は \ufffd です。".encode()).damaged == 0


def test_line_ends_of_every_system_become_one() -> None:
    assert decode(b"a\r\nb\rc\n").text == "a\nb\nc\n"


def test_a_truncated_text_is_read_up_to_the_damage_which_is_counted() -> None:
    for encoding in ("utf-8", "cp932", "euc_jp"):
        read = decode((SENTENCE * 3).encode(encoding)[:-1])
        assert read.text.startswith(SENTENCE * 2), encoding
        assert read.damaged == 1, encoding


@pytest.mark.parametrize("content", [b"", b"\x00", b"\xff\xfe", b"\x1b$B", b"\x80\xff" * 9, bytes(range(256))])
def test_no_bytes_are_too_odd(content: bytes) -> None:
    assert isinstance(decode(content).text, str)


def test_binary_files_are_distinguished_from_text() -> None:
    assert is_binary(bytes(range(256)) * 4)
    assert is_binary(b"\x7fELF\x02\x01\x01\x00\x00\x00\x00")
    assert not is_binary(SENTENCE.encode("utf-16"))
    assert not is_binary(SENTENCE.encode("iso2022_jp"))
    assert not is_binary(SENTENCE.encode("cp932"))


FOREIGN = {
    "gb18030": "会议室需要提前三天预约，使用完毕后请把桌椅放回原处。如果要取消，请通知前台的工作人员。",
    "big5": "會議室需要提前三天預約，使用完畢後請把桌椅放回原處。如果要取消，請通知前台的工作人員。",
    "euc_kr": "회의실은 사흘 전까지 예약해야 합니다. 사용한 뒤에는 의자를 제자리에 놓아 주십시오.",
    "cp1251": "Переговорную нужно заказать за три дня. После встречи верните стулья на место.",
}


@pytest.mark.parametrize("encoding", FOREIGN)
def test_chinese_korean_and_cyrillic_files_are_read_in_their_encoding(encoding: str) -> None:
    text = FOREIGN[encoding]
    for end in range(16, len(text) + 1, 4):
        assert decode(text[:end].encode(encoding)).text == text[:end]
    assert decode(f"ISO 9001\n{text}\nA-1\n".encode(encoding)).text == f"ISO 9001\n{text}\nA-1\n"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_and_without_ascii_is_known_by_its_hiragana(encoding: str) -> None:
    content = SENTENCE.encode(encoding)
    assert decode(content).text == SENTENCE
    assert not is_binary(content)


def test_latin_letters_in_pairs_are_not_taken_for_utf_16() -> None:
    text = "0A0B0C0D0E" * 20
    assert decode(text.encode()).text == text


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("koi8_r", "Отпуск согласуется с руководителем не позднее чем за две недели до его начала."),
        ("cp866", "Отпуск согласуется с руководителем не позднее чем за две недели до его начала."),
        ("iso8859_5", "Отпуск согласуется с руководителем не позднее чем за две недели до его начала."),
        ("iso8859_7", "Η άδεια συμφωνείται με τον προϊστάμενο το αργότερο δύο εβδομάδες πριν από την έναρξή της."),
        ("cp1255", "החופשה מתואמת עם המנהל לכל המאוחר שבועיים לפני תחילתה, ובכתב בלבד."),
        ("tis_620", "การลาพักร้อนต้องตกลงกับหัวหน้างานอย่างน้อยสองสัปดาห์ก่อนวันเริ่มต้น"),
        ("euc_kr", "휴가는 시작일로부터 적어도 이 주 전에 상사와 합의하여야 한다. 신청서는 서면으로 제출한다."),
        ("utf-8", "החופשה מתואמת עם המנהל"),
    ],
)
def test_text_of_other_scripts_is_read_and_so_is_a_page_that_names_its_charset(encoding: str, text: str) -> None:
    pytest.importorskip("chardet")
    assert decode(text.encode(encoding)).text == text
    assert decode(text.encode(encoding), encoding).text == text


@pytest.mark.parametrize("text", ["120 µs ± 3", "5 × 4 mm²", "« oui »", "naïve ± café", "§ 3 a"])
@pytest.mark.parametrize("before", ["", "word " * 300])
def test_signs_of_western_text_in_utf_8_are_not_taken_for_half_width_katakana(text: str, before: str) -> None:
    assert decode(f"{before}{text}".encode()).text == f"{before}{text}"


def test_a_page_in_utf_8_that_says_so_is_not_taken_for_half_width_katakana() -> None:
    page = "<meta charset=utf-8>" + "".join(f"<p>Copyright © {year} Ann</p>\n" for year in range(2002, 2010))
    assert decode(page.encode(), "utf-8").text == page
