"""Forecast -> one sentence in Japanese and one in English; weather codes -> words.

The facts have a fixed order (weather, maximum, minimum, rain); unknown values are omitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

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


def rain_percent(day: Day, now: datetime) -> int | None:
    """Return the highest chance of rain in the rest of a day; None if unknown."""
    return max((percent for _, percent in rain_slots_left(day, now)), default=day.rain_day_percent)


def place_label(place: Place) -> str:
    """Return the place with its forecast area: 横浜市（神奈川県東部）; the area alone if it is the place itself."""
    asked_for_area = place.kind == "prefecture" or place.code == place.area.code
    return place.area.name if asked_for_area else f"{place.name}（{place.area.name}）"


def place_label_english(place: Place) -> str:
    """Return the English form of ``place_label``."""
    asked_for_area = place.kind == "prefecture" or place.code == place.area.code
    return place.area.english if asked_for_area else f"{place.english} ({place.area.english})"


def weather_text(day: Day) -> str:
    """Return the weather of a day in Japanese: the agency's text, else the meaning of its code; may be empty."""
    words = describe_code(day.code)
    return day.weather or (words[0] if words else "")


def in_japanese(summary: ForecastSummary) -> str:
    """Return the forecast as a Japanese sentence."""
    if len(summary.days) > _DETAILED_DAYS:
        days = "、".join(
            f"{_day(summary, day)}は{weather_text(day) or '不明'}{_in_brackets(_facts(summary, day))}"
            for day in summary.days
        )
        return f"{place_label(summary.place)}の天気は、{days}です。{_stale(summary)}"
    first, *others = ("、".join((weather_text(day) or "不明", *_facts(summary, day))) for day in summary.days)
    second = "".join(f"、{_day(summary, day)}は{text}" for day, text in zip(summary.days[1:], others, strict=True))
    return (
        f"{place_label(summary.place)}の{_day(summary, summary.days[0])}の天気は{first}{second}です。{_stale(summary)}"
    )


def in_english(summary: ForecastSummary) -> str:
    """Return the forecast as an English sentence."""
    days = "; ".join(
        ", ".join((f"{_day_english(summary, day)}: {_weather_text_english(day)}", *_facts_english(summary, day)))
        for day in summary.days
    )
    old = (
        f" (Published {_hour_english(summary.stale_since)}; the agency cannot be reached.)"
        if summary.stale_since
        else ""
    )
    return f"{place_label_english(summary.place)}, {days}.{old}"


def ambiguity_message(query: str, places: Sequence[Place]) -> tuple[str, str]:
    """Return the question that lists the places of an ambiguous name, in Japanese and English."""
    more = len(places) - _MAX_LISTED
    names = "、".join(place.full_name for place in places[:_MAX_LISTED]) + ("など" if more > 0 else "")
    english = "; ".join(place.full_english for place in places[:_MAX_LISTED]) + (
        f" and {more} more" if more > 0 else ""
    )
    return (
        f"「{query}」は{len(places)}か所あります: {names}。どこか、都道府県を付けて指定してください。",
        f"There are {len(places)} places called {query}: {english}. Which one? Give the prefecture too.",
    )


def _day(summary: ForecastSummary, day: Day) -> str:
    names = {0: "今夜" if day.tonight else "今日", 1: "明日"}
    month_and_day = f"{day.date.month}月{day.date.day}日"
    name = names.get((day.date - summary.today).days)
    return f"{name}({month_and_day})" if name else f"{month_and_day}({_WEEKDAYS_JA[day.date.weekday()]})"


def _day_english(summary: ForecastSummary, day: Day) -> str:
    names = {0: "tonight" if day.tonight else "today", 1: "tomorrow"}
    name = names.get((day.date - summary.today).days, _WEEKDAYS_EN[day.date.weekday()])
    return f"{name} ({_MONTHS_EN[day.date.month - 1]} {day.date.day})"


def _facts(summary: ForecastSummary, day: Day) -> tuple[str, ...]:
    brief = len(summary.days) > _DETAILED_DAYS
    rain = rain_percent(day, summary.now)
    several = len({percent for _, percent in rain_slots_left(day, summary.now)}) > 1
    facts = (
        (day.high_c, f"{'最高' if brief else '最高気温'}{day.high_c}度"),
        (day.low_c, f"{'最低' if brief else '最低気温'}{day.low_c}度"),
        (rain, f"{'降水' if brief else '降水確率は'}{'最大' if several else ''}{rain}%"),
    )
    return tuple(text for value, text in facts if value is not None)


