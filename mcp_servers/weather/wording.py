"""Forecast -> one sentence in Japanese and one in English; weather codes -> words.

The facts have a fixed order (weather, maximum, minimum, rain); unknown values are omitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from mcp_servers.weather.areas import Place
from mcp_servers.weather.forecast import JST, Day, rain_slots_left

_WEEKDAYS_JA = "月火水木金土日"
_WEEKDAYS_EN = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS_EN = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MAX_LISTED = 8
# A summary of more days than this uses short words.
_DETAILED_DAYS = 2


@dataclass(frozen=True)
class ForecastSummary:
    """Input of a forecast sentence."""

    place: Place
    days: Sequence[Day]  # in order
    today: date  # date that the sentence calls today
    now: datetime  # earlier six-hour slots are omitted
    stale_since: datetime | None = None  # publication time, if the agency could not be reached for a newer forecast
    sample_of: datetime | None = None  # publication time, if the forecast is the sample and not one of today


def rain_percent(day: Day, now: datetime) -> int | None:
    """Return the highest chance of rain in the rest of a day; None if unknown."""
    return max((percent for _, percent in rain_slots_left(day, now)), default=day.rain_day_percent)


def place_labels(location: Place) -> tuple[str, str]:
    """Return the place with its forecast area in Japanese and English; the area alone if it is the place itself.

    An example is 横浜市（神奈川県東部）.
    """
    if location.kind == "prefecture" or location.code == location.area.code:
        return location.area.name, location.area.english
    return f"{location.name}（{location.area.name}）", f"{location.english} ({location.area.english})"


def weather_text(day: Day) -> str:
    """Return the weather of a day in Japanese: the agency's text, else the meaning of its code; may be empty."""
    words = describe_code(day.code)
    return day.weather or (words[0] if words else "")


def in_japanese(summary: ForecastSummary) -> str:
    """Return the forecast as a Japanese sentence; a sample says so first."""
    days = [(_day_names(summary, day)[0], weather_text(day) or "不明", _facts(summary, day)) for day in summary.days]
    if len(days) > _DETAILED_DAYS:
        brief = (f"{name}は{weather}" + (f"（{'、'.join(facts)}）" if facts else "") for name, weather, facts in days)
        forecast = f"天気は、{'、'.join(brief)}"
    else:
        (first, *_), *_ = days
        texts = [(name, "、".join((weather, *facts))) for name, weather, facts in days]
        forecast = f"{first}の天気は{texts[0][1]}" + "".join(f"、{name}は{text}" for name, text in texts[1:])
    sample = old = ""
    if time := summary.sample_of:
        sample = (
            "気象庁に接続できないため、デモ用の見本で答えます。"
            f"{time.year}年{time.month}月{time.day}日{time.hour}時に気象庁が発表した予報で、現在の予報ではありません。"
        )
    if summary.stale_since:
        since = summary.stale_since.astimezone(JST)
        old = f"（気象庁に接続できないため、{since.month}月{since.day}日{since.hour}時発表の予報です）"
    return f"{sample}{place_labels(summary.place)[0]}の{forecast}です。{old}"


def in_english(summary: ForecastSummary) -> str:
    """Return the forecast as an English sentence; a sample says so first."""
    days: list[str] = []
    for day in summary.days:
        words = describe_code(day.code)
        weather = words[1] if words else "unknown"
        weather = weather.replace("sunny", "clear") if day.tonight else weather
        facts = (f"{_day_names(summary, day)[1]}: {weather}", *_facts(summary, day, _FACTS_ENGLISH))
        days.append(", ".join(facts))
    sample = old = ""
    if summary.sample_of:
        sample = (
            "The Japan Meteorological Agency cannot be reached; this is the demo's sample, its forecast of"
            f" {summary.sample_of.astimezone(JST):%Y-%m-%d %H:%M} JST, and not a current one. "
        )
    if summary.stale_since:
        since = summary.stale_since.astimezone(JST)
        published = f"{_MONTHS_EN[since.month - 1]} {since.day}, {since.hour}:{since.minute:02d} JST"
        old = f" (Published {published}; the agency cannot be reached.)"
    return f"{sample}{place_labels(summary.place)[1]}, {'; '.join(days)}.{old}"


def ambiguity_message(query: str, locations: Sequence[Place]) -> tuple[str, str]:
    """Return the question that lists the places of an ambiguous name, in Japanese and English."""
    if all(location.kind == "prefecture" for location in locations):
        names = "、".join(location.full_name for location in locations)
        return (
            f"「{query}」には{names}があります。どの都道府県か指定してください。",
            f"{query} has {', '.join(location.full_english for location in locations)}. Which prefecture?",
        )
    more = len(locations) - _MAX_LISTED
    names = "、".join(location.full_name for location in locations[:_MAX_LISTED])
    english = "; ".join(location.full_english for location in locations[:_MAX_LISTED])
    if more > 0:
        names, english = f"{names}など", f"{english} and {more} more"
    return (
        f"「{query}」は{len(locations)}か所あります: {names}。どこか、都道府県を付けて指定してください。",
        f"There are {len(locations)} places called {query}: {english}. Which one? Give the prefecture too.",
    )


def _day_names(summary: ForecastSummary, day: Day) -> tuple[str, str]:
    """Return the name of a day with its date in Japanese and English; in a sample no day is today."""
    names = {0: ("今夜", "tonight") if day.tonight else ("今日", "today"), 1: ("明日", "tomorrow")}
    near = None if summary.sample_of else names.get((day.date - summary.today).days)
    month, weekday = day.date.month, day.date.weekday()
    month_and_day = f"{month}月{day.date.day}日"
    return (
        f"{near[0]}({month_and_day})" if near else f"{month_and_day}({_WEEKDAYS_JA[weekday]})",
        f"{near[1] if near else _WEEKDAYS_EN[weekday]} ({_MONTHS_EN[month - 1]} {day.date.day})",
    )


# Maximum, minimum and chance of rain in a detailed summary, and in a brief one.
_FACTS = (("最高気温{}度", "最低気温{}度", "降水確率は{}{}%"), ("最高{}度", "最低{}度", "降水{}{}%"))
_FACTS_ENGLISH = (("high {}°C", "low {}°C", "chance of rain {1}%"), ("high {}°C", "low {}°C", "rain {1}%"))


def _facts(summary: ForecastSummary, day: Day, sentences: Sequence[Sequence[str]] = _FACTS) -> list[str]:
    high, low, rain = sentences[len(summary.days) > _DETAILED_DAYS]
    facts = [text.format(value) for text, value in ((high, day.high_c), (low, day.low_c)) if value is not None]
    percent = rain_percent(day, summary.now)
    if percent is not None:
        several = len({slot for _, slot in rain_slots_left(day, summary.now)}) > 1
        facts.append(rain.format("最大" if several else "", percent))
    return facts


# weather_codes.tsv: code, Japanese, English.
WEATHER_CODES: dict[str, tuple[str, str]] = {
    code: (japanese, english)
    for code, japanese, english in (
        line.split("\t") for line in Path(__file__).with_name("weather_codes.tsv").read_text("utf-8").splitlines()
    )
}


def describe_code(code: str) -> tuple[str, str] | None:
    """Return the meaning of a weather code in Japanese and English; None if it has none.

    The week's forecast contains codes only, and English text always comes from the code. A code that is not in the
    agency's table is read by its first digit.
    """
    return WEATHER_CODES.get(code) or WEATHER_CODES.get(f"{code[:1]}00")
