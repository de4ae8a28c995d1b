from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from mcp import Client

from mcp_servers.weather.server import create_server
from mcp_servers.weather.settings import Clock, Settings
from tests.support.fake_jma import FakeAgency, cases_folder
from tests.support.jma_forecasts import JST, invented_forecast
from tests.support.weather_calls import call

pytestmark = pytest.mark.anyio

MORNING, NOON, EVENING = (datetime(2026, 11, 21, hour, 30, tzinfo=JST) for hour in (5, 11, 18))
TOKYO_FILE = "/bosai/forecast/data/forecast/130000.json"


@asynccontextmanager
async def served(fake: FakeAgency, now: datetime | Clock, cache: Path | None = None) -> AsyncGenerator[Client, None]:
    clock: Clock = now if callable(now) else lambda: now
    settings = Settings(base_url=fake.base_url, cache_folder=cache, pause_s=0)
    async with Client(create_server(settings, clock)) as client:
        yield client


@pytest.fixture
def evening() -> Iterator[FakeAgency]:
    with FakeAgency(now=EVENING) as agency:
        yield agency


async def test_the_tools_say_little_and_are_read_only(evening: FakeAgency) -> None:
    async with served(evening, EVENING) as client:
        tools = (await client.list_tools()).tools
    place = "Place in Japan, as the question names it; with its prefecture if ambiguous"
    assert {tool.name: tool.input_schema for tool in tools} == {
        "get_weather": {
            "type": "object",
            "properties": {"location": {"type": "string", "description": place}},
            "required": ["location"],
        },
        "get_forecast": {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": place},
                "days": {
                    "type": "integer",
                    "description": "How many days, from today",
                    "default": 3,
                    "minimum": 1,
                    "maximum": 7,
                },
            },
            "required": ["location"],
        },
        "find_area": {
            "type": "object",
            "properties": {"name": {"type": "string", "description": "Place name"}},
            "required": ["name"],
        },
    }
    for tool in tools:
        assert tool.description
        assert len(tool.description) < 80
        assert tool.annotations
        assert tool.annotations.read_only_hint is True
        assert tool.output_schema


async def test_the_weather_at_noon_is_todays(evening: FakeAgency) -> None:
    evening.serve_forecast("130000", invented_forecast("130000", NOON.replace(minute=0)))
    async with served(evening, NOON) as client:
        answer = await call(client, "get_weather", location="東京")
    assert answer.structured == {
        "summary": "東京地方の今日(11月21日)の天気は晴れ時々くもり、最高気温18度、降水確率は最大10%です。",
        "summary_en": "Tokyo Region, today (Nov 21): sunny, cloudy at times, high 18°C, chance of rain 10%.",
        "area": "東京地方",
        "temperatures_at": "東京",
        "days": [
            {
                "date": "2026-11-21",
                "weather": "晴れ時々くもり",
                "high_c": 18,
                "rain_percent": 10,
                "rain_by_hours": {"12-18": 0, "18-24": 10},
                "wind": "北の風、23区西部では北の風やや強く",
                "waves": "0.5メートル後1メートル",
            }
        ],
        "report_time": "2026-11-21T11:00:00+09:00",
        "publishing_office": "気象庁",
        "source": "気象庁ホームページ",
    }


async def test_the_weather_in_the_evening_is_tonights_and_tomorrows(evening: FakeAgency) -> None:
    async with served(evening, EVENING) as client:
        answer = await call(client, "get_weather", location="しんじゅく")
    assert answer.structured["summary"] == (
        "新宿区（東京地方）の今夜(11月21日)の天気は晴れ時々くもり、降水確率は0%、"
        "明日(11月22日)はくもり、昼前から時々晴れ、所により夜雨、最高気温17度、最低気温9度、降水確率は最大40%です。"
    )
    assert answer.structured["summary_en"] == (
        "Shinjuku City (Tokyo Region), tonight (Nov 21): clear, cloudy at times, chance of rain 0%;"
        " tomorrow (Nov 22): cloudy, sunny at times, high 17°C, low 9°C, chance of rain 40%."
    )
    assert [day["date"] for day in answer.structured["days"]] == ["2026-11-21", "2026-11-22"]


