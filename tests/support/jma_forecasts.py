"""Invented forecasts in the agency's form, of any time of publication.

The agency publishes at 05, 11 and 17 o'clock, and how many days, six-hour slots and temperatures a file holds depends
on the hour (the table ``EDITIONS``). The areas are those of the small tables in ``jma/``, an excerpt of the agency's
(出典：気象庁ホームページ); their weather is made up.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

JST = timezone(timedelta(hours=9))
TABLES = Path(__file__).parent / "jma"

STATION_NAMES = {
    "14163": "札幌", "19432": "釧路", "20432": "帯広", "34392": "仙台", "34461": "白石", "36127": "福島",
    "36476": "郡山", "44132": "東京", "44172": "大島", "46106": "横浜", "61286": "京都", "62078": "大阪",
    "67437": "広島", "82182": "福岡", "91197": "那覇",
}  # fmt: skip
_NEIGHBOUR = {"014030": "014100"}
_INLAND = {"016010", "070010"}
_SKIES = (
    ("101", "晴れ　時々　くもり"),
    ("201", "くもり　昼前　から　時々　晴れ　所により　夜　雨"),
    ("300", "雨"),
)


@dataclass(frozen=True)
class Edition:
    """What a file of one hour of publication holds: days of weather, six-hour slots, and whether today's maximum."""

    days: int
    slots: int
    tells_today: bool
    week_is_yesterdays: bool


EDITIONS = {
    5: Edition(days=2, slots=7, tells_today=True, week_is_yesterdays=True),
    11: Edition(days=3, slots=6, tells_today=True, week_is_yesterdays=False),
    17: Edition(days=3, slots=5, tells_today=False, week_is_yesterdays=False),
}


def last_edition(now: datetime) -> datetime:
    """When the newest file at a given moment was published."""
    local = now.astimezone(JST).replace(minute=0, second=0, microsecond=0)
    hour = max((hour for hour in EDITIONS if hour <= local.hour), default=None)
    return local.replace(hour=hour) if hour else (local - timedelta(days=1)).replace(hour=17)


def small_table(name: str) -> Any:
    """One of the small tables, parsed: area, forecast_area, week_area, week_area05."""
    return json.loads((TABLES / f"{name}.json").read_text("utf-8"))


def invented_forecast(office: str, published: datetime) -> list[dict[str, Any]]:
    """The forecast file of an office of the small tables, published at 05, 11 or 17 o'clock in Japan."""
    edition = EDITIONS[published.astimezone(JST).hour]
    midnight = published.astimezone(JST).replace(hour=0, minute=0, second=0, microsecond=0)
    offices = [office, *(lodger for lodger, host in _NEIGHBOUR.items() if host == office)]
    table = small_table("forecast_area")
    rows = [row for each in offices for row in table[each]]
    week = published.astimezone(JST) - timedelta(hours=12) if edition.week_is_yesterdays else published
    head = {"publishingOffice": small_table("area")["offices"][office]["officeName"]}
    return [
        {**head, "reportDatetime": published.isoformat(), "timeSeries": _next_days(rows, published, midnight, edition)},
        {**head, "reportDatetime": week.isoformat(), "timeSeries": _week(offices, week)},
    ]


def _next_days(rows: list[Any], published: datetime, midnight: datetime, edition: Edition) -> list[dict[str, Any]]:
    names = {code: entry["name"] for code, entry in small_table("area")["class10s"].items()}
    days = [published, *(midnight + timedelta(days=ahead) for ahead in range(1, edition.days))]
    first_slot = midnight + timedelta(hours=(published.hour + 1) // 6 * 6)
    slots = [first_slot + timedelta(hours=6 * at) for at in range(edition.slots)]
    tomorrow = midnight + timedelta(days=1)
    hours = [tomorrow, tomorrow + timedelta(hours=9)]
    temps = ["9", "17"]
    if edition.tells_today:
        # What the agency puts at 00:00 of the report's own day is the maximum once more, not a minimum.
        hours = [midnight + timedelta(hours=9), midnight, *hours]
        temps = ["18", "18", *temps]
    weather: list[dict[str, Any]] = []
    for row in rows:
        entry: dict[str, Any] = {
            "area": {"name": names[row["class10"]], "code": row["class10"]},
            "weatherCodes": [_SKIES[at][0] for at in range(len(days))],
            "weathers": [_SKIES[at][1] for at in range(len(days))],
            "winds": ["北の風　２３区西部　では　北の風　やや強く"] * len(days),
        }
        if row["class10"] not in _INLAND:
            entry["waves"] = ["０．５メートル　後　１メートル"] * len(days)
        weather.append(entry)
    pops = [str(10 * (at % 5)) for at in range(len(slots))]
    stations = [station for row in rows for station in row["amedas"]]
    return [
        {"timeDefines": [_text(day) for day in days], "areas": weather},
        {
            "timeDefines": [_text(slot) for slot in slots],
            "areas": [{"area": entry["area"], "pops": pops} for entry in weather],
        },
        {
            "timeDefines": [_text(hour) for hour in hours],
            "areas": [
                {"area": {"name": STATION_NAMES[code], "code": code}, "temps": _shifted(temps, -at)}
                for at, code in enumerate(stations)
            ],
        },
    ]


def _week(offices: list[str], published: datetime) -> list[dict[str, Any]]:
    table = small_table("week_area")
    rows = [row for office in offices for row in table[office]]
    first = (published + timedelta(days=1)).replace(hour=0)
    days = [_text(first + timedelta(days=at)) for at in range(7)]
    return [
        {
            "timeDefines": days,
            "areas": [
                {
                    "area": {"name": row["week"], "code": row["week"]},
                    "weatherCodes": ["201", "101", "200", "300", "411", "100", "999"],
                    "pops": ["", "20", "30", "80", "60", "10", "40"],
                    "reliabilities": ["", "", "A", "B", "C", "A", "A"],
                }
                for row in rows
            ],
        },
        {
            "timeDefines": days,
            "areas": [
                {
                    "area": {"name": STATION_NAMES[row["amedas"]], "code": row["amedas"]},
                    "tempsMin": ["", "8", "7", "6", "-1", "-2", "0"],
                    "tempsMax": ["", "16", "15", "12", "4", "5", "7"],
                }
                for row in rows
            ],
        },
    ]


def _shifted(temps: list[str], by: int) -> list[str]:
    return [str(int(temp) + by) for temp in temps]


def _text(time: datetime) -> str:
    return time.astimezone(JST).isoformat()
