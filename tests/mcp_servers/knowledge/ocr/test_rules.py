"""Misread long vowel marks come back, and nothing else changes."""

from __future__ import annotations

import unicodedata
from importlib.resources import files

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcp_servers.knowledge.ocr.rules import HALF_LONG, correct_long_marks, decisions, is_mark, listed_words
from tests.support.ocr_texts import (
    DASHES,
    half_width,
    hyphenated,
    kept_texts,
    mended_texts,
    paragraphs,
    restored,
    share_altered,
    share_right,
    unlisted_words,
)
from tests.support.shared import shared_path

LONG_WORDS = sorted(word for word in listed_words() if "ー" in word)
# Every fifth word is as good a judge as the whole list, and fast.
SOME_WORDS = LONG_WORDS[::5]
AIM = 0.995


def test_hyphens_minus_signs_and_the_numeral_one_stay() -> None:
    assert len(kept_texts()) > 200
    assert {text: correct_long_marks(text) for text in kept_texts() if correct_long_marks(text) != text} == {}


def test_a_misread_long_vowel_mark_is_restored() -> None:
    assert len(mended_texts()) > 200
    assert {
        read: correct_long_marks(read) for read, written in mended_texts() if correct_long_marks(read) != written
    } == {}


@pytest.mark.parametrize("dash", DASHES)
def test_listed_words_are_restored_from_every_dash(dash: str) -> None:
    assert share_right(SOME_WORDS[::5], dash) >= AIM


def test_listed_words_are_right_in_both_widths_and_after_a_kanji_one() -> None:
    assert share_right(SOME_WORDS, "-") >= AIM
    assert share_right(SOME_WORDS, "-", is_half=True) >= AIM
    assert share_right(SOME_WORDS, "一") >= 0.9


def test_words_that_the_list_does_not_have_are_right_as_often() -> None:
    assert share_right(unlisted_words(shared_path())[::20], "-") >= AIM


@pytest.mark.parametrize(
    "name",
    [
        "スマホカバ-",
        "ムーミンバレ-パ-ク",
        "ヨガインストラクタ-",
        "ドラゴンフル-ツ",
        "クラフトコ-ラ",
        "メルカリユ-ザ-の",
    ],
)
def test_words_of_these_days_are_read_by_how_words_look(name: str) -> None:
    assert correct_long_marks(name) == name.replace("-", "ー")


def test_no_english_word_number_or_code_changes_alone_or_after_japanese() -> None:
    shared = shared_path()
    tokens = hyphenated(paragraphs(shared, "scifact")[::10])
    assert len(tokens) > 1000
    assert share_altered(tokens) == 0.0


def test_running_text_comes_back_and_clean_text_stays() -> None:
    share, altered = restored(paragraphs(shared_path(), "jsquad")[::4])
    assert share >= AIM
    assert altered <= 1


def test_half_width_letters_get_the_half_width_mark_and_keep_their_voicing_apart() -> None:
    assert correct_long_marks("ｻ-ﾊﾞ-とサ-バ-") == "ｻｰﾊﾞｰとサーバー"
    assert correct_long_marks(half_width("データベース").replace("ｰ", "−")) == "ﾃﾞｰﾀﾍﾞｰｽ"


@pytest.mark.parametrize("word", ["デ-タベ-ス", "グル-プ", "パ-ティ-", "ガンマ-"])
def test_decomposed_letters_are_read_as_composed_ones(word: str) -> None:
    decomposed = unicodedata.normalize("NFD", word)
    assert correct_long_marks(decomposed) == unicodedata.normalize("NFD", word.replace("-", "ー"))
    apart = decomposed.replace("\u3099", "\u309b").replace("\u309a", "\u309c")
    assert correct_long_marks(apart) == apart.replace("-", "ー")


def test_a_kanji_one_that_counts_stays() -> None:
    for text in ("ホテル一カ所", "ビル一棟", "データ一覧", "アジア一の", "サービス一ヶ月"):
        assert correct_long_marks(text) == text
    assert correct_long_marks("サ一ビス一覧とセンタ一の一日") == "サービス一覧とセンターの一日"


def test_every_open_place_is_decided_and_marked_where_both_readings_are_words() -> None:
    assert decisions("ロンドン-パリ、コンピュ-タ、ユーザ-ID") == [(4, "-", True), (12, "ー", True), (18, "ー", False)]


def test_a_compound_of_the_list_decides_its_letter_and_radicals_and_narrow_marks_are_long_ones() -> None:
    assert correct_long_marks("キャリ-パスとデ⼀タとサｰバｰ") == "キャリアパスとデータとサーバー"
    assert correct_long_marks("ツア一一行と一一〇番") == "ツアー一行と一一〇番"


def test_the_letter_comes_from_the_text_if_it_has_the_word_and_is_unsure_otherwise() -> None:
    (place,) = decisions("マイナビキャリ-では、キャリアコンサルティングを提供しています。")
    assert place == (7, "ア", True)
    (place,) = decisions("マイナビキャリ-では、相談を提供しています。")
    assert place == (7, "ー", False)


# --- properties ------------------------------------------------------------------------------------------------------

LETTERS = "アカサタナリルンッャーデバプ゙゚ヶｱｶﾞﾊﾟｰ-−―－一かの字Aa1１ 。\n・"
TEXTS = st.one_of(
    st.text(LETTERS, max_size=40),
    st.text(max_size=40),
    st.lists(st.sampled_from(LONG_WORDS), min_size=1, max_size=4)
    .map("-".join)
    .map(lambda text: text.replace("ー", "-")),
)


@given(TEXTS)
@settings(max_examples=300, deadline=None)
@example("ア-カ一キ")
@example("-\u3099ア-\u3099ー-")
@example("メニュ-一覧-")
@example("イ-ダ-カド-アイエ-")
@example("ャ一゚−ｱル")
def test_only_open_places_change_the_length_stays_and_once_is_enough(text: str) -> None:
    corrected = correct_long_marks(text)
    assert len(corrected) == len(text)
    changed = {at for at, (before, after) in enumerate(zip(text, corrected, strict=True)) if before != after}
    decided = {place.position: place.character for place in decisions(text)}
    assert changed == {at for at, character in decided.items() if character != text[at]}
    assert all((is_mark(text[at]) or text[at] == HALF_LONG) and corrected[at] == decided[at] for at in changed)
    assert correct_long_marks(corrected) == corrected


@given(TEXTS)
@settings(max_examples=200, deadline=None)
@example("が-ーが-アa")
@example("デ\u3099ｰ")
def test_composed_and_decomposed_text_are_corrected_alike(text: str) -> None:
    # Singletons and compositions of other scripts aside, which normal forms change before we look.
    composed = unicodedata.normalize("NFC", text)
    decomposed = unicodedata.normalize("NFD", composed)
    assert unicodedata.normalize("NFC", correct_long_marks(decomposed)) == correct_long_marks(composed)


def test_the_words_are_katakana_and_their_source_is_named() -> None:
    assert all(set(word) <= {chr(code) for code in range(0x30A1, 0x30FD)} for word in listed_words())
    assert 5_000 < len(listed_words()) < 6_000
    notice = (files("mcp_servers.knowledge.ocr") / "katakana.txt").read_text("utf-8")
    # The terms ask for these two to stay with every copy.
    assert "# Copyright 2000, 2001, 2002, 2003 Nara Institute of Science" in notice
    assert "# NO WARRANTY" in notice