async def test_after_midnight_yesterdays_evening_forecast_is_read_by_date(evening: FakeAgency) -> None:
    night = datetime(2026, 11, 22, 2, tzinfo=JST)
    async with served(evening, night) as client:
        answer = await call(client, "get_weather", location="東京")
    assert answer.structured["summary"] == (
        "東京地方の今日(11月22日)の天気はくもり、昼前から時々晴れ、所により夜雨、最高気温17度、最低気温9度、降水確率は最大40%です。"
    )


@pytest.mark.parametrize("now", [MORNING, NOON, EVENING])
@pytest.mark.parametrize("days", [1, 3, 7])
async def test_a_forecast_has_the_days_asked_for_from_today_on(now: datetime, days: int) -> None:
    with FakeAgency(now=now) as fake:
        async with served(fake, now) as client:
            answer = await call(client, "get_forecast", location="東京", days=days)
    dates = [day["date"] for day in answer.structured["days"]]
    assert dates == [(now.date() + timedelta(days=at)).isoformat() for at in range(days)]


async def test_a_forecast_of_three_days_is_one_sentence(evening: FakeAgency) -> None:
    async with served(evening, EVENING) as client:
        answer = await call(client, "get_forecast", location="Yokohama")
    assert answer.structured["summary"] == (
        "横浜市（神奈川県東部）の天気は、今夜(11月21日)は晴れ時々くもり（降水0%）、"
        "明日(11月22日)はくもり、昼前から時々晴れ、所により夜雨（最高17度、最低9度、降水最大40%）、"
        "11月23日(月)は雨（最高16度、最低8度、降水20%）です。"
    )
    assert answer.structured["summary_en"] == (
        "Yokohama City (Eastern Region, Kanagawa), tonight (Nov 21): clear, cloudy at times, rain 0%;"
        " tomorrow (Nov 22): cloudy, sunny at times, high 17°C, low 9°C, rain 40%;"
        " Mon (Nov 23): rain, high 16°C, low 8°C, rain 20%."
    )


async def test_a_day_without_any_known_weather_says_so(evening: FakeAgency) -> None:
    async with served(evening, EVENING) as client:
        answer = await call(client, "get_forecast", location="東京", days=7)
        document = invented_forecast("130000", EVENING.replace(hour=17, minute=0))
        document[0]["timeSeries"][0]["areas"][0] |= {"weatherCodes": ["999", "", ""], "weathers": []}
        document[1]["timeSeries"] = []
    assert "不明" not in answer.structured["summary"]
    evening.serve_forecast("130000", document)
    async with served(evening, EVENING) as client:
        answer = await call(client, "get_weather", location="東京")
    assert answer.structured["summary"].startswith(
        "東京地方の今夜(11月21日)の天気は不明、降水確率は0%、明日(11月22日)は不明、"
    )
    assert "tonight (Nov 21): unknown" in answer.structured["summary_en"]


async def test_the_text_of_a_result_is_its_structure_without_spaces(evening: FakeAgency) -> None:
    async with served(evening, EVENING) as client:
        for name, arguments in {
            "get_weather": {"location": "東京"},
            "get_forecast": {"location": "東京"},
            "find_area": {"name": "東京"},
        }.items():
            answer = await call(client, name, **arguments)
            compact = json.dumps(answer.structured, ensure_ascii=False, separators=(",", ":"))
            assert answer.text == compact
            assert answer.text.startswith('{"summary":"')


