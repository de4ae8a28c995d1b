from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from mcp_servers.weather.forecast import (
    STATION_TABLE,
    WEEK_AREA_TABLE,
    WEEK_STATION_TABLE,
    AreaCodes,
    AreaForecast,
    CodeTables,
    Day,
    OfficeForecast,
    rain_slots_left,
    readable_text,
)
from mcp_servers.weather.wording import describe_code
from tests.support.fake_jma import cases_folder
from tests.support.jma_forecasts import EDITIONS, invented_forecast, small_table

JST = timezone(timedelta(hours=9))
TOKYO = AreaCodes("130010", ("44132",), ("130010",), {"130010": "44132"})
D21, D22, D23, D24 = (date(2026, 11, day) for day in range(21, 25))


def published(hour: int) -> datetime:
    return datetime(2026, 11, 21, hour, tzinfo=JST)


def read(document: object, codes: AreaCodes = TOKYO) -> AreaForecast:
    forecast = OfficeForecast(document).for_area(codes)
    assert forecast
    return forecast


def day_of(forecast: AreaForecast, day: date) -> Day:
    return next(each for each in forecast.days if each.date == day)


def temperatures(forecast: AreaForecast) -> dict[date, tuple[int | None, int | None]]:
    return {day.date: (day.low_c, day.high_c) for day in forecast.days[:4]}


@pytest.mark.parametrize(
    ("hour", "known", "texts", "days"),
    [
        (5, [(None, 18), (9, 17), (7, 15), (6, 12)], 2, 7),
        (11, [(None, 18), (9, 17), (8, 16), (7, 15)], 3, 8),
        (17, [(None, None), (9, 17), (8, 16), (7, 15)], 3, 8),
    ],
    ids=["morning", "noon", "evening"],
)
def test_each_edition_tells_the_temperatures_and_texts_that_it_has_and_the_evening_one_says_tonight(
    hour: int, known: list[tuple[int | None, int | None]], texts: int, days: int
) -> None:
    forecast = read(invented_forecast("130000", published(hour)))
    assert temperatures(forecast) == dict(zip((D21, D22, D23, D24), known, strict=True))
    assert [bool(day.weather) for day in forecast.days] == [True] * texts + [False] * (days - texts)
    assert [day.tonight for day in forecast.days[:3]] == [hour == 17, False, False]


def test_the_third_day_takes_its_text_from_the_next_days_and_its_numbers_from_the_week() -> None:
    third = day_of(read(invented_forecast("130000", published(17))), D23)
    assert third == Day(
        D23,
        code="300",
        weather="雨",
        wind="北の風、23区西部では北の風やや強く",
        waves="0.5メートル後1メートル",
        high_c=16,
        low_c=8,
        rain_day_percent=20,
    )


def test_six_hour_slots_belong_to_their_day_and_end() -> None:
    today = read(invented_forecast("130000", published(11))).days[0]
    assert [(start.hour, percent) for start, percent in today.rain_slots] == [(12, 0), (18, 10)]
    assert rain_slots_left(today, published(17)) == today.rain_slots
    assert rain_slots_left(today, published(18)) == today.rain_slots[1:]


@pytest.mark.parametrize("hour", EDITIONS)
def test_every_edition_is_read_alike_when_areas_and_times_come_in_another_order(hour: int) -> None:
    straight = invented_forecast("130000", published(hour))
    shuffled = json.loads(json.dumps(straight))
    for report in shuffled:
        for series in report["timeSeries"]:
            series["areas"].reverse()
    assert read(shuffled) == read(straight)
    oshima = AreaCodes("130020", ("44172",), ("130100", "130020"), {"130020": "44172"})
    assert day_of(read(shuffled, oshima), D22).high_c == 16


def test_empty_strings_and_missing_arrays_are_not_known() -> None:
    document = invented_forecast("070000", published(17))
    document[0]["timeSeries"][2]["areas"][0]["temps"] = ["", "-"]
    fukushima = AreaCodes("070010", ("36127",), ("070100", "070000"), {"070100": "36127"})
    tomorrow = day_of(read(document, fukushima), D22)
    assert (tomorrow.high_c, tomorrow.low_c, tomorrow.waves) == (None, None, "")


