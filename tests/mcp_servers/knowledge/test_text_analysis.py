from __future__ import annotations

import pytest

from mcp_servers.knowledge.text_analysis import analyze, analyze_query, embedded_text, indexed_text


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("梅雨", ["梅雨"]),
        ("梅雨前線", ["梅雨", "雨前", "前線", "梅雨前線"]),
        ("雨", ["雨"]),
        ("ﾘﾓｰﾄ", ["リモ", "モー", "ート", "リモート"]),
        ("社員のID-2", ["社員", "員の", "id", "2"]),
        ("東京・大阪", ["東京", "大阪"]),
        ("人々", ["人々"]),
        ("申し込み", ["申し", "し込", "込み", "申込"]),
        ("サーバー", ["サー", "ーバ", "サーバ"]),
        ("ウィルス", ["ウイ", "イル", "ルス", "ウイルス"]),
        ("ヴァイオリン", ["バイ", "イオ", "オリ", "リン", "バイオリン"]),
        ("The cities' crosses and gases of Café", ["citi", "cross", "gase", "cafe"]),
        ("bus class canoes studies", ["bus", "class", "cano", "studi"]),
        ("snake_case", ["snake", "case"]),
        ("maxRetryCount", ["maxretrycount", "max", "retri", "count"]),
        ("boxes and batches", ["box", "batch"]),
        ("typing, typed, types", ["type", "type", "type"]),
        ("10³ and m², 1,250 or 12,50", ["10", "3", "m2", "1250", "12", "50"]),
        ("日 程 表", ["日程", "程表", "日程表"]),
        ("第二十三条", ["第", "23", "条"]),
        ("校⻑", ["校長"]),
        ("한국어", ["한국", "국어"]),
        ("", []),
        ("？！ ---", []),
    ],
)
def test_a_text_gives_these_terms(text: str, terms: list[str]) -> None:
    assert analyze(text).terms == terms


def test_every_kanji_is_counted_by_itself_too() -> None:
    assert analyze("人々の雨 rain").kanji == ["人", "々", "雨"]


def test_a_misread_long_vowel_mark_gives_the_same_terms_as_the_right_one() -> None:
    assert analyze("マネ-ジャ-のユ‐ザ−") == analyze("マネージャーのユーザー")


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("手当はいくらですか", ["手当", "当は"]),
        ("うどん", ["うど", "どん"]),
        ("手当は", ["手当", "当は"]),
        ("the rain in Spain", ["rain", "spain"]),
    ],
)
def test_a_query_loses_its_grammar_unless_little_else_is_left(query: str, terms: list[str]) -> None:
    assert analyze_query(query).terms == terms


def test_a_chunk_is_found_by_its_title_and_headings_and_embedded_with_them() -> None:
    assert analyze(indexed_text("規程", ("手当",), "5,000円")).terms == ["規程", "規程", "手当", "手当", "5000", "円"]
    assert embedded_text("規程", ("手当",), "5,000円") == "規程\n手当\n5,000円"
