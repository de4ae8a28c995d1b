from __future__ import annotations

import pytest

from mcp_servers.weather.spelling import fold, is_kana, romaji_key

SAME_SOUND = {
    "tokyo": [
        "Tokyo",
        "TOKYO",
        "Tōkyō",
        "tôkyô",
        "Toukyou",
        "Tohkyoh",
        "とうきょう",
        "トーキョー",
        "トウキョウ",
        "ﾄｳｷｮｳ",
    ],
    "osaka": ["Osaka", "Ōsaka", "Ohsaka", "Oosaka", "おおさか", "オーサカ"],
    "shinjuku": ["Shinjuku", "Sinjuku", "Sinzyuku", "Shinjyuku", "Shin-juku", "しんじゅく", "ｼﾝｼﾞｭｸ"],
    "sapporo": ["Sapporo", "さっぽろ", "サッポロ"],
    "nanba": ["Namba", "Nanba", "なんば"],
    "hacchobori": ["Hatchōbori", "Hatchobori", "はっちょうぼり"],
    "fuji": ["Fuji", "Huzi", "ふじ"],
    "tsu": ["Tsu", "Tu", "つ"],
    "niigata": ["Niigata", "にいがた"],
    "shinonsen": ["Shin-onsen", "Shin'onsen", "しんおんせん"],
    "chuo": ["Chūō", "Chuo", "Tyuuou", "ちゅうおう"],
}


@pytest.mark.parametrize(("key", "spellings"), SAME_SOUND.items(), ids=SAME_SOUND)
def test_every_romanisation_and_the_kana_of_a_name_sound_the_same(key: str, spellings: list[str]) -> None:
    assert {spelling: romaji_key(spelling) for spelling in spellings} == dict.fromkeys(spellings, key)


def test_a_name_in_kanji_has_no_sound() -> None:
    assert romaji_key("東京") == ""
    assert romaji_key("") == ""


@pytest.mark.parametrize(
    ("one", "other"),
    [("鎌ヶ谷市", "鎌ケ谷市"), ("龍ケ崎", "竜ヶ崎"), ("ニセコ町", "にせこ町"), ("　東京 ", "東京"), ("２３区", "23区")],
)
def test_width_spaces_kana_script_and_variant_characters_do_not_matter(one: str, other: str) -> None:
    assert fold(one) == fold(other)


def test_kana_is_told_from_kanji() -> None:
    assert is_kana(fold("シンジュク"))
    assert not is_kana(fold("新ジュク"))
    assert not is_kana("")
