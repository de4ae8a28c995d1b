from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest

from mcp_servers.weather.areas import PREFECTURES
from mcp_servers.weather.gazetteer import Gazetteer, fold, romaji_key
from tests.support.fake_jma import cases_folder
from tests.support.jma_forecasts import small_table


@pytest.fixture(scope="module")
def small() -> Gazetteer:
    return Gazetteer(small_table("area"))


@pytest.fixture(scope="module")
def area_table() -> dict[str, Any]:
    return json.loads((cases_folder() / "area.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def japan(area_table: dict[str, Any]) -> Gazetteer:
    return Gazetteer(area_table)


def names(gazetteer: Gazetteer, question: str) -> list[str]:
    return [place.full_name for place in gazetteer.find(question).places]


def area(gazetteer: Gazetteer, question: str) -> tuple[str, str]:
    """The one forecast area a question means, and its office."""
    (only,) = gazetteer.find(question).areas().values()
    return only.name, only.office


ONE_PLACE = {
    "東京都": [
        "東京",
        "東京都",
        "とうきょう",
        "トーキョー",
        "Tokyo",
        "tōkyō",
        "Tokyo-to",
        "Tokyo, Japan",
        "東京の天気を教えて",
        "今日の東京の天気",
        "東京23区",
        "東京都心",
        "東京駅",
        "東京の週末",
        "明日の夜の東京",
        "東京で雨は降る",
        "東京は明日晴れ？",
        "Tokyo this weekend",
        "tomorrow in Tokyo",
        "130000",
    ],
    "東京都新宿区": [
        "新宿",
        "新宿区",
        "しんじゅく",
        "シンジュクク",
        "Shinjuku",
        "Shinjuku-ku",
        "Shinjuku City",
        "Shinjuku Ward",
        "1310400",
    ],
    "北海道札幌市": [
        "札幌",
        "Sapporo",
        "さっぽろ",
        "Sapporo, Hokkaido",
        "北海道札幌市",
        "北海道の札幌",
        "札幌市中央区",
        "Sapporo city",
    ],
    "東京都府中市": ["東京都府中市", "東京府中", "Fuchu, Tokyo", "府中市（東京都）", "東京都 府中", "Fuchu-shi Tokyo"],
    "広島県府中市": [
        "広島県府中市",
        "Fuchu, Hiroshima",
        "Hiroshima-ken Fuchu-shi",
        "ひろしまけんふちゅうし",
        "府中 広島",
    ],
    "広島県府中町": ["府中町", "広島県府中町", "安芸郡府中町", "広島県安芸郡府中町", "Fuchu Town"],
    "宮城県仙台市": ["仙台", "仙台市", "Sendai", "せんだいし", "宮城県仙台市青葉区"],
    "広島県広島市": ["広島市", "Hiroshima City", "ひろしまし"],
    "北海道釧路市阿寒": ["阿寒", "釧路市阿寒"],
    "北海道釧路市": ["釧路市", "釧路", "Kushiro"],
    "東京都大田区": ["大田区", "Ohta", "Ōta-ku", "羽田空港", "Haneda Airport", "今夜の羽田"],
    "神奈川県": ["神奈川", "Kanagawa Prefecture", "kanagawa-ken", "かながわ"],
    "神奈川県横浜市": ["横浜", "横浜市港北区日吉1丁目", "weather in Yokohama"],
    "北海道": ["北海道", "Hokkaido", "ほっかいどう"],
    "北海道十勝地方": ["十勝", "十勝地方", "Tokachi"],
}


@pytest.mark.parametrize(
    ("place", "question"), [(place, question) for place, questions in ONE_PLACE.items() for question in questions]
)
def test_a_place_is_found_under_every_usual_spelling_and_its_code(small: Gazetteer, place: str, question: str) -> None:
    assert names(small, question) == [place]


def test_namesakes_are_all_answered_unless_the_prefecture_is_given(small: Gazetteer) -> None:
    assert names(small, "府中市") == ["東京都府中市", "広島県府中市"]
    assert names(small, "ふちゅう") == ["東京都府中市", "広島県府中市"]
    assert len(small.find("府中市").areas()) == 2


def test_lesser_namesakes_are_answered_when_asked_for(small: Gazetteer) -> None:
    finding = small.find("府中", namesakes=True)
    assert [place.full_name for place in finding.places] == ["東京都府中市", "広島県府中市", "広島県府中町"]


def test_a_region_is_a_place_and_its_name_needs_the_prefecture(small: Gazetteer) -> None:
    assert names(small, "東部") == ["宮城県東部", "神奈川県東部"]
    assert area(small, "神奈川県東部") == ("神奈川県東部", "140000")


def test_a_district_of_the_forecasts_is_not_taken_for_a_ward(japan: Gazetteer) -> None:
    assert [names(japan, text) for text in ("Yonago City", "Yonago ward", "米子地区")] == [
        ["鳥取県米子市"],
        [],
        ["鳥取県米子地区"],
    ]


def test_an_office_without_a_forecast_file_is_answered_by_its_neighbour(small: Gazetteer) -> None:
    assert area(small, "帯広") == ("北海道十勝地方", "014100")


def test_an_unknown_place_brings_places_that_look_or_sound_alike(small: Gazetteer) -> None:
    def suggested(question: str) -> list[str]:
        finding = small.find(question)
        assert finding.places == ()
        return [place.full_name for place in finding.suggestions]

    assert suggested("札幌氏") == ["北海道札幌市"]
    assert suggested("Saporo") == ["北海道札幌市"]
    assert suggested("しんじゅ") == ["東京都新宿区"]
    assert suggested("札幌の隣の町") == ["北海道札幌市"]
    assert suggested("Paris") == []
    assert suggested("存在しない") == []
    assert suggested("") == []
    assert suggested("、、 ()") == []


def test_every_landmark_and_region_names_places_of_the_agencys_table(japan: Gazetteer) -> None:
    lines = (files("mcp_servers.weather") / "landmarks.tsv").read_text("utf-8").splitlines()
    listed = {name: targets for names_, targets in (line.split("\t") for line in lines) for name in names_.split(",")}
    assert [each for targets in listed.values() for each in targets.split(",") if names(japan, each) != [each]] == []
    # A name that the table has means that place.
    assert [name for name, targets in listed.items() if len(japan.find(name).areas()) != targets.count(",") + 1] == []


@pytest.mark.parametrize("document", [[], {}, {"offices": {}}, "<html>", None, {"class10s": {"1": 2}}])
def test_something_that_is_not_an_area_table_is_refused(document: object) -> None:
    with pytest.raises(ValueError, match="validation error"):
        Gazetteer(document)


def test_the_table_has_forty_seven_prefectures_and_each_capital_is_in_the_agencys_table(japan: Gazetteer) -> None:
    assert list(PREFECTURES) == [f"{number:02d}" for number in range(1, 48)]
    for prefecture in PREFECTURES.values():
        capitals = [
            place for place in japan.places if place.prefecture is prefecture and place.name == prefecture.capital
        ]
        assert capitals, prefecture


def test_every_prefecture_is_found_by_its_names_and_means_its_capitals_area(japan: Gazetteer) -> None:
    for prefecture in PREFECTURES.values():
        capital = japan.find(prefecture.name + prefecture.capital)
        for spelling in (
            prefecture.name,
            prefecture.bare_name,
            prefecture.kana,
            prefecture.bare_kana,
            prefecture.english,
            f"{prefecture.english} Prefecture",
        ):
            finding = japan.find(spelling)
            assert [place.name for place in finding.places] == [prefecture.name], spelling
            assert finding.areas() == capital.areas(), spelling


def test_every_area_of_the_agencys_table_is_found_by_name_with_its_prefecture(
    japan: Gazetteer, area_table: dict[str, Any]
) -> None:
    def class10_of(code: str) -> str:
        parent = area_table["class20s"][code]["parent"]
        return area_table["class15s"][parent]["parent"]

    for code, entry in area_table["class20s"].items():
        prefecture = PREFECTURES[code[:2]].name
        places = japan.find(prefecture + entry["name"]).places
        assert [place.code for place in places] == [code], entry
        assert places[0].area.code == class10_of(code), entry


def test_every_municipality_is_found_by_its_kana_and_english_name_with_its_prefecture(
    japan: Gazetteer, area_table: dict[str, Any]
) -> None:
    missed: list[str] = []
    for code, entry in area_table["class20s"].items():
        prefecture = PREFECTURES[code[:2]]
        for spelling in (prefecture.kana + entry["kana"], f"{entry['enName']}, {prefecture.english}"):
            found = {place.code for place in japan.find(spelling).places}
            if code not in found and "," not in entry["enName"] and "（" not in entry["name"]:
                missed.append(spelling)
    # Kana of a prefecture that is the beginning of another word; none is known in the table of 2026.
    assert missed == []


def test_every_forecast_area_has_an_office_that_publishes(japan: Gazetteer, area_table: dict[str, Any]) -> None:
    offices = {place.area.office for place in japan.places}
    assert offices == set(area_table["offices"]) - {"014030", "460040"}


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("大阪", ("大阪府", "270000")),
        ("大阪市北区梅田", ("大阪府", "270000")),
        ("沖縄", ("沖縄県本島中南部", "471000")),
        ("北海道", ("北海道石狩地方", "016000")),
        ("奄美", ("鹿児島県奄美地方", "460100")),
        ("帯広市", ("北海道十勝地方", "014100")),
        ("京都府京都市左京区", ("京都府南部", "260000")),
        ("北海道中川郡池田町", ("北海道十勝地方", "014100")),
        ("大和郡山市", ("奈良県北部", "290000")),
        ("四日市", ("三重県北中部", "240000")),
        ("佐渡島", ("新潟県佐渡", "150000")),
        ("Naha, Okinawa, Japan", ("沖縄県本島中南部", "471000")),
        ("小笠原", ("東京都小笠原諸島", "130000")),
    ],
)
def test_well_known_places_lie_where_they_should(japan: Gazetteer, question: str, expected: tuple[str, str]) -> None:
    assert area(japan, question) == expected


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


def test_kana_is_distinguished_from_kanji() -> None:
    assert romaji_key("シンジュク") == "shinjuku"
    assert romaji_key("新ジュク") == ""
    assert romaji_key("") == ""
