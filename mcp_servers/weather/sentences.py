"""A forecast -> one sentence in Japanese and one in English.

The sentences are facts in a fixed order (sky, maximum, minimum, rain); what is not known is not mentioned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from mcp_servers.weather.areas import Place
from mcp_servers.weather.codes import describe
from mcp_servers.weather.forecast import JST, Day, rain_slots_left

_WEEKDAYS_JA = "月火水木金土日"
_WEEKDAYS_EN = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS_EN = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LISTED = 8
# A sentence about more days than this is told in short words.
_TOLD_AT_LENGTH = 2


@dataclass(frozen=True)
class Told:
    """A forecast to be told.

    Args:
        place: of what.
        days: in order.
        today: the date that is called today.
        now: the moment of the question; six-hour slots before it are not told.
        stale_since: when the forecast was published, if the agency could not be asked for a newer one.
    """

    place: Place
    days: Sequence[Day]
    today: date
    now: datetime
    stale_since: datetime | None = None


def rain_percent(day: Day, now: datetime) -> int | None:
    """The highest chance of rain in what is left of a day; None when it is not known."""
    return max((percent for _, percent in rain_slots_left(day, now)), default=day.rain_day_percent)


def where(place: Place) -> str:
    """The place with its forecast area: 横浜市（神奈川県東部）; the area alone when that was asked for."""
    asked_for_area = place.kind == "prefecture" or place.code == place.area.code
    return place.area.name if asked_for_area else f"{place.name}（{place.area.name}）"


def where_english(place: Place) -> str:
    """Like ``where``, in English."""
    asked_for_area = place.kind == "prefecture" or place.code == place.area.code
    return place.area.english if asked_for_area else f"{place.english} ({place.area.english})"


def sky(day: Day) -> str:
    """The weather of a day in Japanese: the agency's text, or what its code says; empty when there is neither."""
    words = describe(day.code)
    return day.weather or (words[0] if words else "")


def in_japanese(told: Told) -> str:
    """The sentence in Japanese."""
    if len(told.days) > _TOLD_AT_LENGTH:
        days = "、".join(
            f"{_day(told, day)}は{sky(day) or '不明'}{_in_brackets(_facts(told, day))}" for day in told.days
        )
        return f"{where(told.place)}の天気は、{days}です。{_stale(told)}"
    first, *others = ("、".join((sky(day) or "不明", *_facts(told, day))) for day in told.days)
    second = "".join(f"、{_day(told, day)}は{text}" for day, text in zip(told.days[1:], others, strict=True))
    return f"{where(told.place)}の{_day(told, told.days[0])}の天気は{first}{second}です。{_stale(told)}"


def in_english(told: Told) -> str:
    """The sentence in English."""
    days = "; ".join(
        ", ".join((f"{_day_english(told, day)}: {_sky_english(day)}", *_facts_english(told, day))) for day in told.days
    )
    old = f" (Published {_hour_english(told.stale_since)}; the agency cannot be reached.)" if told.stale_since else ""
    return f"{where_english(told.place)}, {days}.{old}"


def ambiguous(question: str, places: Sequence[Place]) -> tuple[str, str]:
    """That a name has several meanings, in both languages."""
    more = len(places) - _LISTED
    names = "、".join(place.full_name for place in places[:_LISTED]) + ("など" if more > 0 else "")
    english = "; ".join(place.full_english for place in places[:_LISTED]) + (f" and {more} more" if more > 0 else "")
    return (
        f"「{question}」は{len(places)}か所あります: {names}。どこか、都道府県を付けて指定してください。",
        f"There are {len(places)} places called {question}: {english}. Which one? Give the prefecture too.",
    )


def _day(told: Told, day: Day) -> str:
    names = {0: "今夜" if day.tonight else "今日", 1: "明日"}
    month_and_day = f"{day.date.month}月{day.date.day}日"
    name = names.get((day.date - told.today).days)
    return f"{name}({month_and_day})" if name else f"{month_and_day}({_WEEKDAYS_JA[day.date.weekday()]})"


def _day_english(told: Told, day: Day) -> str:
    names = {0: "tonight" if day.tonight else "today", 1: "tomorrow"}
    name = names.get((day.date - told.today).days, _WEEKDAYS_EN[day.date.weekday()])
    return f"{name} ({_MONTHS_EN[day.date.month - 1]} {day.date.day})"


def _facts(told: Told, day: Day) -> tuple[str, ...]:
    brief = len(told.days) > _TOLD_AT_LENGTH
    rain = rain_percent(day, told.now)
    several = len({percent for _, percent in rain_slots_left(day, told.now)}) > 1
    facts = (
        (day.high_c, f"{'最高' if brief else '最高気温'}{day.high_c}度"),
        (day.low_c, f"{'最低' if brief else '最低気温'}{day.low_c}度"),
        (rain, f"{'降水' if brief else '降水確率は'}{'最大' if several else ''}{rain}%"),
    )
    return tuple(text for value, text in facts if value is not None)


def _facts_english(told: Told, day: Day) -> tuple[str, ...]:
    brief = len(told.days) > _TOLD_AT_LENGTH
    rain = rain_percent(day, told.now)
    facts = (
        (day.high_c, f"high {day.high_c}°C"),
        (day.low_c, f"low {day.low_c}°C"),
        (rain, f"{'rain' if brief else 'chance of rain'} {rain}%"),
    )
    return tuple(text for value, text in facts if value is not None)


def _sky_english(day: Day) -> str:
    words = describe(day.code)
    english = words[1] if words else "unknown"
    return english.replace("sunny", "clear") if day.tonight else english


def _in_brackets(facts: tuple[str, ...]) -> str:
    return f"（{'、'.join(facts)}）" if facts else ""


def _stale(told: Told) -> str:
    if told.stale_since is None:
        return ""
    since = told.stale_since.astimezone(JST)
    return f"（気象庁に接続できないため、{since.month}月{since.day}日{since.hour}時発表の予報です）"


def _hour_english(time: datetime | None) -> str:
    local = time.astimezone(JST) if time else None
    return f"{_MONTHS_EN[local.month - 1]} {local.day}, {local.hour}:{local.minute:02d} JST" if local else ""