def _facts_english(summary: ForecastSummary, day: Day) -> tuple[str, ...]:
    brief = len(summary.days) > _DETAILED_DAYS
    rain = rain_percent(day, summary.now)
    facts = (
        (day.high_c, f"high {day.high_c}°C"),
        (day.low_c, f"low {day.low_c}°C"),
        (rain, f"{'rain' if brief else 'chance of rain'} {rain}%"),
    )
    return tuple(text for value, text in facts if value is not None)


def _weather_text_english(day: Day) -> str:
    words = describe_code(day.code)
    english = words[1] if words else "unknown"
    return english.replace("sunny", "clear") if day.tonight else english


def _in_brackets(facts: tuple[str, ...]) -> str:
    return f"（{'、'.join(facts)}）" if facts else ""


def _stale(summary: ForecastSummary) -> str:
    if summary.stale_since is None:
        return ""
    since = summary.stale_since.astimezone(JST)
    return f"（気象庁に接続できないため、{since.month}月{since.day}日{since.hour}時発表の予報です）"


def _hour_english(time: datetime | None) -> str:
    local = time.astimezone(JST) if time else None
    return f"{_MONTHS_EN[local.month - 1]} {local.day}, {local.hour}:{local.minute:02d} JST" if local else ""


_TABLE = """
100 晴れ|sunny
101 晴れ時々くもり|sunny, cloudy at times
102 晴れ一時雨|sunny, brief rain
103 晴れ時々雨|sunny, rain at times
104 晴れ一時雪|sunny, brief snow
105 晴れ時々雪|sunny, snow at times
106 晴れ一時雨か雪|sunny, brief rain or snow
107 晴れ時々雨か雪|sunny, rain or snow at times
108 晴れ一時雨か雷雨|sunny, brief rain or thunderstorms
110 晴れ後時々くもり|sunny, later cloudy at times
111 晴れ後くもり|sunny, later cloudy
112 晴れ後一時雨|sunny, later brief rain
113 晴れ後時々雨|sunny, later rain at times
114 晴れ後雨|sunny, later rain
115 晴れ後一時雪|sunny, later brief snow
116 晴れ後時々雪|sunny, later snow at times
117 晴れ後雪|sunny, later snow
118 晴れ後雨か雪|sunny, later rain or snow
119 晴れ後雨か雷雨|sunny, later rain or thunderstorms
120 晴れ、朝夕一時雨|sunny, brief rain in the morning and evening
121 晴れ、朝の内一時雨|sunny, brief rain in the morning
122 晴れ、夕方一時雨|sunny, brief rain in the evening
123 晴れ、山沿い雷雨|sunny, thunderstorms near the mountains
124 晴れ、山沿い雪|sunny, snow near the mountains
125 晴れ、午後は雷雨|sunny, thunderstorms in the afternoon
126 晴れ、昼頃から雨|sunny, rain from around noon
127 晴れ、夕方から雨|sunny, rain from the evening
128 晴れ、夜は雨|sunny, rain at night
130 朝の内霧後晴れ|morning fog, later sunny
131 晴れ、明け方霧|sunny, fog around dawn
132 晴れ、朝夕くもり|sunny, cloudy in the morning and evening
140 晴れ時々雨で雷を伴う|sunny, rain with thunder at times
160 晴れ一時雪か雨|sunny, brief snow or rain
170 晴れ時々雪か雨|sunny, snow or rain at times
181 晴れ後雪か雨|sunny, later snow or rain
200 くもり|cloudy
201 くもり時々晴れ|cloudy, sunny at times
202 くもり一時雨|cloudy, brief rain
203 くもり時々雨|cloudy, rain at times
204 くもり一時雪|cloudy, brief snow
205 くもり時々雪|cloudy, snow at times
206 くもり一時雨か雪|cloudy, brief rain or snow
207 くもり時々雨か雪|cloudy, rain or snow at times
208 くもり一時雨か雷雨|cloudy, brief rain or thunderstorms
209 霧|fog
210 くもり後時々晴れ|cloudy, later sunny at times
211 くもり後晴れ|cloudy, later sunny
212 くもり後一時雨|cloudy, later brief rain
213 くもり後時々雨|cloudy, later rain at times
214 くもり後雨|cloudy, later rain
215 くもり後一時雪|cloudy, later brief snow
216 くもり後時々雪|cloudy, later snow at times
217 くもり後雪|cloudy, later snow
218 くもり後雨か雪|cloudy, later rain or snow
219 くもり後雨か雷雨|cloudy, later rain or thunderstorms
220 くもり、朝夕一時雨|cloudy, brief rain in the morning and evening
221 くもり、朝の内一時雨|cloudy, brief rain in the morning
222 くもり、夕方一時雨|cloudy, brief rain in the evening
223 くもり、日中時々晴れ|cloudy, sunny at times during the day
224 くもり、昼頃から雨|cloudy, rain from around noon
225 くもり、夕方から雨|cloudy, rain from the evening
226 くもり、夜は雨|cloudy, rain at night
228 くもり、昼頃から雪|cloudy, snow from around noon
229 くもり、夕方から雪|cloudy, snow from the evening
230 くもり、夜は雪|cloudy, snow at night
231 くもり、海上海岸は霧か霧雨|cloudy, fog or drizzle at sea and along the coast
240 くもり時々雨で雷を伴う|cloudy, rain with thunder at times
250 くもり時々雪で雷を伴う|cloudy, snow with thunder at times
260 くもり一時雪か雨|cloudy, brief snow or rain
270 くもり時々雪か雨|cloudy, snow or rain at times
281 くもり後雪か雨|cloudy, later snow or rain
300 雨|rain
301 雨時々晴れ|rain, sunny at times
302 雨時々止む|rain on and off
303 雨時々雪|rain, snow at times
304 雨か雪|rain or snow
306 大雨|heavy rain
308 雨で暴風を伴う|rain with violent wind
309 雨一時雪|rain, brief snow
311 雨後晴れ|rain, later sunny
313 雨後くもり|rain, later cloudy
314 雨後時々雪|rain, later snow at times
315 雨後雪|rain, later snow
316 雨か雪後晴れ|rain or snow, later sunny
317 雨か雪後くもり|rain or snow, later cloudy
320 朝の内雨後晴れ|morning rain, later sunny
321 朝の内雨後くもり|morning rain, later cloudy
322 雨、朝晩一時雪|rain, brief snow in the morning and evening
323 雨、昼頃から晴れ|rain, sunny from around noon
324 雨、夕方から晴れ|rain, clearing in the evening
325 雨、夜は晴れ|rain, clear at night
326 雨、夕方から雪|rain, snow from the evening
327 雨、夜は雪|rain, snow at night
328 雨一時強く降る|rain, heavy for a time
329 雨一時みぞれ|rain, brief sleet
340 雪か雨|snow or rain
350 雨で雷を伴う|rain with thunder
361 雪か雨後晴れ|snow or rain, later sunny
371 雪か雨後くもり|snow or rain, later cloudy
400 雪|snow
401 雪時々晴れ|snow, sunny at times
402 雪時々止む|snow on and off
403 雪時々雨|snow, rain at times
405 大雪|heavy snow
406 風雪強い|snow with strong wind
407 暴風雪|blizzard
409 雪一時雨|snow, brief rain
411 雪後晴れ|snow, later sunny
413 雪後くもり|snow, later cloudy
414 雪後雨|snow, later rain
420 朝の内雪後晴れ|morning snow, later sunny
421 朝の内雪後くもり|morning snow, later cloudy
422 雪、昼頃から雨|snow, rain from around noon
423 雪、夕方から雨|snow, rain from the evening
425 雪一時強く降る|snow, heavy for a time
426 雪後みぞれ|snow, later sleet
427 雪一時みぞれ|snow, brief sleet
450 雪で雷を伴う|snow with thunder
"""

WEATHER_CODES: dict[str, tuple[str, str]] = {
    line[:3]: (line[4:].partition("|")[0], line.partition("|")[2]) for line in _TABLE.strip().splitlines()
}


def describe_code(code: str) -> tuple[str, str] | None:
    """Return the meaning of a weather code in Japanese and English; None if it has none.

    The week's forecast contains codes only, and English text always comes from the code. A code that is not in the
    agency's table is read by its first digit.
    """
    return WEATHER_CODES.get(code) or WEATHER_CODES.get(f"{code[:1]}00")