def test_arrays_shorter_than_their_times_are_read_up_to_their_end() -> None:
    document = invented_forecast("130000", published(17))
    row = document[0]["timeSeries"][0]["areas"][0]
    row["weathers"], row["winds"], row["weatherCodes"] = ["晴れ"], [], ["100", "200"]
    forecast = read(document)
    assert [(day.code, day.weather, day.wind) for day in forecast.days[:3]] == [
        ("100", "晴れ", ""),
        ("200", "", ""),
        ("101", "", ""),
    ]


def test_a_file_without_the_area_says_nothing_about_it() -> None:
    nowhere = replace(TOKYO, area="999999")
    assert OfficeForecast(invented_forecast("130000", published(17))).for_area(nowhere) is None


def test_an_office_with_one_week_area_needs_no_table_to_find_it() -> None:
    codes = AreaCodes("140010", ("46106",), (), {})
    assert day_of(read(invented_forecast("140000", published(17)), codes), D24).high_c == 15


def test_a_file_of_the_next_days_alone_is_read() -> None:
    assert len(read(invented_forecast("130000", published(17))[:1]).days) == 3


@pytest.mark.parametrize("document", [[], {}, None, "", [[]], [{"publishingOffice": "x"}], [1]])
def test_something_that_is_not_a_forecast_is_refused(document: object) -> None:
    with pytest.raises(ValueError, match="validation error"):
        OfficeForecast(document)


def test_a_station_named_like_the_municipality_comes_first() -> None:
    tables = CodeTables(stations=STATION_TABLE.validate_python(small_table("forecast_area")))
    names = {"36127": "福島", "36476": "郡山"}
    assert tables.codes_of("070010", near="郡山", station_names=names).stations == ("36476", "36127")
    assert tables.codes_of("070010", near="福島", station_names=names).stations == ("36127", "36476")


def test_spaced_full_width_text_becomes_readable() -> None:
    assert readable_text("くもり　所により　明け方　まで　雷　を伴い　非常に　激しく　降る") == (
        "くもり、所により明け方まで雷を伴い非常に激しく降る"
    )
    assert readable_text("晴れ　夜遅く　くもり") == "晴れ、夜遅くくもり"
    assert readable_text("２．５メートル　ただし　新島　では　３メートル") == "2.5メートル、ただし新島では3メートル"
    assert readable_text("くもり　はじめ　雨") == "くもり、はじめ雨"
    assert readable_text("") == ""


# The saved files are found when the tests are collected; where there are none, the one parameter skips by name.
def saved_files() -> list[Path]:
    try:
        return sorted(cases_folder().glob("forecast_*0000_*.json"))
    except pytest.skip.Exception:
        return []


def tables_in(folder: Path) -> CodeTables:
    def table(name: str) -> Any:
        return json.loads((folder / f"{name}.json").read_text("utf-8"))

    return CodeTables(
        STATION_TABLE.validate_python(table("forecast_area")),
        WEEK_STATION_TABLE.validate_python(table("week_area")),
        WEEK_AREA_TABLE.validate_python(table("week_area05")),
    )


@pytest.mark.parametrize("name", [path.name for path in saved_files()] or ["none saved"])
def test_every_saved_forecast_tells_a_week_of_every_area(name: str) -> None:
    folder = cases_folder()
    document = json.loads((folder / name).read_text("utf-8"))
    office = OfficeForecast(document)
    tables = tables_in(folder)
    reported = datetime.fromisoformat(document[0]["reportDatetime"])
    for row in document[0]["timeSeries"][0]["areas"]:
        codes = tables.codes_of(row["area"]["code"], near="", station_names=office.station_names)
        forecast = office.for_area(codes)
        assert forecast
        assert forecast.report_time == reported
        assert [day.date for day in forecast.days][:7] == [reported.date() + timedelta(days=at) for at in range(7)]
        today, tomorrow, *later = forecast.days
        assert today.low_c is None
        assert (today.high_c is None) == (reported.hour >= 17)
        assert tomorrow.low_c is not None
        assert tomorrow.high_c is not None
        assert tomorrow.low_c <= tomorrow.high_c
        for day in later:
            assert describe_code(day.code)
            assert day.low_c is not None
            assert day.high_c is not None
            assert day.low_c <= day.high_c
            assert day.rain_day_percent is not None
        assert all("\u3000" not in text for day in forecast.days for text in (day.weather, day.wind, day.waves))