async def test_an_ambiguous_name_is_answered_with_the_places_to_choose_from(evening: FakeAgency) -> None:
    async with served(evening, EVENING) as client:
        answer = await call(client, "get_weather", location="府中市")
        chosen = await call(client, "get_weather", location="広島県府中市")
    assert not answer.is_error
    assert answer.structured == {
        "summary": "「府中市」は2か所あります: 東京都府中市、広島県府中市。どこか、都道府県を付けて指定してください。",
        "summary_en": (
            "There are 2 places called 府中市: Fuchu City, Tokyo; Fuchu City, Hiroshima."
            " Which one? Give the prefecture too."
        ),
        "candidates": ["東京都府中市", "広島県府中市"],
        "source": "気象庁ホームページ",
    }
    assert chosen.structured["area"] == "府中市（広島県南部）"
    assert evening.count("/forecast/data/") == 1


async def test_an_unknown_place_is_an_error_that_says_what_to_do(evening: FakeAgency) -> None:
    async with served(evening, EVENING) as client:
        unknown = await call(client, "get_weather", location="存在しない")
        near = await call(client, "get_forecast", location="Saporo")
        long = await call(client, "get_weather", location="あ" * 100_000)
    assert unknown.is_error
    assert unknown.text == (
        "「存在しない」という場所は見つかりません。日本の都道府県名か市区町村名を指定してください。"
        " / No such place in Japan. Name a Japanese prefecture or municipality."
    )
    assert near.text == (
        "「Saporo」という場所は見つかりません。もしかして: 北海道札幌市"
        " / No such place in Japan. Did you mean 北海道札幌市?"
    )
    assert len(long.text) < 300


@pytest.mark.parametrize("days", [0, 8, -1])
async def test_a_number_of_days_that_no_forecast_has_is_an_error_in_one_line(evening: FakeAgency, days: int) -> None:
    async with served(evening, EVENING) as client:
        answer = await call(client, "get_forecast", location="東京", days=days)
    assert answer.is_error
    assert answer.text == (
        f"daysは1から7までで指定してください({days}は指定できません)。 / days must be from 1 to 7, not {days}."
    )


async def test_an_area_is_found_with_its_namesakes(evening: FakeAgency) -> None:
    async with served(evening, EVENING) as client:
        answer = await call(client, "find_area", name="府中")
        nothing = await call(client, "find_area", name="しんじゅ")
    assert [place["name"] for place in answer.structured["places"]] == ["東京都府中市", "広島県府中市", "広島県府中町"]
    assert answer.structured["places"][1] == {
        "name": "広島県府中市",
        "kana": "ふちゅうし",
        "english": "Fuchu City, Hiroshima",
        "forecast_area": "広島県南部",
        "code": "3420800",
    }
    assert answer.structured["summary"] == "「府中」に当たる場所は3件: 東京都府中市、広島県府中市、広島県府中町。"
    assert not nothing.is_error
    assert nothing.structured["places"] == []
    assert nothing.structured["suggestions"] == ["東京都新宿区"]


async def test_one_office_is_asked_once_for_all_its_places(evening: FakeAgency) -> None:
    async with served(evening, EVENING) as client:
        for location in ("東京", "新宿", "大島町", "Ota"):
            await call(client, "get_weather", location=location)
        await call(client, "get_forecast", location="東京")
    assert evening.count(TOKYO_FILE) == 1
    assert evening.count() == 5


async def test_an_agency_that_is_down_is_an_error_that_says_so(evening: FakeAgency) -> None:
    evening.close()
    async with served(evening, EVENING) as client:
        answers = [
            await call(client, "get_weather", location="東京"),
            await call(client, "get_forecast", location="東京"),
            await call(client, "find_area", name="東京"),
        ]
    assert [answer.is_error for answer in answers] == [True, True, True]
    assert "気象庁のサーバー" in answers[0].text
    assert "接続できないため" in answers[0].text
    assert "The Japan Meteorological Agency cannot be reached" in answers[0].text


async def test_a_stored_forecast_is_served_with_its_age_when_the_agency_is_down(
    evening: FakeAgency, tmp_path: Path
) -> None:
    async with served(evening, EVENING, tmp_path) as client:
        await call(client, "get_weather", location="東京")
    evening.close()
    async with served(evening, EVENING + timedelta(days=1), tmp_path) as client:
        answer = await call(client, "get_weather", location="東京")
        other = await call(client, "get_weather", location="札幌")
    assert answer.structured["stale"] is True
    assert answer.structured["report_time"] == "2026-11-21T17:00:00+09:00"
    assert answer.structured["summary"] == (
        "東京地方の今日(11月22日)の天気はくもり、昼前から時々晴れ、所により夜雨、最高気温17度、最低気温9度、降水確率は40%です。"
        "（気象庁に接続できないため、11月21日17時発表の予報です）"
    )
    assert answer.structured["summary_en"].endswith(" (Published Nov 21, 17:00 JST; the agency cannot be reached.)")
    assert other.is_error


async def test_a_forecast_too_old_for_today_is_not_served_as_todays(evening: FakeAgency, tmp_path: Path) -> None:
    async with served(evening, EVENING, tmp_path) as client:
        await call(client, "get_weather", location="東京")
    evening.close()
    async with served(evening, EVENING + timedelta(days=30), tmp_path) as client:
        answer = await call(client, "get_weather", location="東京")
    assert answer.is_error
    assert "東京地方の予報は2026-11-21 17:00発表のものしかなく" in answer.text


async def test_a_clock_that_is_far_too_slow_does_not_matter(evening: FakeAgency) -> None:
    async with served(evening, datetime(1970, 1, 1, tzinfo=timezone.utc)) as client:
        answer = await call(client, "get_weather", location="東京")
    assert answer.structured["days"][0]["date"] == "2026-11-21"


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"error": 1}', b'[{"publishingOffice": "x"}]'])
async def test_an_unreadable_forecast_is_an_error_that_says_so(evening: FakeAgency, body: bytes) -> None:
    evening.serve(TOKYO_FILE, body)
    async with served(evening, EVENING) as client:
        answer = await call(client, "get_weather", location="東京")
    assert answer.is_error
    assert answer.text.startswith("気象庁のデータを読み取れませんでした。")
    assert "130000.json" in answer.text


async def test_an_area_without_a_forecast_is_an_error_that_says_so(evening: FakeAgency) -> None:
    evening.serve_forecast("130000", invented_forecast("016000", EVENING.replace(hour=17, minute=0)))
    async with served(evening, EVENING) as client:
        answer = await call(client, "get_weather", location="東京")
    assert answer.is_error
    assert answer.text.startswith("東京地方の予報は現在発表されていません。")


async def test_without_the_small_tables_the_sky_is_still_described(evening: FakeAgency) -> None:
    for table in ("forecast_area", "week_area", "week_area05"):
        evening.serve(f"/bosai/forecast/const/{table}.json", b"gone", status=404)
    async with served(evening, EVENING) as client:
        answer = await call(client, "get_weather", location="東京")
    assert answer.structured["summary"].startswith("東京地方の今夜(11月21日)の天気は晴れ時々くもり、降水確率は0%、明日")
    assert "temperatures_at" not in answer.structured


async def test_every_area_of_every_saved_forecast_is_answered() -> None:
    paths = sorted(cases_folder().glob("forecast_*0000_*.json"), key=lambda path: path.name.split("_")[2])
    now = NOON
    with FakeAgency(cases_folder()) as fake:
        async with served(fake, lambda: now) as client:
            for path in paths:
                document = json.loads(path.read_text("utf-8"))
                fake.serve_forecast(path.name.split("_")[1], document)
                now = datetime.fromisoformat(document[0]["reportDatetime"]) + timedelta(minutes=50)
                for row in document[0]["timeSeries"][0]["areas"]:
                    answer = await call(client, "get_forecast", location=row["area"]["code"], days=7)
                    assert not answer.is_error, (path.name, row["area"], answer.text)
                    assert answer.structured["report_time"] == document[0]["reportDatetime"]
                    assert len(answer.structured["days"]) == 7
                    assert "不明" not in answer.structured["summary"]
                    assert not {"\u3000", "０", "１", "None"} & set(answer.text)
